package controllers

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// requestsAtOnce of one PoolSync to the API server.
const requestsAtOnce = 16

// sight is one object as Git wants it and as the cluster has it.
type sight struct {
	id   objectID
	want *wanted
	// before is what was applied last; nil for what is new, or not known.
	before *wanted
	// have is what the cluster has; nil where it has none. It may be the cache's
	// own and is only read.
	have *unstructured.Unstructured
	// observed: it is compared, and nothing else.
	observed bool
	// ignore are JSON pointers to fields that are neither compared nor applied.
	ignore []string
	// uncompared are those, and what is an operator's.
	uncompared []string
	// bears are differences that an accepted write left: the cluster's own rules
	// have the last word there.
	bears []fleet.FieldDiff
	// quiet: have is as before says. Nothing else was compared.
	quiet bool
	// diffs are between want and have; edited are between before and have: what
	// somebody changed in the cluster.
	diffs, edited []fleet.FieldDiff
	// unmarked: labels or annotations of want are missing.
	unmarked bool
	// applied says that have has become want in this pass.
	applied bool
	// refused is why the API server did not take it.
	refused error
	// again is when it is corrected that somebody else keeps changing; zero: it is
	// not put off.
	again time.Time
}

// objectMemory is what the process remembers of one object of a PoolSync.
type objectMemory struct {
	// quiet is the resourceVersion at which the cluster had what was applied.
	quiet string
	// behind is the resourceVersion before the controller's last write: while the
	// cache shows that, it lags.
	behind string
	// bears are differences that an accepted write left; learned says that it is known
	// which there are.
	bears   []fleet.FieldDiff
	learned bool
	// refused is why the API server did not take refusedWant.
	refused     error
	refusedWant *wanted
}

// versionOf is an object's resourceVersion, empty for what is not there.
func versionOf(object *unstructured.Unstructured) string {
	if object == nil {
		return ""
	}
	return object.GetResourceVersion()
}

// object is what is remembered of an object.
func (m *syncMemory) object(id objectID) *objectMemory {
	o := m.objects[id]
	if o == nil {
		if m.objects == nil {
			m.objects = map[objectID]*objectMemory{}
		}
		o = &objectMemory{}
		m.objects[id] = o
	}
	return o
}

// refuses says whether the API server has refused what is wanted of an object.
func (m *syncMemory) refuses(want *wanted) bool {
	o := m.objects[want.id]
	return o != nil && o.refused != nil && o.refusedWant == want
}

// changed says whether Git wants something else than was applied.
func (s *sight) changed() bool {
	return !s.before.same(s.want)
}

// leaving says that the object is being deleted: it cannot be brought back
// before it is gone.
func (s *sight) leaving() bool { return s.have != nil && s.have.GetDeletionTimestamp() != nil }

// whole says whether all is looked at, watched or not.
func (p *syncPass) whole() bool { return p.full || p.memory.applied != p.target }

// lookAt looks, and keeps why that failed until all is looked at once more: a pass that
// trusts its watches finds nothing wrong where an account may read nothing any more.
func (r *poolSyncReconciler) lookAt(ctx context.Context, p *syncPass) *stageError {
	whole := p.whole()
	err := r.look(ctx, p)
	if whole {
		p.memory.unread = err
	}
	if err == nil {
		p.fail(p.memory.unread) // what can be put right is, all the same
	}
	return err
}

