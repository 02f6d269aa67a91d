package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/jsondiff"

	"cloop.dev/cloop/apis/v1alpha1"
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
	user := ""
	if account := sync.Spec.ServiceAccountName; account != "" {
		user = "system:serviceaccount:" + sync.Namespace + ":" + account
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if manager, ok := a.known[user]; ok {
		return manager, nil
	}
	config := rest.CopyConfig(a.config)
	config.Impersonate.UserName = user
	direct, err := client.New(config, client.Options{Scheme: a.scheme, Mapper: a.mapper})
	if err != nil {
		return nil, fmt.Errorf("make a client for %q: %w", user, err)
	}
	manager := ssa.NewResourceManager(direct, nil, ssa.Owner{Field: v1alpha1.FieldManagerPoolSync, Group: ownerGroup})
	manager.SetConcurrency(requestsAtOnce)
	a.known[user] = manager
	return manager, nil
}

// ownerGroup is the prefix of LabelPoolSyncName and LabelPoolSyncNamespace.
const ownerGroup = "poolsync.cloop.dev"

// revisionPointer leads to AnnotationRevision.
var revisionPointer = "/metadata/annotations/" + strings.ReplaceAll(v1alpha1.AnnotationRevision, "/", "~1")

// apply brings the objects that need it to what Git wants. The API server is
// asked for its verdict on all of them before the first is written, so that a
// refusal changes nothing.
func (r *poolSyncReconciler) apply(ctx context.Context, p *syncPass) *stageError {
	var due []*sight
	for _, s := range p.sights {
		if s.toApply(p.sync.Spec.Drift.Mode) && (s.changed() || r.mayCorrect(p, s.id)) {
			due = append(due, s)
		}
	}
	if len(due) > 0 {
		manager, err := r.appliers.of(p.sync)
		if err != nil {
			return transient(v1alpha1.ReasonApplyFailed, err)
		}
		if err := r.write(ctx, p, manager, due); err != nil {
			return transient(v1alpha1.ReasonApplyFailed, err)
		}
	}
	if p.fresh() && p.memory.applied != p.target {
		r.metrics.forgetPools(p.memory.applied, p.target)
		p.memory.applied = p.target
		clear(p.memory.contests)
	}
	return nil
}

// mayCorrect says whether it is time to correct an object, and counts it; where
// it is not, the pass comes back when it is.
func (r *poolSyncReconciler) mayCorrect(p *syncPass, id objectID) bool {
	m := p.memory
	if m.contests == nil {
		m.contests = map[objectID]contest{}
	}
	c := m.contests[id]
	at, may := c.enter(r.clock.Now())
	if !may {
		p.comeBack(at)
	}
	m.contests[id] = c
	return may
}

func (r *poolSyncReconciler) write(ctx context.Context, p *syncPass, manager *ssa.ResourceManager, due []*sight) error {
	rules := ignoreRules(p.sync.Spec.Drift.Ignore)
	different, err := differing(ctx, manager, due, rules)
	if err != nil {
		return err
	}
	if len(different) > 0 {
		if err := r.announce(ctx, p); err != nil {
			return err
		}
		objects := make([]*unstructured.Unstructured, len(different))
		for i, s := range different {
			objects[i] = s.payload()
			setAnnotation(objects[i], v1alpha1.AnnotationRevision, p.target.revision)
		}
		options := ssa.DefaultApplyOptions()
		options.DriftIgnoreRules = rules
		set, err := manager.ApplyAll(ctx, objects, options)
		if err != nil {
			return err
		}
		p.changes.count(set)
	}
	return r.removeForeign(ctx, p, manager, due)
}

func (c *changes) count(set *ssa.ChangeSet) {
	for _, entry := range set.Entries {
		switch entry.Action {
		case ssa.CreatedAction:
			c.created++
		case ssa.ConfiguredAction:
			c.configured++
		}
	}
}

