package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// objectID tells objects apart, as an API server does within one version.
type objectID struct{ group, kind, namespace, name string }

func idOf(obj *unstructured.Unstructured) objectID {
	gvk := obj.GroupVersionKind()
	return objectID{gvk.Group, gvk.Kind, obj.GetNamespace(), obj.GetName()}
}

func (id objectID) String() string { return id.kind + " " + id.namespace + "/" + id.name }

func (id objectID) isPool() bool {
	return id.group == v1alpha1.Group && id.kind == v1alpha1.ExecutorPoolKind
}

// ofFleet says whether the object is of another kind of cloop.dev, which is watched too,
// in the namespace that is looked after.
func (id objectID) ofFleet() bool {
	return id.group == v1alpha1.Group && (id.kind == v1alpha1.HubPoolKind || id.kind == v1alpha1.PoolSyncKind)
}

// beside says whether the object is none of cloop.dev, and stands beside a pool.
func (id objectID) beside() bool { return id.group != v1alpha1.Group }

// gitOwned says whether Git has the whole spec: what somebody adds is taken away again.
// Of a PoolSync it has not: that somebody suspends one is an operator's act.
func (id objectID) gitOwned() bool {
	return id.isPool() || id.group == v1alpha1.Group && id.kind == v1alpha1.HubPoolKind
}

// build is what a path says at a commit.
type build struct {
	commit, path string
	// revision in Flux's form, as it is recorded.
	revision string
	// variables are the digest of the values that were put in, and closure that of
	// all text that the path is made of; empty: it is not known.
	variables, closure string
	// objects to apply, in no order, with everything but the revision.
	objects []*wanted
	// byID: id → the object.
	byID map[objectID]*wanted
	// hubPools are left to the hub; observed are among objects and only compared.
	hubPools, observed int
	// held are the objects that are not applied for problems of theirs; they are not
	// among objects.
	held     map[objectID]bool
	problems []schemas.Problem
	// refusal says why none of it is applied; broken are then the objects with
	// a problem of their own.
	refusal *stageError
	broken  map[objectID]bool
	// of is the build of which this one has all but what that holds back; nil: this
	// one is as it was built.
	of *build
}

// over is a build with, in place of the objects that it holds back, what was
// applied of them last.
func (b *build) over(applied *build) *build {
	both := *b
	both.of, both.objects, both.byID = b, slices.Clone(b.objects), maps.Clone(b.byID)
	for id := range b.held {
		if applied == nil || applied.byID[id] == nil {
			continue
		}
		both.byID[id] = applied.byID[id]
		both.objects = append(both.objects, applied.byID[id])
	}
	return &both
}

// total counts the objects of a build, those that are held back included.
func (b *build) total() int {
	if b.of != nil {
		b = b.of
	}
	return len(b.objects) + len(b.held)
}

// variables are what spec.substitute says, with the objects that it names as they
// are now: a changed value is built again, as a changed commit is.
func (r *poolSyncReconciler) variables(ctx context.Context, sync *v1alpha1.PoolSync) (*fleet.Variables, error) {
	return fleet.VariablesOf(sync.Spec.Substitute, func(reference v1alpha1.SubstituteReference) (map[string]string, error) {
		object := &corev1.ConfigMap{}
		err := r.live.Get(ctx, types.NamespacedName{Namespace: sync.Namespace, Name: reference.Name}, object)
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		if err == nil && object.Data == nil {
			object.Data = map[string]string{}
		}
		return object.Data, err
	})
}

