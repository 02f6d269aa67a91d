package controllers

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// observers are the PoolSyncs that only compare an ExecutorPool: it has no label that
// names them.
type observers struct {
	mu sync.Mutex // guards by
	// by: PoolSync → the pools that it compares.
	by map[types.NamespacedName]map[types.NamespacedName]bool
}

// note takes over what a pass only compares.
func (o *observers) note(p *syncPass) {
	pools := map[types.NamespacedName]bool{}
	for _, s := range p.sights {
		if s.observed && s.id.isPool() {
			pools[types.NamespacedName{Namespace: s.id.namespace, Name: s.id.name}] = true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(pools) == 0 {
		delete(o.by, p.name())
		return
	}
	if o.by == nil {
		o.by = map[types.NamespacedName]map[types.NamespacedName]bool{}
	}
	o.by[p.name()] = pools
}

// of finds the PoolSyncs that only compare a pool.
func (o *observers) of(_ context.Context, pool client.Object) []reconcile.Request {
	name := client.ObjectKeyFromObject(pool)
	o.mu.Lock()
	defer o.mu.Unlock()
	var requests []reconcile.Request
	for sync, pools := range o.by {
		if pools[name] {
			requests = append(requests, reconcile.Request{NamespacedName: sync})
		}
	}
	return requests
}

// forget drops what is known of a PoolSync.
func (o *observers) forget(name types.NamespacedName) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.by, name)
}
