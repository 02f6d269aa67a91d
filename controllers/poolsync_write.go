package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fluxcd/pkg/ssa"
	"github.com/fluxcd/pkg/ssa/jsondiff"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// writer brings objects to what a build says, a request or two for each.
type writer struct {
	client client.Client
	// live asks the API server as the controller itself.
	live     client.Reader
	revision string
	clock    clock.PassiveClock

	mu sync.Mutex // guards the pass that is counted in
}

// all writes objects side by side. What the API server refuses of one is noted on
// it, and the others go on; where nobody answers no more are begun.
func (w *writer) all(ctx context.Context, p *syncPass, due []*sight, write func(context.Context, *sight) error) error {
	var group errgroup.Group
	group.SetLimit(requestsAtOnce)
	var failed atomic.Pointer[error]
	for _, s := range due {
		if silent := failed.Load(); silent != nil && !isStatus(*silent) {
			break
		}
		group.Go(func() error {
			found := versionOf(s.have)
			err := write(ctx, s)
			w.mu.Lock()
			defer w.mu.Unlock()
			switch {
			case err == nil:
				w.written(p, s, found)
			case refuses(err):
				s.refused = fmt.Errorf("%s: %w", s.id, undefined(s, err))
				o := p.memory.object(s.id)
				o.refused, o.refusedWant = s.refused, s.want
			default:
				failed.CompareAndSwap(nil, &err)
			}
			return nil
		})
	}
	_ = group.Wait()
	if err := failed.Load(); err != nil {
		return *err
	}
	return nil
}

// written notes that an object has become what Git wants; found is the
// resourceVersion that it had.
func (w *writer) written(p *syncPass, s *sight, found string) {
	o := p.memory.object(s.id)
	*o = objectMemory{bears: s.bears, learned: true}
	s.applied = true
	version := versionOf(s.have)
	switch {
	case version == "":
		return // gone again; the next pass brings it back
	case found == "":
		p.changes.created++
	case version != found:
		p.changes.configured++
		o.behind = found
	}
	if version != found && !s.changed() {
		p.memory.corrected(s.id, w.clock.Now())
	}
	o.quiet = version
}

// isStatus says whether an error is an answer of the API server.
func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// refuses says whether an error is the API server's word on the object that it was
// about: others may fare better, and the same will not before something changes.
func refuses(err error) bool {
	var dropped *droppedError
	if errors.As(err, &dropped) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= 400 && code < 500
	}
}

// undefined says what to do where an error says that the API server does not know the
// kind, or has no place for the object. Its answer is of the first case about no object,
// and names none.
func undefined(s *sight, err error) error {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err
	}
	details := status.Status().Details
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err) && details != nil && details.Kind == "namespaces":
		return &placeError{s.id.namespace, err}
	case apierrors.IsNotFound(err) && (details == nil || details.Name == ""):
		return fmt.Errorf("%w: the API server does not know the kind: apply the definitions that `cloop executor controller crd` prints", err)
	}
	return err
}

// placeError is of an object whose namespace is not there, or about to go.
type placeError struct {
	namespace string
	cause     error
}

func (e *placeError) Error() string {
	return fmt.Sprintf("%v: create namespace %s once it is gone, which no PoolSync does, or take what Git has for it out of Git", e.cause, e.namespace)
}

func (e *placeError) Unwrap() error { return e.cause }

// droppedError is a field that the API server takes and does not keep.
type droppedError struct{ path string }

func (e *droppedError) Error() string {
	return fmt.Sprintf("the API server drops %s, which Git sets: where its definition is older than this controller, apply the one that `cloop executor controller crd` prints; else an admission webhook removes it", e.path)
}

// write applies what Git wants and takes away what it does not name. What the
// answer still has otherwise is the cluster's last word.
func (w *writer) write(ctx context.Context, s *sight) error {
	want, object := s.want.object(), s.want.named()
	setAnnotation(want, v1alpha1.AnnotationRevision, w.revision)
	data, err := json.Marshal(want)
	if err != nil {
		return fmt.Errorf("encode %s: %w", s.id, err)
	}
	err = w.client.Patch(ctx, object, client.RawPatch(types.ApplyPatchType, data), client.ForceOwnership, client.FieldOwner(v1alpha1.FieldManagerPoolSync))
	if err != nil {
		return err
	}
	diffs := fleet.CompareSpecs(want, object, s.uncompared)
	for _, diff := range diffs {
		if diff.Have == nil && diff.Want != nil {
			return &droppedError{diff.Path}
		}
	}
	if s.id.gitOwned() && len(diffs) > 0 {
		if object, err = w.removeForeignFields(ctx, s, object); err != nil {
			return err
		}
		diffs = nil
		if object != nil {
			diffs = fleet.CompareSpecs(want, object, s.uncompared)
		}
	}
	s.have, s.bears = object, diffs
	// What is as it was after an accepted write was not put back.
	s.edited = s.notBorne(s.edited)
	if object != nil {
		object.SetManagedFields(nil)
	}
	return nil
}