// build makes newest what Git says at the pass's commit. What was built before
// is not built again, a refusal neither: it would come out the same.
func (r *poolSyncReconciler) build(ctx context.Context, p *syncPass) *stageError {
	m := p.memory
	variables, failure := r.variables(ctx, p.sync)
	if failure != nil {
		return transient(v1alpha1.ReasonBuildFailed, failure)
	}
	if m.newest != nil && p.unchanged(m.newest) && m.newest.path == p.sync.Spec.Path && m.newest.variables == variables.Digest() {
		return m.newest.refusal
	}
	closure, failure := r.closure(ctx, p)
	if failure != nil {
		return transient(sourceReason(p.sync), failure)
	}
	if same := m.newest; same != nil && closure != "" && same.closure == closure && same.path == p.sync.Spec.Path && same.variables == variables.Digest() {
		// The commit is about something else.
		b := *same
		b.commit, b.revision = p.commit, p.status.LastAttemptedRevision
		m.newest = &b
		return b.refusal
	}
	if m.builder == nil {
		m.builder = fleet.NewBuilder(r.validator)
	}
	b, err := r.buildAt(ctx, p, m.builder, p.commit, p.sync.Spec.Path, p.status.LastAttemptedRevision, variables)
	if err != nil {
		return err
	}
	b.closure = closure
	m.newest = b
	return b.refusal
}

// buildAt renders a path at a commit. A refusal is the build's, an error may pass.
func (r *poolSyncReconciler) buildAt(ctx context.Context, p *syncPass, builder *fleet.Builder, commit, path, revision string, variables *fleet.Variables) (*build, *stageError) {
	b := &build{commit: commit, path: path, revision: revision, variables: variables.Digest(), byID: map[objectID]*wanted{}}
	// By its hash: the branch may have moved since it was resolved.
	tree, err := r.checkout(ctx, p, commit)
	switch {
	case errors.Is(err, fleet.ErrBuild):
		b.refusal = stalled(v1alpha1.ReasonBuildFailed, err)
		return b, nil
	case err != nil:
		return nil, transient(sourceReason(p.sync), err)
	}
	defer func() {
		if err := tree.Close(); err != nil {
			logf.FromContext(ctx).Error(err, "leaves a tree behind", "dir", tree.Dir)
		}
	}()
	p.built = true
	free, err := r.builds.take(ctx)
	if err != nil {
		return nil, transient(v1alpha1.ReasonBuildFailed, fmt.Errorf("wait for other builds: %w", err))
	}
	defer free()
	b.refusal = r.render(ctx, p.sync, builder, tree.Dir, b, variables)
	if b.refusal != nil && !b.refusal.stalled {
		return nil, b.refusal
	}
	return b, nil
}

// slots bound how many do something at once: syncsAtOnce.
type slots struct {
	once sync.Once
	free chan struct{}
}

