package diff

import (
	"cmp"
	"math"

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
	l := &lives{live: live, report: r, standings: map[string]*standing{}, hubPools: map[string]*Object{}, now: map[string]string{}}
	r.objects(func(overlay *Overlay, o *Object) {
		if o.either().ours && !o.untouched() && o.Kind == v1alpha1.HubPoolKind {
			l.half(o)
		}
	})
	for i := range live.Clusters {
		for j := range live.Clusters[i].Syncs {
			sync := &live.Clusters[i].Syncs[j]
			r.clone.Learn(sync.Spec.Source.Git.URL, sync.Status.LastAppliedRevision, sync.Status.LastAttemptedRevision)
		}
		l.members(&live.Clusters[i])
	}
	r.objects(func(overlay *Overlay, o *Object) {
		if o.either().ours && !o.untouched() && o.Kind == v1alpha1.ExecutorPoolKind {
			l.executorPool(overlay, o)
		}
	})
	for _, e := range l.effects {
		e.standing.guessed = e.standing.guessed || e.estimate
	}
	for _, e := range l.effects {
		l.inCluster(e)
	}
	r.objects(func(overlay *Overlay, o *Object) {
		if o.either().ours && !o.untouched() && o.Kind == v1alpha1.HubPoolKind {
			l.hubPool(o)
		}
	})
}

// lives looks up what lives for what changes.
type lives struct {
	live   Live
	report *Report
	// standings: hub pool → what serves it.
	standings map[string]*standing
	// hubPools: hub pool → its half, where that changes too.
	hubPools map[string]*Object
	effects  []*effect
	// now: each name of a hub pool that is renamed → the one that it has now.
	now map[string]string
}

// half notes that a hub pool's half changes.
func (l *lives) half(o *Object) {
	l.hubPools[o.Name] = o
	if o.Change != Renamed {
		return
	}
	before := o.before.GetName()
	l.hubPools[before] = o
	if !o.keepsPool() {
		return
	}
	now := before
	if l.live.Hub.find(before) == nil && l.live.Hub.find(o.Name) != nil {
		now = o.Name // it is done already
	}
	l.now[before], l.now[o.Name] = now, now
}

// effect is what a change does to one ExecutorPool of a cluster.
type effect struct {
	of       *Object
	cluster  string
	standing *standing
	member   *member
	// now is what becomes of the member by this change.
	now scene
	// releases are volumes; deletes says that they are deleted.
	releases int
	deletes  bool
	estimate bool
}

// unlimited stands for a maximum that is not known.
const unlimited = math.MaxInt32

// members adds the ExecutorPools of a cluster to what serves their hub pools.
func (l *lives) members(cluster *LiveCluster) {
	for i := range cluster.Pools {
		xpool := &cluster.Pools[i]
		s := l.standing(servedBy(xpool), &xpool.Status)
		scene := sceneOf(xpool)
		s.members = append(s.members, &member{xpool: xpool, was: scene, now: scene})
	}
}

// servedBy is the hub pool that an ExecutorPool serves.
func servedBy(xpool *v1alpha1.ExecutorPool) string {
	if xpool.Status.Hub != nil {
		return xpool.Status.Hub.Name
	}
	return xpool.HubPoolName()
}

// standing finds what serves a hub pool; status is of a pool that does.
func (l *lives) standing(of string, status *v1alpha1.ExecutorPoolStatus) *standing {
	of = cmp.Or(l.now[of], of)
	s, found := l.standings[of], l.live.Hub.find(of)
	if s == nil {
		// Without the hub nobody knows what else serves the pool.
		s = &standing{of: of, was: hubHalf{maximum: unlimited}, estimate: found == nil}
		if found != nil {
			s.queued = found.Queued
			s.was = hubHalf{found.MaxRunners, found.Cordon != nil || found.State != hubv1.PoolActive}
		}
		l.standings[of] = s
	}
	if found == nil && status != nil {
		s.queued = max(s.queued, status.Queued)
		if status.Hub != nil {
			s.was.maximum = status.Hub.MaxRunners
		}
	}
	s.now = s.was
	if half := l.hubPools[of]; half != nil {
		s.now = s.was.changed(half, of, found)
	}
	return s
}

// changed is the hub's half of a pool once Git's has changed.
func (h hubHalf) changed(half *Object, pool string, found *hubv1.Pool) hubHalf {
	typed := typedHalf(half)
	switch {
	case goes(half) && half.before.GetName() == pool:
		h.halted = h.halted || revokes(half)
	case typed != nil:
		h.maximum = typed.Spec.MaxRunners
		h.halted = h.halted || typed.Spec.Cordon != nil
		if half.before != nil && uncordons(half) && found != nil {
			h.halted = found.State != hubv1.PoolActive
		}
	}
	return h
}

