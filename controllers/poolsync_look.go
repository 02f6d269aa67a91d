package controllers

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// requestsAtOnce of one PoolSync to the API server.
const requestsAtOnce = 8

// sight is one object as Git wants it and as the cluster has it.
type sight struct {
	id   objectID
	want *unstructured.Unstructured
	// before is what was applied last; nil for what is new, or not known.
	before *unstructured.Unstructured
	// have is what the cluster has; nil where it has none.
	have *unstructured.Unstructured
	// ignore are JSON pointers to fields that are neither compared nor applied.
	ignore []string
	// diffs are between want and have; edited are between before and have: what
	// somebody changed in the cluster.
	diffs, edited []fleet.FieldDiff
	// unmarked: labels or annotations of want are missing.
	unmarked bool
	// applied says that have has become want in this pass.
	applied bool
}

// changed says whether Git wants something else than was applied.
func (s *sight) changed() bool {
	return s.before == nil || s.before != s.want && !reflect.DeepEqual(s.before.Object, s.want.Object)
}

// leaving says that the object is being deleted: it cannot be brought back
// before it is gone.
func (s *sight) leaving() bool { return s.have != nil && s.have.GetDeletionTimestamp() != nil }

// look compares what Git wants with what the cluster has. ExecutorPools come from
// the cache, which costs no request; one that seems to differ is read again with
// its managedFields, since a cache may lag. Other kinds are not watched, so they
// are looked at only in a full pass.
func (r *poolSyncReconciler) look(ctx context.Context, p *syncPass) *stageError {
	others := client.Reader(nil)
	if p.full {
		applier, err := r.appliers.of(p.sync)
		if err != nil {
			return transient(v1alpha1.ReasonApplyFailed, err)
		}
		others = applier.Client()
	}
	p.sights = make([]*sight, 0, len(p.target.objects))
	mine := idsOf(p.status.Inventory)
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(requestsAtOnce)
	for _, want := range p.target.objects {
		s := &sight{id: idOf(want), want: want, ignore: fleet.IgnoredPaths(p.sync.Spec.Drift.Ignore, want)}
		if p.memory.applied != nil && mine[s.id] {
			s.before = p.memory.applied.byID[s.id]
		}
		switch {
		case s.id.isPool():
			group.Go(func() error { return r.lookAtPool(inner, s) })
		case others != nil:
			group.Go(func() error { return s.read(inner, others) })
		default:
			continue
		}
		p.sights = append(p.sights, s)
	}
	if err := group.Wait(); err != nil {
		return transient(v1alpha1.ReasonApplyFailed, err)
	}
	if err := r.yield(ctx, p); err != nil {
		return transient(v1alpha1.ReasonApplyFailed, err)
	}
	return nil
}

func (r *poolSyncReconciler) lookAtPool(ctx context.Context, s *sight) error {
	if err := s.read(ctx, r.pools); err != nil {
		return err
	}
	if s.have != nil && !s.changed() && len(s.diffs) == 0 && !s.unmarked && !s.leaving() {
		return nil
	}
	return s.read(ctx, r.live)
}

// read fills in what the cluster has.
func (s *sight) read(ctx context.Context, from client.Reader) error {
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(s.want.GroupVersionKind())
	err := from.Get(ctx, client.ObjectKeyFromObject(s.want), have)
	switch {
	case apierrors.IsNotFound(err):
		s.have = nil
	case err != nil:
		return fmt.Errorf("read %s: %w", s.id, err)
	default:
		s.have = have
	}
	s.compare()
	return nil
}

func (s *sight) compare() {
	have := s.have
	if s.leaving() {
		have = nil
	}
	s.diffs, s.edited = fleet.CompareSpecs(s.want, have, s.ignore), nil
	switch {
	case s.before == nil:
	case s.changed():
		s.edited = among(fleet.CompareSpecs(s.before, have, s.ignore), s.diffs)
	default:
		s.edited = s.diffs
	}
	s.unmarked = have != nil && (!contains(have.GetLabels(), s.want.GetLabels()) || !contains(have.GetAnnotations(), s.want.GetAnnotations()))
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
	if s.leaving() {
		return false
	}
	if s.changed() {
		return true
	}
	return mode != v1alpha1.DriftReport && (len(s.diffs) > 0 || s.unmarked)
}