// look compares what Git wants with what the cluster has. ExecutorPools come from
// the cache, which costs no request; one that somebody seems to have edited is read
// again with its managedFields, which say who. So is anything else of which a watch shows
// that it is not as it was applied. What is not watched, since nobody may, is looked at
// only in a full pass, while not all of the target is applied, and as long as one is
// refused: a pass that left those out would take the rest for all there is.
func (r *poolSyncReconciler) look(ctx context.Context, p *syncPass) *stageError {
	applier, err := r.appliers.of(p.sync)
	if err != nil {
		return transient(v1alpha1.ReasonApplyFailed, err)
	}
	whole := p.whole()
	p.memory.attend(p)
	r.sides.attend(ctx, p)
	p.sights = make([]*sight, 0, len(p.target.objects))
	cached := r.cachedPools()
	seen := cachedVersions{r.client, map[objectID]map[string]string{}}
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(requestsAtOnce)
	for _, want := range p.target.objects {
		s := p.sight(want)
		switch {
		case s.id.isPool():
			if s.have, err = cached.get(ctx, s.id); err != nil {
				return transient(v1alpha1.ReasonApplyFailed, err)
			}
			o := p.memory.object(s.id)
			s.compareQuick(o)
			if s.needsManagers() {
				group.Go(func() error {
					if err := s.readAgain(inner, r.live); err != nil {
						return err
					}
					s.learn(inner, applier.Client(), o)
					return nil
				})
			}
		case whole || p.memory.refuses(want):
			group.Go(func() error { return s.readAgain(inner, applier.Client()) })
		default:
			as, watched := r.asApplied(ctx, p, seen, s)
			if !watched {
				continue
			}
			if s.quiet = as; !as {
				group.Go(func() error { return s.readAgain(inner, applier.Client()) })
			}
		}
		p.sights = append(p.sights, s)
	}
	if err = group.Wait(); err != nil {
		return transient(v1alpha1.ReasonApplyFailed, err)
	}
	for _, s := range p.sights {
		s.note(p.memory.object(s.id))
	}
	r.observers.note(p)
	if err := r.yield(ctx, p); err != nil {
		return transient(v1alpha1.ReasonApplyFailed, err)
	}
	return nil
}

// cachedPools reads ExecutorPools from the cache a namespace at a time: asking it for
// each of a thousand takes as long as all else that a pass without news does.
type cachedPools struct {
	from client.Reader
	// known: namespace → name → the cache's own, which is only read.
	known map[string]map[string]*unstructured.Unstructured
}

func (r *poolSyncReconciler) cachedPools() cachedPools {
	return cachedPools{r.pools, map[string]map[string]*unstructured.Unstructured{}}
}

// get returns what the cluster has, nil where it has none.
func (c *cachedPools) get(ctx context.Context, id objectID) (*unstructured.Unstructured, error) {
	pools, ok := c.known[id.namespace]
	if !ok {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.ExecutorPoolKind + "List"))
		if err := c.from.List(ctx, list, client.InNamespace(id.namespace)); err != nil {
			return nil, fmt.Errorf("read the ExecutorPools of namespace %s: %w", id.namespace, err)
		}
		pools = make(map[string]*unstructured.Unstructured, len(list.Items))
		for i := range list.Items {
			pools[list.Items[i].GetName()] = &list.Items[i]
		}
		c.known[id.namespace] = pools
	}
	return pools[id.name], nil
}

// asApplied says of what is no pool that a watch shows it to be as it was applied;
// watched is false where such are not watched.
func (r *poolSyncReconciler) asApplied(ctx context.Context, p *syncPass, seen cachedVersions, s *sight) (as, watched bool) {
	o := p.memory.object(s.id)
	if !s.id.ofFleet() {
		return r.sides.asApplied(p.sync, s, o)
	}
	version, watched := seen.get(ctx, s.id)
	return watched && s.asApplied(o, version), watched
}

// cachedVersions reads HubPools and PoolSyncs from the cache, a namespace at a time.
type cachedVersions struct {
	from client.Reader
	// known: kind and namespace → name → resourceVersion; nil: they are not watched there.
	known map[objectID]map[string]string
}

// get is the resourceVersion that the cache has of an object, empty where it has none;
// false where such are not watched.
func (c *cachedVersions) get(ctx context.Context, id objectID) (version string, watched bool) {
	key := objectID{kind: id.kind, namespace: id.namespace}
	versions, ok := c.known[key]
	if !ok {
		versions = c.read(ctx, key)
		c.known[key] = versions
	}
	return versions[id.name], versions != nil
}

