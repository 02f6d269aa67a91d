package fleet

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

// cluster compares Git's half with a cluster's, and the cluster with the hub.
func (d *drift) cluster(c *ClusterSurface) {
	wanted := map[string]*unstructured.Unstructured{}
	switch {
	case len(c.Hidden) > 0:
		d.report.Hidden = true
		d.note("what Git wants of cluster %s is not known, so Git and cluster were not compared: %s", c.Name, strings.Join(c.Hidden, "; "))
	case c.Git == nil && len(c.Elsewhere) > 0 && len(c.Syncs)+len(c.Foreign) == 0:
		// What is left out is all there is.
	case c.Git == nil:
		d.note("what Git wants of cluster %s is not known, so Git and cluster were not compared", c.Name)
	}
	d.leftOut("", "cluster "+c.Name, c.Elsewhere)
	for _, name := range slices.Sorted(maps.Keys(c.Unserved)) {
		d.note("PoolSync %s of cluster %s: %s", name, c.Name, c.Unserved[name])
	}
	for i := range c.Syncs {
		if sync := &c.Syncs[i]; suspended(sync) {
			d.note("PoolSync %s/%s of cluster %s is %s", sync.Namespace, sync.Name, c.Name, secret.Redact(Suspension(sync)))
		}
	}
	for _, pool := range ExecutorPools(c.Git) {
		wanted[identity(pool.Object)] = pool.Object
	}
	live := map[string]bool{}
	for i := range c.Live {
		have := &c.Live[i]
		live[identity(have)] = true
		want := wanted[identity(have)]
		if want == nil && d.in.Hub == nil && c.ofElsewhere(have) {
			continue // there is nothing to hold it against
		}
		entry := d.pool(HubPoolName(have), c.Name)
		if foreign := c.foreignOf(have); foreign != nil {
			entry.AppliedBy, entry.Revision = foreign.String(), foreign.LastAppliedRevision
		}
		if c.Git != nil && (want != nil || !c.ofElsewhere(have)) {
			d.executorPool(c, want, have)
		}
		if d.in.Hub != nil {
			d.crossSurface(c, want, have)
		}
	}
	for _, pool := range ExecutorPools(c.Git) {
		if live[identity(pool.Object)] {
			continue
		}
		field := clusterField(pool.Object)
		field.Git = pool.Object.Object["spec"]
		sync := c.syncOf(pool.Object)
		field.Cause = c.cause(sync, pool.Object, "")
		field.seen(sync)
		field.observed(pool.Object)
		d.add(HubPoolName(pool.Object), c.Name, field)
	}
}

// ofElsewhere says whether an object is applied from another repository.
func (c *ClusterSurface) ofElsewhere(obj *unstructured.Unstructured) bool {
	labels := obj.GetLabels()
	if name := labels[v1alpha1.LabelPoolSyncName]; name != "" {
		return c.Elsewhere[v1alpha1.PoolSyncKind+" "+labels[v1alpha1.LabelPoolSyncNamespace]+"/"+name] != ""
	}
	reference, foreign := AppliedBy(obj)
	return foreign && c.Elsewhere[reference.String()] != ""
}

