package fleet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
)

// synced is what a PoolSync applies, or a Kustomization of Flux.
type synced struct {
	// flux tells a Kustomization of Flux from a PoolSync.
	flux bool
	// here: it reads this repository for sure.
	here bool
	// root is that which has it.
	root string
	// path is cleaned, and relative to the repository's root.
	path string
	// source is equal for PoolSyncs that read one repository.
	source string
	// url of the repository; empty where a source of Flux tells it.
	url string
	// namespace of what has none of its own, or where it is forced of everything.
	namespace string
	forced    bool
	// suspended: it applies nothing now, such as beside its successor in a migration.
	suspended bool
}

func syncOf(obj *unstructured.Unstructured) *synced {
	where, _, _ := unstructured.NestedString(obj.Object, "spec", "path")
	if isFlux(obj) {
		return fluxSyncOf(obj, where)
	}
	ref, _, _ := unstructured.NestedMap(obj.Object, "spec", "source", "git", "ref")
	flux, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "sourceRef")
	address, _, _ := unstructured.NestedString(obj.Object, "spec", "source", "git", "url")
	repository := ""
	if address != "" {
		repository = RepositoryOf(address)
		if len(ref) == 0 {
			ref = map[string]any{"branch": "main"}
		}
	}
	// Whoever reads it with which credential. What comes from JSON always encodes.
	source, _ := json.Marshal([]any{repository, ref, flux})
	return &synced{path: WithinRepository(where), source: string(source), url: address, namespace: obj.GetNamespace(), suspended: isSuspended(obj)}
}

// isFlux says whether an object is a Kustomization of Flux.
func isFlux(obj *unstructured.Unstructured) bool {
	gvk := obj.GroupVersionKind()
	return gvk.Group == fluxGroup && gvk.Kind == "Kustomization"
}

func isSuspended(obj *unstructured.Unstructured) bool {
	suspended, _, _ := unstructured.NestedBool(obj.Object, "spec", "suspend")
	return suspended
}

func fluxSyncOf(obj *unstructured.Unstructured, where string) *synced {
	kind, _, _ := unstructured.NestedString(obj.Object, "spec", "sourceRef", "kind")
	name, _, _ := unstructured.NestedString(obj.Object, "spec", "sourceRef", "name")
	namespace, _, _ := unstructured.NestedString(obj.Object, "spec", "sourceRef", "namespace")
	// Another cluster may be applied to.
	remote, _, _ := unstructured.NestedFieldNoCopy(obj.Object, "spec", "kubeConfig")
	source, _ := json.Marshal([]any{"flux", kind, cmp.Or(namespace, obj.GetNamespace()), name, remote})
	target, _, _ := unstructured.NestedString(obj.Object, "spec", "targetNamespace")
	return &synced{flux: true, suspended: isSuspended(obj), path: WithinRepository(where), source: string(source), namespace: cmp.Or(target, obj.GetNamespace()), forced: target != ""}
}

// readsThis says whether a sync of a root reads this repository: a Kustomization does
// where it has the source by which Flux applies the root that it is in. Where that is
// not known, or it is a PoolSync, it may.
func (r *rootChecker) readsThis(sync *synced) (surely, maybe bool) {
	if !sync.flux || r.appliers == nil {
		return false, true
	}
	maybe = true
	for i := range *r.appliers {
		if a := &(*r.appliers)[i]; a.applies(r.path) && a.source != "" {
			if a.source == sync.source {
				return true, true
			}
			maybe = false
		}
	}
	return false, maybe
}

// keepSyncs keeps the PoolSyncs and Kustomizations of a root that has several, where
// they are of one cluster: of a root that is applied in several ways those of the
// first. It keeps the objects of every root too, as far as a PoolSync applies them.
func (r *rootChecker) keepSyncs() {
	if r.loose {
		return // see looseSyncs
	}
	var syncs, objects []*facts
	for _, f := range r.seen {
		maybe := false
		if f.sync != nil {
			f.sync.here, maybe = r.readsThis(f.sync)
		}
		switch {
		case maybe && !f.sync.suspended:
			syncs = append(syncs, f)
		case f.half != nil && !f.half.executor && f.half.hubURL == "":
			// The hub reads it from Git.
			continue
		}
		objects = append(objects, f)
	}
	inOrder(objects)
	if r.applied == nil {
		r.applied = map[way][]*facts{}
	}
	for _, f := range syncs {
		f.sync.root = r.path
	}
	_, again := r.applied[way{path: r.path}]
	r.applied[way{r.path, r.by, r.in}] = objects
	if again {
		return
	}
	r.applied[way{path: r.path}] = objects
	inOrder(syncs)
	if r.together {
		r.syncs = append(r.syncs, syncs)
		return
	}
	r.syncs = append(r.syncs, byCluster(syncs)...)
}

// way is a path, and the object that applies it with the root or plain file that defines
// that; empty: whatever does.
type way struct{ path, by, in string }

