package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fluxcd/pkg/ssa"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
)

// changes counts what a pass did to the cluster.
type changes struct{ created, configured, deleted int }

func (c changes) any() bool { return c != changes{} }

func (c changes) String() string {
	return fmt.Sprintf("%d created, %d changed, %d deleted", c.created, c.configured, c.deleted)
}

// appliers are the accounts that objects are applied as.
type appliers struct {
	config *rest.Config
	mapper meta.RESTMapper
	scheme *runtime.Scheme

	mu    sync.Mutex                      // guards known
	known map[string]*ssa.ResourceManager // user that is impersonated, "" for none → manager
}

func newAppliers(config *rest.Config, mapper meta.RESTMapper, scheme *runtime.Scheme) *appliers {
	return &appliers{config: config, mapper: mapper, scheme: scheme, known: map[string]*ssa.ResourceManager{}}
}

// of returns what applies a PoolSync's objects: its ServiceAccount, or the
// controller itself.
func (a *appliers) of(sync *v1alpha1.PoolSync) (*ssa.ResourceManager, error) {
	user := userOf(sync)
	a.mu.Lock()
	defer a.mu.Unlock()
	if manager, ok := a.known[user]; ok {
		return manager, nil
	}
	direct, err := client.New(a.configOf(user), client.Options{Scheme: a.scheme, Mapper: a.mapper})
	if err != nil {
		return nil, fmt.Errorf("make a client for %q: %w", user, err)
	}
	manager := ssa.NewResourceManager(direct, nil, ssa.Owner{Field: v1alpha1.FieldManagerPoolSync, Group: ownerGroup})
	manager.SetConcurrency(requestsAtOnce)
	a.known[user] = manager
	return manager, nil
}

// configOf is a connection as a user that is impersonated, empty for none.
func (a *appliers) configOf(user string) *rest.Config {
	config := rest.CopyConfig(a.config)
	config.Impersonate.UserName = user
	return config
}

// userOf is who applies the objects of a PoolSync, empty for the controller itself.
func userOf(sync *v1alpha1.PoolSync) string {
	if account := sync.Spec.ServiceAccountName; account != "" {
		return "system:serviceaccount:" + sync.Namespace + ":" + account
	}
	return ""
}

// ownerGroup is the prefix of LabelPoolSyncName and LabelPoolSyncNamespace.
const ownerGroup = "poolsync.cloop.dev"

// revisionPointer leads to AnnotationRevision.
var revisionPointer = "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationRevision, "/", "~1")

// apply brings the objects that need it to what Git wants, each by itself: what the
// API server refuses of one keeps no other from being applied.
func (r *poolSyncReconciler) apply(ctx context.Context, p *syncPass) *stageError {
	var due []*sight
	for _, s := range p.sights {
		if r.isDue(p, s) {
			due = append(due, s)
		}
	}
	var failure error
	if len(due) > 0 {
		var manager *ssa.ResourceManager
		if manager, failure = r.appliers.of(p.sync); failure == nil {
			failure = r.write(ctx, p, manager, due)
		}
	}
	switch m := p.memory; {
	case m.applied == p.target || !p.fresh():
	case failure != nil || len(p.refusals()) > 0:
		m.applied = p.asFarAsApplied()
	default:
		r.metrics.forgetPools(m.applied, p.target)
		m.applied = p.target
		clear(m.contests)
	}
	if failure != nil {
		return transient(v1alpha1.ReasonApplyFailed, failure)
	}
	return nil
}

// asFarAsApplied is what the cluster is held to when not all of a build could be
// applied: of each object what was applied of it last.
func (p *syncPass) asFarAsApplied() *build {
	held := &build{byID: map[objectID]*wanted{}}
	if before := p.memory.applied; before != nil {
		held.commit, held.path, held.revision, held.variables, held.hubPools = before.commit, before.path, before.revision, before.variables, before.hubPools
		maps.Copy(held.byID, before.byID)
	}
	for _, s := range p.sights {
		if s.applied || s.observed {
			held.byID[s.id] = s.want
		}
	}
	held.objects = slices.Collect(maps.Values(held.byID))
	for _, object := range held.objects {
		if object.observed {
			held.observed++
		}
	}
	return held
}

// isDue says whether an object is written in this pass. What the API server has
// refused is offered again when Git is asked, not whenever something else moves.
func (r *poolSyncReconciler) isDue(p *syncPass, s *sight) bool {
	if p.forced && !s.leaving() && !s.observed {
		return true
	}
	o := p.memory.object(s.id)
	if o.refused != nil && o.refusedWant == s.want && !p.full {
		s.refused = o.refused
		return false
	}
	return s.toApply(p.sync.Spec.Drift.Mode) && (s.changed() || r.mayCorrect(p, s))
}

// maxRefusals bounds how many objects a condition names that were refused.
const maxRefusals = 10