func clusterField(obj *unstructured.Unstructured) FieldDrift {
	return FieldDrift{Surface: SurfaceGitCluster, Kind: v1alpha1.ExecutorPoolKind, Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// executorPool compares one ExecutorPool that the cluster has.
func (d *drift) executorPool(c *ClusterSurface, want, have *unstructured.Unstructured) {
	sync := c.syncOf(have)
	leaving := have.GetDeletionTimestamp()
	if want == nil {
		if _, foreign := AppliedBy(have); !foreign && have.GetLabels()[v1alpha1.LabelPoolSyncName] == "" {
			d.note("%s in cluster %s is not in Git", describe(have), c.Name)
			return
		}
		field := clusterField(have)
		field.Cluster = have.Object["spec"]
		field.Cause = c.cause(sync, have, "")
		if leaving != nil {
			field.Cause, field.Since = CauseBeingDeleted, timeOrNil(leaving.Time)
		} else {
			field.seen(sync)
		}
		d.add(HubPoolName(have), c.Name, field)
		return
	}
	if leaving != nil {
		// It is as good as gone, however alike the two are.
		field := clusterField(have)
		field.Git, field.Cause, field.Since = want.Object["spec"], CauseBeingDeleted, timeOrNil(leaving.Time)
		d.add(HubPoolName(have), c.Name, field)
		return
	}
	for _, diff := range CompareSpecs(want, have, ignoredBy(sync, have)) {
		field := clusterField(have)
		field.Path, field.Git, field.Cluster = diff.Path, diff.Want, diff.Have
		applier := v1alpha1.FieldManagerPoolSync
		if reference, foreign := AppliedBy(have); foreign {
			applier = reference.manager()
		}
		manager, since := fieldWriter(have, diff.Path, applier)
		field.Manager, field.Cause = manager, c.cause(sync, have, manager)
		field.Since = timeOrNil(since)
		field.seen(sync)
		field.observed(want)
		d.add(HubPoolName(have), c.Name, field)
	}
}

// seen takes over what the PoolSync has seen: it watches, and knows since when and what
// becomes of it.
func (f *FieldDrift) seen(sync *v1alpha1.PoolSync) {
	f.Outcome, f.Message = outcomeAt(sync, f.Cause)
	if sync == nil {
		return
	}
	for i := range sync.Status.Drift {
		entry := &sync.Status.Drift[i]
		if entry.Kind != f.Kind || entry.Namespace != f.Namespace || entry.Name != f.Name || entry.Path != f.Path || entry.Corrected != nil {
			continue
		}
		f.Since = timeOrNil(entry.Since.Time)
		if f.Manager == "" {
			f.Manager = entry.Manager
		}
		if entry.Outcome != "" && entry.Cause == f.Cause {
			f.Outcome, f.Message = entry.Outcome, entry.Message
		}
		return
	}
}

func timeOrNil(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// syncOf finds the PoolSync that applies an object: the one that its labels
// name, and else the only one there is.
func (c *ClusterSurface) syncOf(obj *unstructured.Unstructured) *v1alpha1.PoolSync {
	labels := obj.GetLabels()
	for i := range c.Syncs {
		sync := &c.Syncs[i]
		if labels[v1alpha1.LabelPoolSyncName] == sync.Name && labels[v1alpha1.LabelPoolSyncNamespace] == sync.Namespace {
			return sync
		}
	}
	if _, foreign := AppliedBy(obj); foreign {
		return nil
	}
	if len(c.Syncs) == 1 && labels[v1alpha1.LabelPoolSyncName] == "" {
		return &c.Syncs[0]
	}
	return nil
}

// ignoredBy are the pointers that a PoolSync does not compare on an object.
func ignoredBy(sync *v1alpha1.PoolSync, obj *unstructured.Unstructured) []string {
	if sync == nil {
		return nil
	}
	return IgnoredPaths(sync.Spec.Drift.Ignore, obj.GetKind(), obj.GetNamespace(), obj.GetName())
}

// IgnoredPaths are the JSON pointers of the rules that mean an object.
func IgnoredPaths(rules []v1alpha1.IgnoreRule, kind, namespace, name string) []string {
	var paths []string
	for _, rule := range rules {
		t := rule.Target
		if t == nil || (t.Kind == "" || t.Kind == kind) && (t.Namespace == "" || t.Namespace == namespace) && (t.Name == "" || t.Name == name) {
			paths = append(paths, rule.Paths...)
		}
	}
	return paths
}

// cause says why the cluster differs from Git: the revision is not applied yet
// or cannot be, or somebody changed the cluster since.
func (c *ClusterSurface) cause(sync *v1alpha1.PoolSync, obj *unstructured.Unstructured, manager string) string {
	if foreign := c.foreignOf(obj); sync == nil && foreign != nil {
		return foreign.cause(c.Revision)
	}
	if sync == nil {
		// Helm or a hand applies; only the object itself can tell.
		if manager != "" || sameRevision(obj.GetAnnotations()[v1alpha1.AnnotationRevision], c.Revision) {
			return v1alpha1.DriftClusterEdited
		}
		return v1alpha1.DriftCommitNotApplied
	}
	if sameRevision(sync.Status.LastAppliedRevision, c.Revision) {
		return v1alpha1.DriftClusterEdited
	}
	ready := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionReady)
	if suspended(sync) || ready != nil && ready.Status == metav1.ConditionFalse {
		return v1alpha1.DriftCommitNotApplied
	}
	if c.Unserved[sync.Namespace+"/"+sync.Name] != "" {
		return CauseUnserved
	}
	return v1alpha1.DriftConverging
}

// suspended says whether a PoolSync is, as far as it says so by itself: one with a time
// may be over.
func suspended(sync *v1alpha1.PoolSync) bool {
	ready := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionReady)
	return sync.Spec.Suspend && sync.Spec.SuspendUntil == nil || ready != nil && ready.Reason == string(v1alpha1.ReasonSuspended)
}

// sameRevision compares commits; a sync may write the branch in front of one.
func sameRevision(recorded, commit string) bool {
	return commit != "" && (recorded == commit || strings.HasSuffix(recorded, ":"+commit) || strings.HasSuffix(recorded, "/"+commit))
}

// crossSurface compares an ExecutorPool with its hub pool.
func (d *drift) crossSurface(c *ClusterSurface, want, have *unstructured.Unstructured) {
	pool, err := schemas.As[v1alpha1.ExecutorPool](have)
	if err != nil {
		d.note("cluster %s: %v", c.Name, err)
		return
	}
	name := HubPoolName(have)
	hub := d.serving(pool)
	if hub == nil {
		field := clusterField(have)
		field.Surface, field.Path, field.Cluster, field.Cause = SurfaceHubCluster, "/spec/hubPool", name, v1alpha1.DriftRuleBroken
		d.add(name, c.Name, field)
		return
	}
	inGit := d.brokenInGit(want, hub.Name)
	for _, entry := range CrossSurface(pool, *hub) {
		field := clusterField(have)
		field.Surface, field.Path, field.Cause = SurfaceHubCluster, entry.Path, entry.Cause
		field.Hub, field.Cluster = decoded(entry.Hub), decoded(entry.Cluster)
		field.Outcome, field.Message, field.Manager = entry.Outcome, entry.Message, entry.Manager
		if want != nil {
			field.Git, _ = lookup(want.Object, entry.Path)
		}
		// Git is sound: one of the two is about to get there.
		if inGit != nil && !inGit[entry.Path] && d.converging(name, c.Name, entry.Path) {
			field.explain(v1alpha1.DriftConverging)
		}
		for i := range pool.Status.Drift {
			if pool.Status.Drift[i].Path == entry.Path && pool.Status.Drift[i].Corrected == nil {
				field.Since = timeOrNil(pool.Status.Drift[i].Since.Time)
			}
		}
		d.add(name, c.Name, field)
	}
}

func decoded(text string) any {
	var value any
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		return text
	}
	return number(value)
}