// differing are the objects that applying would change in more than the
// revision that they carry: an object keeps the revision that last changed it, so
// that a commit rewrites only what it is about.
func differing(ctx context.Context, manager *ssa.ResourceManager, due []*sight, rules []jsondiff.IgnoreRule) ([]*sight, error) {
	options := ssa.DefaultDiffOptions()
	options.DriftIgnoreRules = append([]jsondiff.IgnoreRule{{Paths: []string{revisionPointer}}}, rules...)
	differs := make([]bool, len(due))
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(requestsAtOnce)
	for i, s := range due {
		group.Go(func() error {
			entry, _, _, err := manager.Diff(inner, s.payload(), options)
			if err != nil {
				return err
			}
			differs[i] = entry.Action == ssa.CreatedAction || entry.Action == ssa.ConfiguredAction
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var found []*sight
	for i, s := range due {
		if differs[i] {
			found = append(found, s)
		}
	}
	return found, nil
}

// payload is what is applied: want, and of what is ignored that which Git does
// not name and nobody else owns. Left out, it would be removed where an earlier
// commit named it.
func (s *sight) payload() *unstructured.Unstructured {
	object := s.want.DeepCopy()
	if s.have == nil {
		return object
	}
	for _, pointer := range s.ignore {
		fields := fieldsOf(pointer)
		if _, named, err := unstructured.NestedFieldNoCopy(object.Object, fields...); named || err != nil {
			continue
		}
		value, held, err := unstructured.NestedFieldCopy(s.have.Object, fields...)
		if !held || err != nil || fleet.FieldManager(s.have, pointer, v1alpha1.FieldManagerPoolSync) != "" {
			continue
		}
		if err := unstructured.SetNestedField(object.Object, value, fields...); err != nil {
			continue // want has no map there, so the field cannot be kept
		}
	}
	return object
}

// fieldsOf splits a JSON pointer.
func fieldsOf(pointer string) []string {
	fields := strings.Split(strings.Trim(pointer, "/"), "/")
	for i, field := range fields {
		fields[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(field)
	}
	return fields
}

// ignoreRules are the PoolSync's rules in the words of the library, whose
// selectors are regular expressions over whole values.
func ignoreRules(rules []v1alpha1.IgnoreRule) []jsondiff.IgnoreRule {
	out := make([]jsondiff.IgnoreRule, len(rules))
	for i, rule := range rules {
		out[i].Paths = rule.Paths
		if t := rule.Target; t != nil {
			out[i].Selector = &jsondiff.Selector{
				Kind: regexp.QuoteMeta(t.Kind), Namespace: regexp.QuoteMeta(t.Namespace), Name: regexp.QuoteMeta(t.Name),
			}
		}
	}
	return out
}

// removeForeign makes ExecutorPools have nothing but what Git says: server-side
// apply leaves a field alone that Git does not name and somebody else set.
func (r *poolSyncReconciler) removeForeign(ctx context.Context, p *syncPass, manager *ssa.ResourceManager, due []*sight) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(requestsAtOnce)
	var mu sync.Mutex // guards p.changes
	for _, s := range due {
		if s.have == nil || !s.id.isPool() {
			s.applied = true
			continue
		}
		group.Go(func() error {
			removed, err := r.removeForeignFields(ctx, manager, s)
			if err != nil {
				return err
			}
			s.applied = true
			if removed {
				mu.Lock()
				p.changes.configured++
				mu.Unlock()
			}
			return nil
		})
	}
	return group.Wait()
}

// restoreAttempts is how often an object is restored that somebody changes at the
// same time.
const restoreAttempts = 5

func (r *poolSyncReconciler) removeForeignFields(ctx context.Context, manager *ssa.ResourceManager, s *sight) (bool, error) {
	for range restoreAttempts {
		have := newPool()
		switch err := r.live.Get(ctx, client.ObjectKeyFromObject(s.want), have); {
		case apierrors.IsNotFound(err):
			return false, nil // the next pass brings it back
		case err != nil:
			return false, fmt.Errorf("read %s: %w", s.id, err)
		}
		diffs := fleet.CompareSpecs(s.want, have, s.ignore)
		if len(diffs) == 0 {
			return false, nil
		}
		patch, err := correction(have, diffs)
		if err != nil {
			return false, err
		}
		version := have.GetResourceVersion()
		err = manager.Client().Patch(ctx, have, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(v1alpha1.FieldManagerPoolSync))
		if err == nil {
			return true, nil
		}
		if changed, failed := r.changedSince(ctx, s, version); failed != nil || !changed {
			return false, fmt.Errorf("restore %s: %w", s.id, err)
		}
	}
	return false, fmt.Errorf("restore %s: somebody changes it as fast as it is restored", s.id)
}

// changedSince says whether an object is another than the one that was compared:
// the API server has no code of its own for a patch whose test fails.
func (r *poolSyncReconciler) changedSince(ctx context.Context, s *sight, version string) (bool, error) {
	now := newPool()
	err := r.live.Get(ctx, client.ObjectKeyFromObject(s.want), now)
	return err == nil && now.GetResourceVersion() != version, err
}

// operation is one operation of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// correction is the patch that makes have what is wanted, if it is still the
// object that was compared. A field that only the cluster has is removed; the
// server fills in its default, where it has one.
func correction(have *unstructured.Unstructured, diffs []fleet.FieldDiff) ([]byte, error) {
	operations := []operation{{"test", "/metadata/resourceVersion", have.GetResourceVersion()}}
	for _, diff := range diffs {
		switch {
		case diff.Want == nil:
			operations = append(operations, operation{Op: "remove", Path: diff.Path})
		case diff.Have == nil:
			operations = append(operations, operation{"add", diff.Path, diff.Want})
		default:
			operations = append(operations, operation{"replace", diff.Path, diff.Want})
		}
	}
	return json.Marshal(operations)
}
