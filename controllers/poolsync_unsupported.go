package controllers

import (
	"strings"

	"cloop.dev/cloop/apis/v1alpha1"
)

// unsupported says what a PoolSync's spec asks for and this version does not do,
// one sentence each. It is the one place to take a field from once it is built.
func unsupported(spec *v1alpha1.PoolSyncSpec) (missed []string) {
	for _, field := range []struct {
		set     bool
		message string
	}{
		{spec.Hub != nil, "spec.hub: no hub is told what is applied"},
	} {
		if field.set {
			missed = append(missed, field.message)
		}
	}
	return missed
}

// setUnsupported says what is missed.
func (r *poolSyncReconciler) setUnsupported(p *syncPass) {
	fields := unsupported(&p.sync.Spec)
	r.setOrRemove(p, v1alpha1.ConditionUnsupported, len(fields) > 0, v1alpha1.ReasonNotBuilt,
		strings.Join(fields, "; ")+": "+v1alpha1.ReasonNotBuilt.Remedy())
}