func (c *cachedVersions) read(ctx context.Context, key objectID) map[string]string {
	var list client.ObjectList = &v1alpha1.HubPoolList{}
	if key.kind == v1alpha1.PoolSyncKind {
		list = &v1alpha1.PoolSyncList{}
	}
	// Nothing of them is kept but two texts.
	if err := c.from.List(ctx, list, client.InNamespace(key.namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil // not of this cache
	}
	versions := map[string]string{}
	_ = apimeta.EachListItem(list, func(item runtime.Object) error {
		if object, ok := item.(client.Object); ok {
			versions[object.GetName()] = object.GetResourceVersion()
		}
		return nil
	})
	return versions
}

// attend drops what is remembered of objects that are not wanted any more, and all
// comparisons where the rules for them may have changed.
func (m *syncMemory) attend(p *syncPass) {
	renewed := m.comparedAt != p.sync.Generation
	m.comparedAt = p.sync.Generation
	for id, o := range m.objects {
		switch {
		case p.target.byID[id] == nil:
			delete(m.objects, id)
		case renewed:
			o.quiet, o.bears, o.learned = "", nil, false
		}
	}
	for id := range m.contests {
		if p.target.byID[id] == nil {
			delete(m.contests, id)
		}
	}
}

// sight begins to look at an object.
func (p *syncPass) sight(want *wanted) *sight {
	s := &sight{id: want.id, want: want, observed: want.observed, ignore: want.ignored(p.sync.Spec.Drift.Ignore)}
	s.uncompared = slices.Concat(s.ignore, want.operators)
	s.bears = p.memory.object(s.id).bears
	if p.inventory == nil {
		p.inventory = idsOf(p.status.Inventory)
	}
	if p.memory.applied != nil && p.inventory[s.id] && !s.observed {
		s.before = p.memory.applied.byID[s.id]
	}
	return s
}

// compareQuick compares, unless the object is known to be as it was applied, or
// the cache has not seen the last write yet.
func (s *sight) compareQuick(o *objectMemory) {
	version := versionOf(s.have)
	if s.before != nil && version != "" && (version == o.quiet || version == o.behind) && !s.leaving() {
		s.quiet = true
		return
	}
	s.compare()
}

// asApplied says of an object of which the cache shows a version that it is as it was
// applied, or that the cache has not seen the last write yet.
func (s *sight) asApplied(o *objectMemory, version string) bool {
	return s.before != nil && !s.changed() && version != "" && (version == o.quiet || version == o.behind)
}

// note keeps what the look has found for the next one.
func (s *sight) note(o *objectMemory) {
	if s.quiet {
		return
	}
	o.quiet, o.behind = "", ""
	if s.have != nil && !s.leaving() && s.before != nil && !s.changed() && len(s.diffs) == 0 && !s.unmarked {
		o.quiet = versionOf(s.have)
	}
}

// readAgain reads the object where it is sure to be the newest, and compares.
func (s *sight) readAgain(ctx context.Context, from client.Reader) error {
	if err := s.read(ctx, from); err != nil {
		return err
	}
	s.compare()
	return nil
}

// learn finds out what of a difference the cluster's own admission makes, where no
// write of this process has told: it would be taken for somebody's edit, and where
// drift is only reported for ever. Nothing is changed.
func (s *sight) learn(ctx context.Context, c client.Client, o *objectMemory) {
	if o.learned || len(s.edited) == 0 || s.present() == nil {
		return
	}
	o.learned = true
	object := s.want.named()
	err := c.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, s.want.text), client.ForceOwnership, client.FieldOwner(v1alpha1.FieldManagerPoolSync), client.DryRunAll)
	if err != nil {
		return // a write will tell; some webhooks cannot be asked without one
	}
	for _, diff := range fleet.CompareSpecs(s.want.object(), object, s.uncompared) {
		// What is dropped is said when it is written, and what somebody else owns is
		// theirs: an apply leaves that alone.
		if diff.Have != nil && diff.Manager == "" {
			s.bears = append(s.bears, diff)
		}
	}
	o.bears = s.bears
	s.compare()
}

