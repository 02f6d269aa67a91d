package fleet

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
)

// SuspendedBy is the field manager that wrote a PoolSync's spec.suspend last; empty
// where its managedFields do not say.
func SuspendedBy(sync *v1alpha1.PoolSync) string {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"suspend": true}}}
	object.SetManagedFields(sync.ManagedFields)
	return FieldManager(object, "/spec/suspend", "")
}

// Suspension says who suspended a PoolSync, why and until when, as far as that is
// known: "suspended by kubectl-edit: nodes are drained, until 2030-12-24T08:00:00Z".
func Suspension(sync *v1alpha1.PoolSync) string {
	text := "suspended"
	if by := SuspendedBy(sync); by != "" {
		text += " by " + by
	}
	if why := sync.Spec.SuspendReason; why != "" {
		text += ": " + why
	}
	if until := sync.Spec.SuspendUntil; until != nil {
		text += ", until " + until.UTC().Format(time.RFC3339)
	}
	return text
}