// serving is the hub pool that the credential belongs to, as far as the
// controller has said so, and else the one that the object names.
func (d *drift) serving(pool *v1alpha1.ExecutorPool) *hubv1.Pool {
	if pool.Status.Hub != nil {
		if have := d.hubByID[pool.Status.Hub.ID]; have != nil {
			return have
		}
	}
	return d.hubNamed[pool.HubPoolName()]
}

// brokenInGit are the rules that Git's own halves break, by path; nil where Git
// does not say what both are.
func (d *drift) brokenInGit(want *unstructured.Unstructured, hubPool string) map[string]bool {
	if want == nil {
		return nil
	}
	pool, err := schemas.As[v1alpha1.ExecutorPool](want)
	if err != nil {
		return nil
	}
	half := d.halves[hubPool]
	if half == nil {
		return nil
	}
	typed, err := schemas.As[v1alpha1.HubPool](half)
	if err != nil {
		return nil
	}
	broken := map[string]bool{}
	for _, entry := range CrossSurface(pool, hubv1.Pool{Name: hubPool, PoolDefinition: DefinitionOf(typed)}) {
		broken[entry.Path] = true
	}
	return broken
}

// converging says whether one of the halves is on its way to Git's value of a
// field.
func (d *drift) converging(pool, cluster, path string) bool {
	atHub := pathAtHub(path)
	for _, in := range []string{"", cluster} {
		at, known := d.entries[poolAt{pool, in}]
		if !known {
			continue
		}
		for _, field := range d.report.Pools[at].Fields {
			if (field.Path == path || field.Path == atHub) && (field.Cause == v1alpha1.DriftConverging || field.Cause == CauseUnserved) {
				return true
			}
		}
	}
	return false
}