// take waits for a slot, which is given back with the function.
func (s *slots) take(ctx context.Context) (back func(), err error) {
	s.once.Do(func() { s.free = make(chan struct{}, syncsAtOnce) })
	select {
	case s.free <- struct{}{}:
		return func() { <-s.free }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// recall makes applied what the status says was applied last, in a process that
// does not remember it: the cluster is held to that while what Git says now
// cannot be read or is refused, and what somebody changed since shows. It does
// without where the commit cannot be had any more.
func (r *poolSyncReconciler) recall(ctx context.Context, p *syncPass) {
	m, revision, path := p.memory, p.status.LastAppliedRevision, p.status.LastAppliedPath
	_, commit := fleet.Of(revision)
	if m.applied != nil || commit == "" && p.sync.Spec.SourceRef == nil || path == "" {
		return
	}
	if m.newest != nil && m.newest.revision == revision && m.newest.path == path {
		if m.newest.refusal == nil {
			m.applied = m.newest
		}
		return
	}
	if p.sync.Spec.SourceRef != nil {
		return // a source of Flux offers its newest artifact alone
	}
	b, err := r.rebuild(ctx, p, commit, path, revision)
	if err != nil {
		logf.FromContext(ctx).V(1).Info("does not recall what was applied", "revision", revision, "path", path, "error", err.message())
		return
	}
	m.applied = b
}

// rebuild renders what was accepted before.
func (r *poolSyncReconciler) rebuild(ctx context.Context, p *syncPass, commit, path, revision string) (*build, *stageError) {
	if p.memory.git == nil {
		// The pass was over before it came to Git.
		if _, err := r.openGit(ctx, p); err != nil {
			return nil, transient(v1alpha1.ReasonSourceUnavailable, err)
		}
	}
	variables, err := r.variables(ctx, p.sync)
	if err != nil {
		return nil, transient(v1alpha1.ReasonBuildFailed, err)
	}
	// Of what was before, nothing needs to be remembered.
	b, failure := r.buildAt(ctx, p, fleet.NewBuilder(r.validator), commit, path, revision, variables)
	if failure != nil {
		return nil, failure
	}
	return b, b.refusal
}

// render fills a build. An object that `cloop fleet check` finds an error in, or that is
// not ours to apply, is held back. The build is refused whole by an error that is no
// single object's, and where nothing is left.
func (r *poolSyncReconciler) render(ctx context.Context, sync *v1alpha1.PoolSync, builder *fleet.Builder, dir string, b *build, variables *fleet.Variables) *stageError {
	built, err := builder.Build(ctx, dir, b.path, variables)
	if err != nil {
		return buildFailure(ctx, err)
	}
	b.problems, b.held = built.Errors(), map[objectID]bool{}
	refused := len(b.problems) > 0 && (len(built.Refused) > 0 || !anySound(built))
	for i := range built.Objects {
		rendered := &built.Objects[i]
		if held := built.HeldBack[fleet.Identity(rendered.Object)]; len(held) > 0 && !refused {
			b.held[idIn(sync, rendered.Object)] = true
		} else if err := b.add(sync, rendered); err != nil {
			return stalled(v1alpha1.ReasonBuildFailed, err)
		}
	}
	if refused {
		b.markBroken(b.problems)
		return stalled(v1alpha1.ReasonValidationFailed, fleet.Refusal(b.problems))
	}
	if len(b.objects) == 0 {
		return stalled(v1alpha1.ReasonEmptyBuild, fmt.Errorf("%s has nothing to apply", b.path))
	}
	return nil
}

// anySound says whether there is an object to apply that is not held back.
func anySound(built *fleet.Built) bool {
	return slices.ContainsFunc(built.Objects, func(rendered fleet.Rendered) bool {
		return !fleet.HubReads(rendered.Object) && len(built.HeldBack[fleet.Identity(rendered.Object)]) == 0
	})
}

func buildFailure(ctx context.Context, err error) *stageError {
	switch {
	case ctx.Err() != nil:
		return transient(v1alpha1.ReasonBuildFailed, err)
	case errors.Is(err, fleet.ErrPathNotFound):
		return stalled(v1alpha1.ReasonPathNotFound, err)
	default:
		return stalled(v1alpha1.ReasonBuildFailed, err)
	}
}

// add makes a rendered object ours. What the hub reads from Git stays the hub's.
func (b *build) add(sync *v1alpha1.PoolSync, rendered *fleet.Rendered) error {
	if fleet.HubReads(rendered.Object) {
		b.hubPools++
		return nil
	}
	object, err := wantedOf(ours(sync, rendered))
	if err != nil {
		return err
	}
	if object.observed {
		b.observed++
	}
	b.objects = append(b.objects, object)
	b.byID[object.id] = object
	return nil
}

// idIn is the object's id where the PoolSync applies it: in its own namespace, if
// the object names none.
func idIn(sync *v1alpha1.PoolSync, obj *unstructured.Unstructured) objectID {
	id := idOf(obj)
	if id.namespace == "" {
		id.namespace = sync.Namespace
	}
	return id
}

func setAnnotation(obj *unstructured.Unstructured, key, value string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[key] = value
	obj.SetAnnotations(annotations)
}

// markBroken notes the objects that problems name, by the words of a problem:
// "Kind namespace/name", without a namespace where the document has none.
func (b *build) markBroken(problems []schemas.Problem) {
	named := map[string]bool{}
	for _, problem := range problems {
		named[problem.Object] = true
	}
	b.broken = map[objectID]bool{}
	for id := range b.byID {
		if named[id.String()] || named[id.kind+" "+id.name] {
			b.broken[id] = true
		}
	}
}
