// Package hubpool makes of a HubPool what the hub keeps of it, for its own sync and
// for HubPools of clusters alike.
//
// In goes a HubPool document that holds to its schema, out comes a
// store.PoolDocument, normalised, or what keeps the hub from taking it. It reads and
// changes nothing; what the committer may define is decided where it is stored.
package hubpool

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

// poolName is what the hub's API takes as a pool's name.
var poolName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Document is what the hub keeps of a HubPool. It computes the source's digest.
func Document(v *schemas.Validator, hubPool *unstructured.Unstructured, source hubv1.Provenance) (store.PoolDocument, error) {
	object := hubPool.DeepCopy()
	out := store.PoolDocument{Name: object.GetName(), Source: source}
	if err := v.Default(object); err != nil {
		return out, err
	}
	pool, err := schemas.As[v1alpha1.HubPool](object)
	if err != nil {
		return out, err
	}
	if !poolName.MatchString(pool.Name) {
		return out, fmt.Errorf("HubPool %s: the name must be lowercase letters, digits and dashes, at most 63", pool.Name)
	}
	if places := secret.HeldIn("spec", pool.Spec); len(places) > 0 {
		return out, fmt.Errorf("HubPool %s holds a credential at %s: take it out and revoke it, for everybody who reads the repository has it",
			pool.Name, strings.Join(places, ", "))
	}
	out.Observe = fleet.ToObserve(object)
	out.Definition = fleet.DefinitionOf(pool)
	out.Source.Digest = fleet.Digest(out.Definition)
	if pool.Spec.Cordon != nil {
		out.CordonReason = &pool.Spec.Cordon.Reason
	}
	if from := pool.Annotations[v1alpha1.AnnotationMovedFrom]; from != "" {
		// The namespace means nothing to the hub.
		out.MovedFrom = from[strings.LastIndexByte(from, '/')+1:]
	}
	return out, nil
}
