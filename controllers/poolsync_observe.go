package controllers

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"cloop.dev/cloop/apis/v1alpha1"
)

// observers are the PoolSyncs that only compare an object: it has no label that names
// them.
type observers struct {
	mu sync.Mutex // guards by
	// by: PoolSync → the objects of watched kinds that it compares.
	by map[types.NamespacedName]map[objectID]bool
}

// note takes over what a pass only compares.
func (o *observers) note(p *syncPass) {
	objects := map[objectID]bool{}
	for _, s := range p.sights {
		if s.observed && (s.id.isPool() || s.id.ofFleet()) {
			objects[s.id] = true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(objects) == 0 {
		delete(o.by, p.name())
		return
	}
	if o.by == nil {
		o.by = map[types.NamespacedName]map[objectID]bool{}
	}
	o.by[p.name()] = objects
}

// of finds the PoolSyncs that only compare an object of a kind.
func (o *observers) of(kind string) handler.MapFunc {
	return func(_ context.Context, object client.Object) []reconcile.Request {
		id := objectID{v1alpha1.Group, kind, object.GetNamespace(), object.GetName()}
		o.mu.Lock()
		defer o.mu.Unlock()
		var requests []reconcile.Request
		for sync, objects := range o.by {
			if objects[id] {
				requests = append(requests, reconcile.Request{NamespacedName: sync})
			}
		}
		return requests
	}
}

// forget drops what is known of a PoolSync.
func (o *observers) forget(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.by, name)
}