// appliedBy are the objects of a path as a sync applies them: objects of several clusters
// may have one name.
func (c *checker) appliedBy(sync *facts) []*facts {
	for _, in := range []string{sync.sync.root, sync.file} {
		if objects, ok := c.applied[way{sync.sync.path, sync.object, in}]; ok {
			return objects
		}
	}
	return c.applied[way{path: sync.sync.path}]
}

func inOrder(objects []*facts) {
	slices.SortFunc(objects, func(a, b *facts) int { return cmp.Compare(a.subject, b.subject) })
}

// maxSyncRoots bounds how many paths are rendered only because a PoolSync names
// them: bases that are somebody's root as well.
const maxSyncRoots = 50

// twice finds what two PoolSyncs, or two Kustomizations of Flux, of one cluster apply, and the hub pools that
// they serve twice. A nil builder looks at what was rendered already.
func (c *checker) twice(ctx context.Context, b *builder) error {
	extra := 0
	if b != nil && b.whole {
		c.syncs = append(c.syncs, byCluster(c.looseSyncs())...)
	}
	for _, syncs := range c.syncs {
		for _, sync := range syncs {
			if len(syncs) == 1 {
				continue
			}
			if _, ok := c.applied[way{path: sync.sync.path}]; ok || b == nil || extra == maxSyncRoots {
				continue
			}
			extra++
			if err := c.renderFor(ctx, b, sync.sync.path); err != nil {
				return err
			}
		}
		clusters := map[string]*gets{}
		for _, sync := range syncs {
			g := clusters[sync.sync.source]
			if g == nil {
				g = &gets{map[string]*facts{}, map[string]served{}}
				clusters[sync.sync.source] = g
			}
			c.compareSync(g, sync)
		}
	}
	c.syncs, c.applied = nil, nil
	return nil
}

// renderFor notes the objects of a path. One that cannot be rendered has none:
// it is a root of another repository, or reported where it is one of this.
func (c *checker) renderFor(ctx context.Context, b *builder, name string) error {
	out, err := b.build(ctx, name)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	at := way{path: name}
	c.applied[at] = nil
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	for i := range out.objects {
		if o := &out.objects[i]; !HubReads(o.Object) {
			c.applied[at] = append(c.applied[at], &facts{identity: identity(o.Object), object: describe(o.Object), file: o.File, line: o.Line,
				ours: o.Object.GroupVersionKind().Group == v1alpha1.GroupVersion.Group})
		}
	}
	return nil
}

// gets is what a cluster gets of some syncs: identity → the first sync that applies the
// object, and pool → what serves it first.
type gets struct {
	applied map[string]*facts
	serving map[string]served
}

// served is what serves a hub pool, and the sync that applies it.
type served struct{ half, by *facts }

// compareSync finds what a sync applies that the cluster gets already, and adds the
// rest.
func (c *checker) compareSync(g *gets, sync *facts) {
	objects := c.appliedBy(sync)
	both := map[*facts][]*facts{}
	var others []*facts
	for _, f := range objects {
		if first, ok := g.applied[f.in(sync.sync)]; ok {
			// Several teams may bring one namespace by Flux.
			if f.ours || !sync.sync.flux {
				if both[first] == nil {
					others = append(others, first)
				}
				both[first] = append(both[first], f)
			}
			continue
		}
		if f.half == nil || f.half.unsure {
			continue
		}
		if other, ok := g.serving[f.half.serves()]; ok {
			c.find(f.subject, f.problem(RuleDuplicatePool, f.half.field, fmt.Sprintf("hub pool %s is served by %s already, which %s applies to the same cluster", f.half.hubPool, other.half.object, other.by.object)))
		}
	}
	for _, f := range objects {
		if id := f.in(sync.sync); g.applied[id] == nil {
			g.applied[id] = sync
		}
		if f.half != nil && !f.half.unsure && g.serving[f.half.serves()] == (served{}) {
			g.serving[f.half.serves()] = served{f, sync}
		}
	}
	for _, first := range others {
		more := ""
		if count := len(both[first]); count > 1 {
			more = fmt.Sprintf(" and %d more", count-1)
		}
		if sync.subject == noSubject {
			sync.subject = c.objectSubject(noRoot, sync)
		}
		c.find(sync.subject, sync.problem(RuleObjectInTwoSyncs, "spec.path", fmt.Sprintf("%s%s is applied by %s (%s:%d) too", both[first][0].object, more, first.object, first.file, first.line)))
	}
}

// in is the object's identity in a cluster to which a sync applies it, which gives it
// a namespace where it has none.
func (f *facts) in(sync *synced) string {
	if sync.forced {
		if parts := strings.Split(f.identity, "|"); len(parts) == 4 {
			parts[2] = sync.namespace
			return strings.Join(parts, "|")
		}
	}
	return strings.Replace(f.identity, "||", "|"+sync.namespace+"|", 1)
}

// serves is equal for ExecutorPools that would serve one hub pool.
func (h *half) serves() string { return HubAddress(h.hubURL) + "|" + h.hubPool }
