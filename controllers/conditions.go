package controllers

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// fluxConditions are the conditions of an object at one of its generations.
type fluxConditions struct {
	list       *[]metav1.Condition
	generation int64
	now        time.Time
}

func (c fluxConditions) set(conditionType string, status metav1.ConditionStatus, reason v1alpha1.Reason, message string) {
	meta.SetStatusCondition(c.list, metav1.Condition{
		Type: conditionType, Status: status, Reason: string(reason), Message: shorten(message, maxConditionMessage),
		ObservedGeneration: c.generation, LastTransitionTime: metav1.NewTime(c.now),
	})
}

func (c fluxConditions) setOrRemove(conditionType string, is bool, reason v1alpha1.Reason, message string) {
	if !is {
		meta.RemoveStatusCondition(c.list, conditionType)
		return
	}
	c.set(conditionType, metav1.ConditionTrue, reason, message)
}

// troubleLeft is the trouble that an earlier process left on an object with the
// conditions of Flux's kinds.
func troubleLeft(conditions []metav1.Condition, now time.Time) trouble {
	ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse {
		return trouble{}
	}
	return troubleOf(ready, !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionStalled), now)
}
