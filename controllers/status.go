package controllers

import (
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
)

// keepConditions drops the conditions of other types: a status is its
// controller's alone.
func keepConditions(conditions []metav1.Condition, types []string) []metav1.Condition {
	return slices.DeleteFunc(conditions, func(c metav1.Condition) bool { return !slices.Contains(types, c.Type) })
}

// lostRace turns the error of a change that came too late, the object having changed
// since it was read, into another look: that is no failure, and the newer object
// is on its way.
func lostRace(result ctrl.Result, err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: retryFirst}, nil
	}
	return result, err
}

// older says whether a resource version is from before another. Where that cannot
// be told, it is taken for the newer one: the next event settles it.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order < 0
}
