package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/v1alpha1"
)

// unsupported says what a PoolSync's spec asks for and this version does not do,
// one sentence each. Without what is in refused something else would be applied
// than was asked for; what is in ignored is only missed. It is the one place to
// take a field from once it is built.
func unsupported(spec *v1alpha1.PoolSyncSpec) (refused, ignored []string) {
	for _, field := range []struct {
		set     bool
		into    *[]string
		message string
	}{
		{spec.SourceRef != nil, &refused, "spec.sourceRef: sources of Flux are not read"},
		{spec.Hub != nil, &ignored, "spec.hub: no hub is told what is applied"},
	} {
		if field.set {
			*field.into = append(*field.into, field.message)
		}
	}
	return refused, ignored
}

// supported refuses a spec that would be applied otherwise than it says.
func (r *poolSyncReconciler) supported(_ context.Context, p *syncPass) *stageError {
	refused, _ := unsupported(&p.sync.Spec)
	if len(refused) == 0 {
		return nil
	}
	return stalled(v1alpha1.ReasonNotBuilt, errors.New(strings.Join(refused, "; ")))
}

// setUnsupported says what is missed.
func (r *poolSyncReconciler) setUnsupported(p *syncPass) {
	refused, ignored := unsupported(&p.sync.Spec)
	fields := slices.Concat(refused, ignored)
	r.setOrRemove(p, v1alpha1.ConditionUnsupported, len(fields) > 0, v1alpha1.ReasonNotBuilt,
		strings.Join(fields, "; ")+": "+v1alpha1.ReasonNotBuilt.Remedy())
}