// goes says whether what the object stands for is there no more.
func goes(o *Object) bool { return o.Change == Removed || o.Change == Renamed && !o.keepsPool() }

// keepsPool says whether a HubPool has a new name and the hub keeps its pool: one that
// the hub reads, or that a cluster pushes, from the same namespace and to the same hub.
func (o *Object) keepsPool() bool {
	switch {
	case o.Kind != v1alpha1.HubPoolKind || o.Change != Renamed || hubReads(o.before) != hubReads(o.after):
		return false
	case hubReads(o.after):
		return true
	}
	return o.before.GetNamespace() == o.after.GetNamespace() && pushedTo(o.before) == pushedTo(o.after) && !fleet.ToObserve(o.after)
}

// pushedTo is the hub that a HubPool is pushed to.
func pushedTo(pool *item) string {
	to, _, _ := unstructured.NestedString(pool.Object, "spec", "hub", "url")
	return fleet.HubAddress(to)
}

func revokes(half *Object) bool {
	return deletionPolicy(half.before.Unstructured) == v1alpha1.DeletionRevoke
}

// typedHalf is the head's HubPool; nil where it is not one that a server takes.
func typedHalf(o *Object) *v1alpha1.HubPool {
	if o.after == nil {
		return nil
	}
	typed, err := schemas.As[v1alpha1.HubPool](o.after.Unstructured)
	if err != nil {
		return nil
	}
	return typed
}

// uncordons says whether the change takes Git's cordon away.
func uncordons(o *Object) bool {
	_, was, _ := unstructured.NestedMap(o.before.Object, "spec", "cordon")
	_, is, _ := unstructured.NestedMap(o.after.Object, "spec", "cordon")
	return was && !is
}