// refusals are the API server's words on what it does not take, sorted.
func (p *syncPass) refusals() []string {
	var refused []string
	for _, s := range p.sights {
		if s.refused != nil {
			refused = append(refused, s.refused.Error())
		}
	}
	slices.Sort(refused)
	return refused
}

// shortfall says what of the build is not applied, and why: what the check holds
// back, and what the API server refuses; nil: all is applied.
func (p *syncPass) shortfall() *stageError {
	refused, held := p.refusals(), p.held()
	if len(refused)+len(held) == 0 {
		return nil
	}
	kept := ""
	if p.kept > 0 {
		kept = fmt.Sprintf("; %s that Git lacks %s kept until what is new is applied", count.Of(p.kept, "object"), count.Is(p.kept))
	}
	message := fmt.Sprintf("applied %d of %s of %s%s", max(0, p.target.total()-len(held)-len(refused)), count.Of(p.target.total(), "object"), p.target.revision, kept)
	if len(refused) > 0 {
		message += "; the API server refuses: " + strings.Join(count.First(refused, maxRefusals), "; ")
	}
	mayPass, remedy := p.refusalsMayPass()
	if len(held) == 0 {
		return &stageError{reason: v1alpha1.ReasonApplyFailed, cause: errors.New(message), stalled: !mayPass, remedy: remedy}
	}
	err := stalled(v1alpha1.ReasonValidationFailed, fmt.Errorf("%s; held back:\n%w", message, fleet.Refusal(p.memory.newest.problems)))
	err.stalled = !mayPass
	return err
}

// What to do about refusals of the API server, where the reason's remedy is not it.
const (
	remedyInvalid = "correct in Git what it says of them, or in the cluster where a policy of its own says it; they are offered again at every interval"
	remedyMixed   = "correct in Git what is invalid, and see to what the others lack, most often a right of the applying account; they are tried again by themselves"
	remedyTold    = "it is tried again by itself"
)

// refusalsMayPass says whether the API server may take later what it has refused, and
// what is to be done; empty: what the reason says. Of an object that is invalid it says
// the same until somebody changes that.
func (p *syncPass) refusalsMayPass() (mayPass bool, remedy string) {
	var invalid, told, others int
	for _, s := range p.sights {
		var waits *waitsError
		var drops *droppedError
		var lacks *placeError
		switch {
		case s.refused == nil, errors.As(s.refused, &waits):
			// What it waits for is counted.
		case apierrors.IsInvalid(s.refused):
			invalid++
		case errors.As(s.refused, &drops), errors.As(s.refused, &lacks):
			told++
		default:
			others++
		}
	}
	switch {
	case invalid > 0 && others > 0:
		return true, remedyMixed
	case others > 0:
		return true, ""
	case told > 0:
		return true, remedyTold
	}
	return false, remedyInvalid
}

// write brings objects to what Git wants, pools last: their runners need the account,
// the quota and the NetworkPolicy that stand beside them. The error is one that says
// nothing about an object, such as an API server that does not answer.
func (r *poolSyncReconciler) write(ctx context.Context, p *syncPass, manager *ssa.ResourceManager, due []*sight) error {
	if err := r.announce(ctx, p); err != nil {
		return err
	}
	w := &writer{client: manager.Client(), live: r.live, revision: p.target.revision, clock: r.clock}
	write := func(ctx context.Context, s *sight) error {
		if len(s.ignore) > 0 {
			return w.writeShared(ctx, manager, p.sync.Spec.Drift.Ignore, s)
		}
		return w.write(ctx, s)
	}
	var pools, beside []*sight
	for _, s := range due {
		if s.id.isPool() {
			pools = append(pools, s)
		} else {
			beside = append(beside, s)
		}
	}
	if err := w.all(ctx, p, beside, write); err != nil {
		return err
	}
	return w.all(ctx, p, p.guarded(pools), write)
}

// waitsError is of a pool that is not applied because of what is missing beside it.
type waitsError struct{ pool, missing objectID }

func (e *waitsError) Error() string {
	return fmt.Sprintf("%s: waits for %s, which was not applied and stands beside it", e.pool, e.missing)
}

// guarded are the pools beside which nothing was refused or held back; the others
// wait for it.
func (p *syncPass) guarded(pools []*sight) []*sight {
	lacking := map[string]objectID{} // namespace → what is missing there
	for _, s := range p.sights {
		if s.refused != nil && !s.id.isPool() {
			lacking[s.id.namespace] = s.id
		}
	}
	for id := range p.held() {
		// No pool can count on what no PoolSync applies.
		if !id.isPool() && fleet.Applicable(schema.GroupVersionKind{Group: id.group, Kind: id.kind}) {
			lacking[id.namespace] = id
		}
	}
	return slices.DeleteFunc(pools, func(s *sight) bool {
		missing, lacks := lacking[s.id.namespace]
		if lacks {
			s.refused = &waitsError{s.id, missing}
		}
		return lacks
	})
}
