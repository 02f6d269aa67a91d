package diff

import (
	"math"
	"path"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// AddImpact says of each pool that changes what that means for what there is
// now. It decides from its input alone; what is not known is a note.
func (r *Report) AddImpact(live Live) {
	for _, note := range live.Notes {
		r.note("%s", note)
	}
	if live.Hub == nil && len(live.Clusters) == 0 {
		return
	}
	l := &lives{live: live, report: r, hubPools: map[string]*v1alpha1.HubPool{}}
	r.objects(func(_ *Overlay, o *Object) {
		if o.Kind == v1alpha1.HubPoolKind && o.after != nil && o.after.ours {
			if typed, err := schemas.As[v1alpha1.HubPool](o.after.Unstructured); err == nil {
				l.hubPools[o.Name] = typed
			}
		}
	})
	r.objects(func(overlay *Overlay, o *Object) {
		if !o.either().ours || overlay.stays {
			return
		}
		switch o.Kind {
		case v1alpha1.ExecutorPoolKind:
			l.executorPool(overlay, o)
		case v1alpha1.HubPoolKind:
			l.hubPool(o)
		}
	})
}

// lives looks up what lives for what changes.
type lives struct {
	live   Live
	report *Report
	// hubPools: hub pool → its half at the head, where that changes too.
	hubPools map[string]*v1alpha1.HubPool
}

// unlimited stands for a maximum that is not known.
const unlimited = math.MaxInt32

// hubMaximum is what the hub's maximum is now and after the change.
func (l *lives) hubMaximum(name string, status *v1alpha1.HubPoolReference) (now, then int32, known bool) {
	now = unlimited
	switch found := l.live.Hub.find(name); {
	case found != nil:
		now, known = found.MaxRunners, true
	case status != nil:
		now, known = status.MaxRunners, true
	}
	then = now
	if changed := l.hubPools[name]; changed != nil {
		then, known = changed.Spec.MaxRunners, true
	}
	return now, then, known
}

// executorPool adds the impact in each cluster that applies the overlay and has
// the pool.
func (l *lives) executorPool(overlay *Overlay, o *Object) {
	if o.Change == Added {
		return
	}
	for i := range l.live.Clusters {
		cluster := &l.live.Clusters[i]
		applies, known := cluster.applies(overlay.Path)
		if !known {
			l.report.note("which root cluster %s applies is not known: it has no PoolSync that can be read, so its pools are matched by their names", cluster.Name)
		} else if !applies {
			continue
		}
		xpool := cluster.find(o.before)
		if xpool == nil {
			if known {
				l.report.note("cluster %s does not have %s yet", cluster.Name, qualified(o.before.GetNamespace(), o.before.GetName()))
			}
			continue
		}
		o.Impact = append(o.Impact, l.inCluster(cluster, xpool, o, !known))
	}
}

// applies says whether a cluster applies a path; known is false where it has no
// PoolSync that says so, and its name does not either.
func (c *LiveCluster) applies(overlay string) (applies, known bool) {
	if len(c.Syncs) == 0 {
		return path.Base(overlay) == c.Name, path.Base(overlay) == c.Name
	}
	for i := range c.Syncs {
		if fleet.WithinRepository(c.Syncs[i].Spec.Path) == overlay {
			return true, true
		}
	}
	return false, true
}

func (c *LiveCluster) find(o *item) *v1alpha1.ExecutorPool {
	for i := range c.Pools {
		if c.Pools[i].Namespace == o.GetNamespace() && c.Pools[i].Name == o.GetName() {
			return &c.Pools[i]
		}
	}
	// The overlay may leave the namespace to whatever applies it.
	if o.GetNamespace() == "" {
		for i := range c.Pools {
			if c.Pools[i].Name == o.GetName() {
				return &c.Pools[i]
			}
		}
	}
	return nil
}

// inCluster compares what a pool is now with what it will be.
func (l *lives) inCluster(cluster *LiveCluster, xpool *v1alpha1.ExecutorPool, o *Object, estimate bool) Impact {
	status := &xpool.Status
	name := xpool.HubPoolName()
	if status.Hub != nil {
		name = status.Hub.Name
	}
	hubNow, hubThen, hubKnown := l.hubMaximum(name, status.Hub)
	was := sceneOf(xpool, hubNow)
	if found := l.live.Hub.find(name); found != nil {
		was.others = max(0, found.Runners.Starting+found.Runners.Idle-was.starting-was.idle)
		was.halted = found.Cordon != nil || found.State != hubv1.PoolActive
	} else {
		// Runners of other clusters may take what waits.
		estimate = true
	}
	now, gone := was, o.Change == Removed || o.Change == Renamed
	now.hubMaximum = hubThen
	after := xpool
	switch typed := l.typed(o); {
	case gone:
		now.deleting = true
	case typed != nil:
		after = typed
		now.minimum, now.maximum = typed.Spec.MinRunners, typed.Spec.MaxRunners
	default:
		estimate = true
	}
	impact := between(was, now)
	impact.Where, impact.Estimate = cluster.Name, estimate || !hubKnown
	before, then := claimsNow(xpool), claimsNow(after)
	if gone {
		then = -1
	}
	impact.Releases = volumesReleased(status.Volumes, before, then)
	policy := after.Spec.Persistence
	impact.Deletes = impact.Releases > 0 && (policy == nil || policy.ReclaimPolicy != v1alpha1.ReclaimRetain)
	return impact
}

// sceneOf is a pool as its cluster counts it.
func sceneOf(xpool *v1alpha1.ExecutorPool, hubMaximum int32) scene {
	status := &xpool.Status
	return scene{
		starting: max(0, status.Runners-status.Idle-status.Busy), idle: status.Idle, busy: status.Busy, queued: status.Queued,
		minimum: xpool.Spec.MinRunners, maximum: xpool.Spec.MaxRunners, hubMaximum: hubMaximum,
	}
}

// typed is the head's object; nil where it is not one that a server takes.
func (l *lives) typed(o *Object) *v1alpha1.ExecutorPool {
	if o.after == nil {
		return nil
	}
	typed, err := schemas.As[v1alpha1.ExecutorPool](o.after.Unstructured)
	if err != nil {
		l.report.note("%s: its impact is not known: %v", o.title(), err)
		return nil
	}
	return typed
}

// claimsNow is how many volumes a pool keeps; below nothing where it keeps none.
func claimsNow(xpool *v1alpha1.ExecutorPool) int32 {
	persistence := xpool.Spec.Persistence
	switch {
	case persistence == nil || !persistence.Enabled:
		return -1
	case persistence.MaxClaims != nil:
		return *persistence.MaxClaims
	}
	return xpool.Spec.MaxRunners
}

// hubPool adds the impact of the hub's half. Where the clusters that serve it
// were read, they decide; else all its runners are taken for those of one.
func (l *lives) hubPool(o *Object) {
	if o.Change == Added {
		return
	}
	name := o.before.GetName()
	found := l.live.Hub.find(name)
	if found == nil {
		if l.live.Hub != nil {
			l.report.note("the hub does not have pool %s", name)
		}
		l.servingClusters(o, name)
		return
	}
	impact := Impact{Where: atHub, Busy: int(found.Runners.Busy)}
	gone := o.Change == Removed || o.Change == Renamed
	if gone && deletionPolicy(o.before.Unstructured) != v1alpha1.DeletionRevoke {
		impact.Waiting = int(found.Queued)
		o.Impact = append(o.Impact, impact)
		return
	}
	was := scene{
		starting: found.Runners.Starting, idle: found.Runners.Idle, busy: found.Runners.Busy, queued: found.Queued,
		maximum: unlimited, hubMaximum: found.MaxRunners, halted: found.Cordon != nil || found.State != hubv1.PoolActive,
	}
	exact := l.minimum(name, &was)
	now := was
	if gone {
		impact.Retires, impact.Cancels = int(found.Runners.Idle), int(found.Queued)
		o.Impact = append(o.Impact, impact)
		return
	}
	if typed := l.hubPools[o.Name]; typed != nil {
		now.hubMaximum = typed.Spec.MaxRunners
		now.halted = was.halted || typed.Spec.Cordon != nil
		if uncordons(o) {
			now.halted = found.State != hubv1.PoolActive
		}
	} else {
		exact = false
	}
	impact = between(was, now)
	impact.Where, impact.Estimate = atHub, !exact
	o.Impact = append(o.Impact, impact)
}

// uncordons says whether the change takes Git's cordon away.
func uncordons(o *Object) bool {
	_, was, _ := unstructured.NestedMap(o.before.Object, "spec", "cordon")
	_, is, _ := unstructured.NestedMap(o.after.Object, "spec", "cordon")
	return was && !is
}

// minimum fills in what the clusters that serve a pool keep and start, and says
// whether exactly one does, which then decides alone.
func (l *lives) minimum(name string, s *scene) (exact bool) {
	serving, total := 0, int32(0)
	for i := range l.live.Clusters {
		for j := range l.live.Clusters[i].Pools {
			xpool := &l.live.Clusters[i].Pools[j]
			if served(xpool) != name {
				continue
			}
			serving++
			s.minimum += xpool.Spec.MinRunners
			total += min(xpool.Spec.MaxRunners, unlimited-total)
		}
	}
	if serving > 0 {
		s.maximum = total
	} else {
		// Nobody says how many are kept idle: as many as there are.
		s.minimum = s.idle + s.starting
	}
	return serving == 1
}

// served is the hub pool that an ExecutorPool serves.
func served(xpool *v1alpha1.ExecutorPool) string {
	if xpool.Status.Hub != nil {
		return xpool.Status.Hub.Name
	}
	return xpool.HubPoolName()
}

// servingClusters adds the impact of a hub's half in the clusters, where the hub
// itself was not read.
func (l *lives) servingClusters(o *Object, name string) {
	gone := o.Change == Removed || o.Change == Renamed
	if l.live.Hub != nil || gone && deletionPolicy(o.before.Unstructured) != v1alpha1.DeletionRevoke {
		return
	}
	for i := range l.live.Clusters {
		cluster := &l.live.Clusters[i]
		for j := range cluster.Pools {
			xpool := &cluster.Pools[j]
			if served(xpool) != name {
				continue
			}
			hubNow, hubThen, _ := l.hubMaximum(name, xpool.Status.Hub)
			was := sceneOf(xpool, hubNow)
			now := was
			now.hubMaximum = hubThen
			if typed := l.hubPools[o.Name]; gone || typed != nil && typed.Spec.Cordon != nil {
				now.halted = true
			}
			impact := between(was, now)
			impact.Where, impact.Estimate = cluster.Name, true
			if gone {
				impact.Cancels, impact.Waiting = impact.Waiting, 0
			}
			o.Impact = append(o.Impact, impact)
		}
	}
}