// restoreAttempts is how often an object is restored that somebody changes at the
// same time.
const restoreAttempts = 5

// removeForeignFields makes an ExecutorPool or a HubPool have nothing but what Git says:
// server-side apply leaves a field alone that Git does not name and somebody else
// set. It returns the object as it has become, nil where it is gone.
func (w *writer) removeForeignFields(ctx context.Context, s *sight, have *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	var tried []fleet.FieldDiff
	want := s.want.object()
	for range restoreAttempts {
		// What is missing has been applied and dropped: adding it again is no use.
		diffs := slices.DeleteFunc(fleet.CompareSpecs(want, have, s.uncompared), func(d fleet.FieldDiff) bool { return d.Have == nil })
		// What came back at once is set by the API server's own admission.
		if len(diffs) == 0 || slices.EqualFunc(diffs, tried, sameDiff) {
			return have, nil
		}
		patch, err := correction(have, diffs)
		if err != nil {
			return nil, err
		}
		version := have.GetResourceVersion()
		patched := have.DeepCopy()
		err = w.client.Patch(ctx, patched, client.RawPatch(types.JSONPatchType, patch), client.FieldOwner(v1alpha1.FieldManagerPoolSync))
		if err == nil {
			have, tried = patched, diffs
			continue
		}
		switch now, failed := w.now(ctx, s); {
		case failed != nil:
			return nil, fmt.Errorf("restore %s: %w", s.id, errors.Join(err, failed))
		case now == nil:
			return nil, nil //nolint:nilnil // it is gone, and the next pass brings it back
		case now.GetResourceVersion() == version:
			return nil, fmt.Errorf("restore %s: %w", s.id, err)
		default:
			have = now
		}
	}
	return nil, fmt.Errorf("restore %s: somebody changes it as fast as it is restored", s.id)
}

// now is the object as the API server has it, nil where it is gone: there is no
// code of its own for a patch whose test fails.
func (w *writer) now(ctx context.Context, s *sight) (*unstructured.Unstructured, error) {
	now := &sight{id: s.id, want: s.want}
	err := now.read(ctx, w.live)
	return now.have, err
}

// writeShared applies an object of which some fields are ignored: a field that
// another applier owns is left out, and of one that we own the cluster's value is
// applied.
func (w *writer) writeShared(ctx context.Context, manager *ssa.ResourceManager, ignored []v1alpha1.IgnoreRule, s *sight) error {
	rules := ignoreRules(ignored)
	comparing := ssa.DefaultDiffOptions()
	// An object keeps the revision that last changed it.
	comparing.DriftIgnoreRules = append([]jsondiff.IgnoreRule{{Paths: []string{revisionPointer}}}, rules...)
	entry, _, _, err := manager.Diff(ctx, s.payload(), comparing)
	if err != nil {
		return err
	}
	if entry.Action == ssa.CreatedAction || entry.Action == ssa.ConfiguredAction {
		object := s.payload()
		setAnnotation(object, v1alpha1.AnnotationRevision, w.revision)
		options := ssa.DefaultApplyOptions()
		options.DriftIgnoreRules = rules
		if _, err := manager.Apply(ctx, object, options); err != nil {
			return err
		}
	}
	if err := s.read(ctx, w.client); err != nil || s.have == nil || !s.id.gitOwned() {
		return err
	}
	have, err := w.removeForeignFields(ctx, s, s.have)
	if err == nil {
		s.have = have
	}
	return err
}

// payload is what is applied: want, and of what is ignored that which Git does
// not name and nobody else owns. Left out, it would be removed where an earlier
// commit named it.
func (s *sight) payload() *unstructured.Unstructured {
	object := s.want.object()
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
