package controllers

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// keepConditions drops the conditions of other types: a status is its
// controller's alone.
func keepConditions(conditions []metav1.Condition, types []string) []metav1.Condition {
	return slices.DeleteFunc(conditions, func(c metav1.Condition) bool { return !slices.Contains(types, c.Type) })
}

// older says whether a resource version is from before another. Where that cannot
// be told, it is taken for the newer one: the next event settles it.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