// executorPool finds the effect in each cluster that applies the overlay.
func (l *lives) executorPool(overlay *Overlay, o *Object) {
	for i := range l.live.Clusters {
		cluster := &l.live.Clusters[i]
		by := l.appliedIn(cluster, overlay, o)
		if !by.applies {
			continue
		}
		if o.before != nil {
			if xpool := cluster.find(o.before); xpool != nil {
				l.affect(cluster, xpool, o, by)
			} else if by.exact {
				l.report.note("cluster %s does not have %s yet", cluster.Name, qualified(o.before.GetNamespace(), o.before.GetName()))
			}
		}
		if (by.exact || by.sync != nil) && o.after != nil && (o.before == nil || goes(o)) && cluster.find(o.after) == nil {
			l.arrive(cluster, o)
		}
	}
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

// affect notes what a change does to a pool that is there.
func (l *lives) affect(cluster *LiveCluster, xpool *v1alpha1.ExecutorPool, o *Object, by appliedBy) {
	e := &effect{of: o, cluster: cluster.Name, standing: l.standing(servedBy(xpool), &xpool.Status), estimate: !by.exact}
	for _, m := range e.standing.members {
		if m.xpool == xpool {
			e.member = m
		}
	}
	e.now = e.member.was
	after := xpool
	switch typed := l.typed(o); {
	case goes(o):
		if !by.removes(l, o) {
			return
		}
		e.now.deleting = true
	case typed != nil:
		after = by.kept(l, xpool, typed)
		e.now.minimum, e.now.maximum = after.Spec.MinRunners, after.Spec.MaxRunners
	default:
		e.estimate = true
	}
	then := claimsNow(after)
	if goes(o) {
		then = -1
	}
	e.releases = volumesReleased(xpool.Status.Volumes, claimsNow(xpool), then)
	policy := after.Spec.Persistence
	e.deletes = e.releases > 0 && (policy == nil || policy.ReclaimPolicy != v1alpha1.ReclaimRetain)
	e.member.now = e.now
	l.effects = append(l.effects, e)
}

// arrive notes a pool that is not there yet: what it has to do with what waits is
// told where it is new, and counts for the others in any case.
func (l *lives) arrive(cluster *LiveCluster, o *Object) {
	typed := l.typed(o)
	if typed == nil {
		return
	}
	m := &member{was: scene{absent: true}, now: scene{minimum: typed.Spec.MinRunners, maximum: typed.Spec.MaxRunners}}
	s := l.standing(typed.HubPoolName(), nil)
	s.members = append(s.members, m)
	if o.Change == Added {
		// Whether its credential is there is not known.
		l.effects = append(l.effects, &effect{of: o, cluster: cluster.Name, standing: s, member: m, now: m.now, estimate: true})
	}
}

// inCluster adds the impact that an effect has in its cluster.
func (l *lives) inCluster(e *effect) {
	whole := l.complete(e.standing)
	c := e.standing.change(e.member, e.now)
	at := e.standing.index(e.member)
	impact := Impact{
		Where: e.cluster, Retires: int(c.retires[at]), Busy: int(e.member.was.busy), Starts: int(c.starts[at]), Waiting: int(c.now.waiting),
		Releases: e.releases, Deletes: e.deletes,
		Estimate: e.estimate || !whole || c.now.contested && c.was.waiting > c.now.waiting,
	}
	if half := l.hubPools[e.standing.of]; half != nil && goes(half) && half.before.GetName() == e.standing.of && revokes(half) {
		// The hub cancels them, which is told there.
		impact.Waiting = 0
	}
	if e.of.Change == Added && impact.Starts == 0 {
		return
	}
	e.of.Impact = append(e.of.Impact, impact)
}

// complete adds to a standing what was not read of it, once, and says whether that
// is nothing.
func (l *lives) complete(s *standing) bool {
	if s.completed {
		return !s.estimate
	}
	s.completed = true
	if found := l.live.Hub.find(s.of); found != nil {
		whole := s.count(found, len(l.live.Clusters) > 0) && connected(found) <= s.read()
		if !whole && len(l.live.Clusters) > 0 {
			l.report.note("hub pool %s is served by clusters that were not read, or that count otherwise than the hub at this moment: name each with --cluster for exact numbers", s.of)
		}
		s.estimate = s.estimate || !whole
	}
	return !s.estimate
}

// connected counts the ExecutorPools whose controllers are in contact with the hub.
func connected(hub *hubv1.Pool) int {
	seen := map[[2]string]bool{}
	for i := range hub.Controllers {
		if c := &hub.Controllers[i]; c.Connected && c.Rival == "" {
			seen[[2]string{c.CredentialID, c.ExecutorPool}] = true
		}
	}
	return len(seen)
}

// sceneOf is a pool as its cluster counts it.
func sceneOf(xpool *v1alpha1.ExecutorPool) scene {
	status := &xpool.Status
	return scene{
		starting: max(0, status.Runners-status.Idle-status.Busy), idle: status.Idle, busy: status.Busy,
		minimum: xpool.Spec.MinRunners, maximum: xpool.Spec.MaxRunners, deleting: xpool.DeletionTimestamp != nil,
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

// hubPool adds the impact of the hub's half: the clusters decide, all of them
// together.
func (l *lives) hubPool(o *Object) {
	if o.Change == Added {
		return
	}
	name := cmp.Or(l.now[o.Name], o.before.GetName())
	found := l.live.Hub.find(name)
	if found == nil {
		if l.live.Hub != nil {
			l.report.note("the hub does not have pool %s", name)
			return
		}
		l.servingClusters(o, name)
		return
	}
	s := l.standing(name, nil)
	whole := l.complete(s)
	c := s.change(nil, scene{})
	impact := c.total()
	impact.Where, impact.Busy, impact.Estimate = atHub, int(found.Runners.Busy), !whole || s.guessed
	switch {
	case goes(o) && revokes(o):
		// All of it goes, whoever has it.
		impact.Retires, impact.Cancels, impact.Waiting, impact.Starts, impact.Estimate = int(found.Runners.Idle), int(found.Queued), 0, 0, false
	case !goes(o) && typedHalf(o) == nil:
		impact.Estimate = true
	}
	o.Impact = append(o.Impact, impact)
}

// servingClusters adds the impact of a hub's half in the clusters, where the hub
// itself was not read.
func (l *lives) servingClusters(o *Object, name string) {
	s := l.standings[name]
	if s == nil || goes(o) && !revokes(o) {
		return
	}
	c := s.change(nil, scene{})
	for i := range l.live.Clusters {
		cluster := &l.live.Clusters[i]
		for j := range cluster.Pools {
			for at, m := range s.members {
				if m.xpool != &cluster.Pools[j] {
					continue
				}
				impact := Impact{Where: cluster.Name, Retires: int(c.retires[at]), Busy: int(m.was.busy), Starts: int(c.starts[at]), Waiting: int(c.now.waiting), Estimate: true}
				if goes(o) {
					impact.Cancels, impact.Waiting = impact.Waiting, 0
				}
				o.Impact = append(o.Impact, impact)
			}
		}
	}
}
