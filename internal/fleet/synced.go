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

// synced is what a PoolSync applies.
type synced struct {
	// path is cleaned, and relative to the repository's root.
	path string
	// source is equal for PoolSyncs that read one repository.
	source string
	// url of the repository; empty where a source of Flux tells it.
	url string
	// namespace of what has none of its own.
	namespace string
}

func syncOf(obj *unstructured.Unstructured) *synced {
	where, _, _ := unstructured.NestedString(obj.Object, "spec", "path")
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
	return &synced{path: WithinRepository(where), source: string(source), url: address, namespace: obj.GetNamespace()}
}

// keepSyncs keeps the PoolSyncs of a root that has several, where they are of one
// cluster. It keeps the objects of every root too, as far as a PoolSync applies
// them. Of a root that is applied in several ways the first counts.
func (r *rootChecker) keepSyncs() {
	if _, again := r.applied[r.path]; again {
		return
	}
	var syncs, objects []*facts
	for _, f := range r.seen {
		switch {
		case f.sync != nil:
			syncs = append(syncs, f)
		case f.half != nil && !f.half.executor:
			// HubPools are the hub's to read.
			continue
		}
		objects = append(objects, f)
	}
	inOrder(objects)
	if len(syncs) > 1 && r.together {
		inOrder(syncs)
		r.syncs = append(r.syncs, syncs)
	}
	if r.applied == nil {
		r.applied = map[string][]*facts{}
	}
	r.applied[r.path] = objects
}

func inOrder(objects []*facts) {
	slices.SortFunc(objects, func(a, b *facts) int { return cmp.Compare(a.subject, b.subject) })
}

// maxSyncRoots bounds how many paths are rendered only because a PoolSync names
// them: bases that are somebody's root as well.
const maxSyncRoots = 50

// twice finds what two PoolSyncs of one cluster apply, and the hub pools that
// they serve twice. A nil builder looks at what was rendered already.
func (c *checker) twice(ctx context.Context, b *builder) error {
	extra := 0
	for _, syncs := range c.syncs {
		for _, sync := range syncs {
			if _, ok := c.applied[sync.sync.path]; ok || b == nil || extra == maxSyncRoots {
				continue
			}
			extra++
			if err := c.renderFor(ctx, b, sync.sync.path); err != nil {
				return err
			}
		}
		for i, second := range syncs {
			for _, first := range syncs[:i] {
				if first.sync.source == second.sync.source {
					c.compareSyncs(first, second)
				}
			}
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
	c.applied[name] = nil
	if err != nil {
		return nil //nolint:nilerr // see above
	}
	for i := range out.objects {
		if o := &out.objects[i]; !isKind(o.Object, v1alpha1.HubPoolKind) {
			c.applied[name] = append(c.applied[name], &facts{identity: identity(o.Object), object: describe(o.Object), file: o.File, line: o.Line})
		}
	}
	return nil
}

func (c *checker) compareSyncs(first, second *facts) {
	applied, serving := map[string]bool{}, map[string]*facts{}
	for _, f := range c.applied[first.sync.path] {
		applied[f.in(first.sync.namespace)] = true
		if f.half != nil && !f.half.unsure {
			serving[f.half.serves()] = f
		}
	}
	var both []*facts
	for _, f := range c.applied[second.sync.path] {
		if applied[f.in(second.sync.namespace)] {
			both = append(both, f)
			continue
		}
		if f.half == nil || f.half.unsure {
			continue
		}
		if other, ok := serving[f.half.serves()]; ok {
			c.find(f.subject, f.problem(RuleDuplicatePool, f.half.field, fmt.Sprintf("hub pool %s is served by %s already, which %s applies to the same cluster", f.half.hubPool, other.object, first.object)))
		}
	}
	if len(both) == 0 {
		return
	}
	more := ""
	if len(both) > 1 {
		more = fmt.Sprintf(" and %d more", len(both)-1)
	}
	c.find(second.subject, second.problem(RuleObjectInTwoSyncs, "spec.path", fmt.Sprintf("%s%s is applied by %s (%s:%d) too", both[0].object, more, first.object, first.file, first.line)))
}

// in is the object's identity in a cluster whose PoolSync gives it a namespace
// where it has none.
func (f *facts) in(namespace string) string {
	return strings.Replace(f.identity, "||", "|"+namespace+"|", 1)
}

// serves is equal for ExecutorPools that would serve one hub pool.
func (h *half) serves() string { return HubAddress(h.hubURL) + "|" + h.hubPool }