// read fills in what the cluster has.
func (s *sight) read(ctx context.Context, from client.Reader) error {
	have := s.want.named()
	err := from.Get(ctx, client.ObjectKeyFromObject(have), have)
	switch {
	case apierrors.IsNotFound(err):
		s.have = nil
	case err != nil:
		return fmt.Errorf("read %s: %w", s.id, err)
	default:
		s.have = have
	}
	return nil
}

// needsManagers says whether it matters who wrote what: to say who edited, and to
// leave alone what another applier owns of what is ignored.
func (s *sight) needsManagers() bool {
	return s.observed && len(s.diffs) > 0 || len(s.edited) > 0 || s.unmarked && !s.changed() || len(s.ignore) > 0 && s.have != nil && (s.changed() || len(s.diffs) > 0 || s.unmarked)
}

// present is what the cluster has and will keep.
func (s *sight) present() *unstructured.Unstructured {
	if s.leaving() {
		return nil
	}
	return s.have
}

func (s *sight) compare() {
	want, have := s.want.object(), s.present()
	s.diffs, s.edited = s.notBorne(fleet.CompareSpecs(want, have, s.uncompared)), nil
	switch {
	case s.observed:
		return
	case s.before == nil:
	case s.changed():
		s.edited = s.notBorne(among(fleet.CompareSpecs(s.before.object(), have, s.uncompared), s.diffs))
	default:
		s.edited = s.diffs
	}
	s.unmarked = have != nil && (!contains(have.GetLabels(), want.GetLabels()) || !contains(have.GetAnnotations(), want.GetAnnotations()))
}

// awaited are the differences to what Git wants and does not have its way in yet.
func (s *sight) awaited() []fleet.FieldDiff {
	if !s.quiet {
		return s.diffs
	}
	return fleet.CompareSpecs(s.want.object(), s.present(), s.uncompared)
}

// notBorne are the differences that no accepted write has left.
func (s *sight) notBorne(diffs []fleet.FieldDiff) []fleet.FieldDiff {
	if len(s.bears) == 0 {
		return diffs
	}
	return slices.DeleteFunc(diffs, func(d fleet.FieldDiff) bool {
		return slices.ContainsFunc(s.bears, func(b fleet.FieldDiff) bool { return sameDiff(b, d) })
	})
}

// sameDiff says whether two differences are in one field and between the same
// values, whoever wrote them.
func sameDiff(a, b fleet.FieldDiff) bool {
	return a.Path == b.Path && reflect.DeepEqual(a.Want, b.Want) && reflect.DeepEqual(a.Have, b.Have)
}

// among are the differences that touch one of the others: what somebody changed to
// what Git wants now, or a sync that was cut short already has, is no drift.
func among(diffs, others []fleet.FieldDiff) []fleet.FieldDiff {
	return slices.DeleteFunc(diffs, func(d fleet.FieldDiff) bool {
		return !slices.ContainsFunc(others, func(o fleet.FieldDiff) bool { return within(d.Path, o.Path) || within(o.Path, d.Path) })
	})
}

// within says whether a JSON pointer leads to a field or below it.
func within(pointer, field string) bool {
	rest, ok := strings.CutPrefix(pointer, field)
	return ok && (rest == "" || rest[0] == '/')
}

// contains says whether a map has all entries of another.
func contains(all, some map[string]string) bool {
	for key, value := range some {
		if held, ok := all[key]; !ok || held != value {
			return false
		}
	}
	return true
}

// toApply says whether the object is to be applied. Where drift is only reported,
// what Git has not changed stays as somebody made it.
func (s *sight) toApply(mode string) bool {
	if s.leaving() || s.observed {
		return false
	}
	if s.changed() {
		return true
	}
	return mode != v1alpha1.DriftReport && !s.quiet && (len(s.diffs) > 0 || s.unmarked)
}
