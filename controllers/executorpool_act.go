package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/pool"
	"cloop.dev/cloop/internal/secret"
)

// parallel is how many steps of one kind are under way at once: enough to hide
// the latency of hub and API server, few enough to leave them to others.
const parallel = 8

// outcome is what came of a plan.
type outcome struct {
	// finished says that the finalizer is off.
	finished bool
	// again asks for another look after this long; zero: no need.
	again time.Duration
	// err joins what failed and is worth a retry with back-off.
	err error
}

// comeBack asks for another look after this long, if none is asked for sooner.
func (o *outcome) comeBack(after time.Duration) {
	after = max(after, time.Millisecond)
	if o.again == 0 || after < o.again {
		o.again = after
	}
}

// actor carries out one plan.
type actor struct {
	*executorPoolReconciler
	o *observation
	// visit is to the hub; nil where there is no connection, and nothing is asked.
	visit *hubVisit

	mu      sync.Mutex // guards what follows and the observation's memory while steps run in parallel
	errs    []error
	refused bool // no more starts in this pass
	// unauthorized says that the hub has begun to refuse the credential.
	unauthorized bool
	started      int
	retired      int
	kept         int
}

// act carries out a plan, the steps that somebody waits for first.
func (r *executorPoolReconciler) act(ctx context.Context, o *observation, plan pool.Plan) outcome {
	a := &actor{executorPoolReconciler: r, o: o}
	if o.hub != nil {
		a.visit = &hubVisit{lane: o.hub.lane}
		defer a.visit.end()
	}
	if plan.EnsureAnchor && !a.ensureAnchor(ctx) {
		// Without its anchor a Pod would go with the pool.
		plan.Start, plan.Adopt = nil, nil
	}
	owned := a.startAll(ctx, plan.Start)
	each(plan.Ended, func(e pool.Ended) { a.ended(ctx, e) })
	each(plan.Missing, func(m pool.Missing) { a.missing(ctx, m) })
	each(plan.Retire, func(t pool.Retire) { a.retire(ctx, t) })
	each(plan.Release, func(t pool.Release) { a.release(ctx, t) })
	each(plan.DeletePods, func(d pool.Deletion) { a.deletePod(ctx, d.Name, d.OnlyPending) })
	each(plan.DeleteSecrets, func(d pool.Deletion) { a.deleteOrphan(ctx, d) })
	each(plan.Adopt, func(name string) { a.adopt(ctx, name) })
	each(append(plan.Own, owned...), func(t pool.Ownership) { a.own(ctx, t) })
	markAgain := a.mark(ctx, plan.Mark)
	if plan.Stuck != "" {
		a.events.record(a.o.xpool, podStuck(plan.Stuck))
	}
	a.announce(plan)
	a.tellRefusal(ctx, plan)

	result := outcome{err: errors.Join(a.errs...)}
	if markAgain > 0 {
		result.comeBack(markAgain)
	}
	if o.memory.anchorUID != "" {
		// If the cache does not show it by then, it never will.
		result.comeBack(o.memory.anchorAt.Add(cacheLag).Sub(r.clock.Now()))
	}
	if plan.Finish && result.err == nil {
		finished, err := a.finish(ctx)
		result.finished, result.err = finished, err
		if !finished {
			result.comeBack(time.Second)
		}
	}
	if a.unauthorized {
		result.comeBack(time.Millisecond)
	} else if refusal := o.memory.PodRefused; refusal != nil {
		result.comeBack(refusal.RetryAt.Sub(r.clock.Now()))
	}
	return result
}

// each runs the step for every item, some at a time, and waits for all.
func each[T any](items []T, step func(T)) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, parallel)
	for _, item := range items {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			step(item)
		})
	}
	wg.Wait()
}

// fail notes an error. A refused credential is the connection's to show, and has
// the pool looked at again at once: the Secret may hold a newer one.
func (a *actor) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if refused(err) {
		a.unauthorized = a.o.hub.failed(a.clock.Now(), err, true) || a.unauthorized
		return
	}
	if errors.Is(err, errSilent) && len(a.errs) > 0 {
		return // of all that was to be asked it says the same
	}
	a.errs = append(a.errs, err)
}

// asked has the pool's hub do something.
func asked[T any](ctx context.Context, a *actor, do func(poolHub) (T, error)) (T, error) {
	if err := a.visit.enter(ctx); err != nil {
		var none T
		return none, err
	}
	out, err := do(a.o.hub.hub)
	a.visit.heard(err)
	return out, err
}

// ensureAnchor creates the pool's anchor, or finds the one that the cache does
// not show yet.
func (a *actor) ensureAnchor(ctx context.Context) bool {
	anchor := podspec.Anchor(a.o.xpool)
	err := a.client.Create(ctx, anchor)
	if apierrors.IsAlreadyExists(err) {
		err = a.live.Get(ctx, client.ObjectKeyFromObject(anchor), anchor)
	}
	if err == nil {
		err = a.markAnchor(ctx, anchor)
	}
	if err != nil {
		a.fail(fmt.Errorf("create the anchor of ExecutorPool %s: %w", a.o.xpool.Name, err))
		return false
	}
	a.o.memory.anchorUID, a.o.memory.anchorAt = anchor.UID, a.clock.Now()
	a.o.snapshot.AnchorUID = string(anchor.UID)
	return true
}

// ended deals with a runner whose Pod has ended: the hub first, so that it
// learns the reason, then the Pod and its Secret.
func (a *actor) ended(ctx context.Context, e pool.Ended) {
	pod := a.o.pods[e.Pod]
	a.mu.Lock()
	done := a.o.memory.handled[pod.UID]
	a.mu.Unlock()
	if done {
		return
	}
	if e.Tell {
		if err := a.tellGone(ctx, e.RunnerID, e.End); err != nil {
			e.Tell = false
			a.fail(err)
		}
	}
	if e.End.Failed() {
		a.events.record(a.o.xpool, runnerFailed(e.RunnerID, e.End))
	}
	if !a.deletePod(ctx, e.Pod, false) {
		return
	}
	a.deleteSecret(ctx, podspec.SecretOf(e.Pod))
	a.mu.Lock()
	defer a.mu.Unlock()
	a.o.memory.handled[pod.UID] = true
	delete(a.o.memory.Started, e.Key)
	if !e.Tell && e.RunnerID != "" {
		// The reason would be lost with the Pod.
		a.o.memory.Ends[e.RunnerID] = e.End
	}
}

// missing tells the hub of a runner whose Pod does not exist, once the API
// server has confirmed that.
func (a *actor) missing(ctx context.Context, m pool.Missing) {
	exists, err := a.podExists(ctx, podspec.PodName(a.o.xpool.Name, m.Key))
	if err != nil || exists {
		a.failIf(err)
		return
	}
	if err := a.tellGone(ctx, m.RunnerID, m.End); err != nil {
		a.fail(err)
		return
	}
	a.mu.Lock()
	_, reported := a.o.memory.Ends[m.RunnerID]
	delete(a.o.memory.Ends, m.RunnerID)
	a.mu.Unlock()
	if !reported {
		a.events.record(a.o.xpool, runnerFailed(m.RunnerID, m.End))
	}
}

// tellGone reports a runner's end to the hub. A hub that does not know the
// runner has nothing to settle, and one that takes it for another controller's
// goes by its silence.
func (a *actor) tellGone(ctx context.Context, runnerID string, end pool.End) error {
	request := hubv1.GoneRequest{
		Reason:  shorten(orElse(end.Reason, "Unknown"), 256),
		Message: shorten(secret.Redact(end.Message), 4096), ExitCode: end.ExitCode,
	}
	_, err := asked(ctx, a, func(hub poolHub) (hubv1.RetireResponse, error) { return hub.RunnerGone(ctx, runnerID, request) })
	switch problemCode(err) {
	case hubv1.CodeNotFound, hubv1.CodeRunnerRetired, hubv1.CodeForbidden:
		return nil
	}
	if err != nil {
		return fmt.Errorf("report runner %s gone: %w", runnerID, err)
	}
	return nil
}

// retire asks the hub to retire a runner. One that was not enrolled is retired
// at once, and its Pod has nothing to do any more.
func (a *actor) retire(ctx context.Context, t pool.Retire) {
	state, err := a.askRetire(ctx, t.RunnerID)
	if err != nil {
		a.fail(err)
		return
	}
	a.metrics.retired(a.o.name(), string(state))
	switch state {
	case hubv1.RunnerBusy:
		a.mu.Lock()
		a.kept++
		a.mu.Unlock()
	case hubv1.RunnerRetired:
		a.deletePod(ctx, podspec.PodName(a.o.xpool.Name, t.Key), false)
		a.deleteSecret(ctx, podspec.SecretName(a.o.xpool.Name, t.Key))
		switch t.Why {
		case pool.WhyNeverStarted:
			a.events.record(a.o.xpool, orphanCollected("gave back a runner that was minted and never started"))
			return
		case pool.WhyOutdated:
			a.events.record(a.o.xpool, replaced())
			return
		}
		fallthrough
	default:
		a.mu.Lock()
		a.retired++
		a.mu.Unlock()
	}
}

// Stands for a state that the hub does not tell.
const (
	// stateUnknown: its pool has no such runner.
	stateUnknown hubv1.RunnerState = ""
	// stateForeign: it was minted with a credential that this process never had,
	// such as the one before a rotation that it did not see. It is not retired.
	stateForeign hubv1.RunnerState = "foreign"
)

func (a *actor) askRetire(ctx context.Context, runnerID string) (hubv1.RunnerState, error) {
	answer, err := asked(ctx, a, func(hub poolHub) (hubv1.RetireResponse, error) { return hub.RetireRunner(ctx, runnerID) })
	switch problemCode(err) {
	case hubv1.CodeRunnerRetired:
		return hubv1.RunnerRetired, nil
	case hubv1.CodeNotFound:
		return stateUnknown, nil
	case hubv1.CodeForbidden:
		return stateForeign, nil
	}
	if err != nil {
		return stateUnknown, fmt.Errorf("retire runner %s: %w", runnerID, err)
	}
	return answer.State, nil
}

// release asks the hub about a Pod whose runner it does not show, and deletes
// the Pod if the runner is retired, or if the Pod never ran and the hub knows of
// no such runner. One that is foreign may be about to enroll, or busy.
func (a *actor) release(ctx context.Context, t pool.Release) {
	state, err := a.askRetire(ctx, t.RunnerID)
	if err != nil {
		a.fail(err)
		return
	}
	deleted, why := false, "the hub has retired"
	switch {
	case state == hubv1.RunnerRetired:
		deleted = a.deletePod(ctx, t.Pod, false)
	case state == stateUnknown && t.Pending:
		deleted, why = a.deletePod(ctx, t.Pod, true), "the hub does not know and which never ran"
	}
	if !deleted {
		// Ask again after the grace time, not at every turn.
		a.mu.Lock()
		a.o.memory.Absent["pod/"+t.Key] = a.clock.Now()
		a.mu.Unlock()
		return
	}
	a.deleteSecret(ctx, podspec.SecretName(a.o.xpool.Name, t.Key))
	a.events.record(a.o.xpool, orphanCollected("deleted a Pod whose runner "+why))
}

// deleteOrphan deletes a Secret once the API server has confirmed that it has
// no Pod.
func (a *actor) deleteOrphan(ctx context.Context, d pool.Deletion) {
	exists, err := a.podExists(ctx, strings.TrimPrefix(d.Name, podspec.SecretPrefix))
	if err != nil || exists {
		a.failIf(err)
		return
	}
	a.deleteSecret(ctx, d.Name)
	a.events.record(a.o.xpool, orphanCollected("deleted a Secret that was left without a Pod"))
}

// deletePod deletes the very Pod that was observed, and only unchanged if it
// must still be pending. It says whether the Pod is gone or going.
func (a *actor) deletePod(ctx context.Context, name string, onlyUnchanged bool) bool {
	pod, cached := a.o.pods[name]
	if !cached {
		pod = &corev1.Pod{}
		pod.Namespace, pod.Name = a.o.xpool.Namespace, name
	}
	var options []client.DeleteOption
	if cached {
		only := client.Preconditions{UID: &pod.UID}
		if onlyUnchanged {
			only.ResourceVersion = &pod.ResourceVersion
		}
		options = append(options, only)
	}
	err := a.client.Delete(ctx, pod.DeepCopy(), options...)
	switch {
	case err == nil, apierrors.IsNotFound(err):
		return true
	case apierrors.IsConflict(err):
		return false // another Pod, or it has moved on
	}
	a.fail(fmt.Errorf("delete Pod %s: %w", name, err))
	return false
}

func (a *actor) deleteSecret(ctx context.Context, name string) {
	object := &corev1.Secret{}
	object.Namespace, object.Name = a.o.xpool.Namespace, name
	if err := a.client.Delete(ctx, object); client.IgnoreNotFound(err) != nil {
		a.fail(fmt.Errorf("delete Secret %s: %w", name, err))
	}
}

// podExists asks the API server itself. A Pod that lacks the label by which the
// cache would show it gets that back.
func (a *actor) podExists(ctx context.Context, name string) (bool, error) {
	key := client.ObjectKey{Namespace: a.o.xpool.Namespace, Name: name}
	pod := metadataOf("Pod")
	err := a.live.Get(ctx, key, pod)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for Pod %s: %w", name, err)
	}
	return true, a.regainPod(ctx, a.o.name(), pod)
}

func (a *actor) failIf(err error) {
	if err != nil {
		a.fail(err)
	}
}

// adopt makes the anchor an owner of a Pod that lacks it.
func (a *actor) adopt(ctx context.Context, name string) {
	pod := a.o.pods[name]
	if pod == nil {
		return
	}
	changed := pod.DeepCopy()
	changed.OwnerReferences = nil
	anchor := podspec.AnchorOwner(a.o.xpool, types.UID(a.o.snapshot.AnchorUID))
	for _, owner := range pod.OwnerReferences {
		if owner.Kind != anchor.Kind || owner.Name != anchor.Name {
			changed.OwnerReferences = append(changed.OwnerReferences, owner)
		}
	}
	changed.OwnerReferences = append(changed.OwnerReferences, anchor)
	patch := client.MergeFromWithOptions(pod, client.MergeFromWithOptimisticLock{})
	if err := a.client.Patch(ctx, changed, patch); err != nil && !apierrors.IsConflict(err) {
		a.failIf(client.IgnoreNotFound(err))
	}
}

// own makes a Secret go with its Pod.
func (a *actor) own(ctx context.Context, t pool.Ownership) {
	uid := a.podUID(t.Pod)
	if uid == "" {
		return
	}
	object := metadataOf("Secret")
	object.Namespace, object.Name = a.o.xpool.Namespace, t.Secret
	if err := a.client.Patch(ctx, object, ownerPatch(podspec.SecretOwner(t.Pod, uid))); client.IgnoreNotFound(err) != nil {
		a.fail(fmt.Errorf("make Pod %s the owner of its Secret: %w", t.Pod, err))
	}
}

func (a *actor) podUID(name string) types.UID {
	if pod := a.o.pods[name]; pod != nil {
		return pod.UID
	}
	return ""
}

// finish removes the anchor and then the finalizer, once the API server has
// confirmed that nothing of the pool is left: a cache that lags would let a
// busy Pod go with its pool.
func (a *actor) finish(ctx context.Context) (bool, error) {
	name := a.o.name()
	for _, kind := range []string{"Pod", "Secret"} {
		left := metadataListOf(kind)
		err := a.live.List(ctx, left, client.InNamespace(name.Namespace), client.HasLabels{v1alpha1.LabelExecutorPool})
		if err != nil {
			return false, fmt.Errorf("list each %s of ExecutorPool %s: %w", kind, name.Name, err)
		}
		for i := range left.Items {
			if isRunnerOf(name, &left.Items[i]) {
				return false, nil
			}
		}
	}
	if found, err := a.strays(ctx, name.Namespace, &name); found || err != nil {
		return false, err
	}
	if err := a.client.Delete(ctx, podspec.Anchor(a.o.xpool)); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("delete the anchor of ExecutorPool %s: %w", a.o.xpool.Name, err)
	}
	before := a.o.xpool.DeepCopy()
	changed := a.o.xpool.DeepCopy()
	controllerutil.RemoveFinalizer(changed, v1alpha1.FinalizerExecutorPool)
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := a.client.Patch(ctx, changed, patch); err != nil {
		if apierrors.IsNotFound(err) {
			return true, nil
		}
		return false, fmt.Errorf("remove the finalizer of ExecutorPool %s: %w", a.o.xpool.Name, err)
	}
	logf.FromContext(ctx).Info("the pool is drained", "pool", a.o.xpool.Name)
	return true, nil
}

// tellRefusal keeps the hub's view of why runners do not start current. It says
// so only when that or the credential changes, by which the hub keeps it, and
// clears what an earlier process may have said.
func (a *actor) tellRefusal(ctx context.Context, plan pool.Plan) {
	if a.o.hub == nil || a.o.snapshot.Link.State != pool.LinkUp {
		return
	}
	var refusal hubv1.Refusal
	memory := a.o.memory
	if memory.PodRefused != nil && plan.Short {
		refusal = hubv1.Refusal{Message: memory.PodRefused.Message, Kind: hubv1.RefusalPods}
	} else if message := stuckPods(a.o.pods); message != "" {
		refusal = hubv1.Refusal{Message: message, Kind: hubv1.RefusalPlacement}
	}
	refusal.Message = shorten(refusal.Message, 4096)
	if !slices.Contains(a.o.snapshot.Hub.Features, hubv1.FeatureRefusalKinds) {
		refusal.Kind = "" // it would refuse what it does not know
	}
	told := toldRefusal{a.o.hub, refusal}
	if memory.told == told {
		return
	}
	if _, err := asked(ctx, a, func(hub poolHub) (struct{}, error) { return struct{}{}, hub.SetRefusal(ctx, refusal) }); err != nil {
		if problemCode(err) == "" || problemCode(err) == hubv1.CodeUnauthenticated {
			return // the watch reports it; the next pass tries again
		}
		logf.FromContext(ctx).Info("the hub does not take the refusal", "pool", a.o.xpool.Name, "error", err.Error())
	}
	memory.told = told
}

// toldRefusal is what the hub was last told, over which connection.
type toldRefusal struct {
	to *hubConnection
	hubv1.Refusal
}

// podRefusal says whether the API server refuses an object for what it is, so
// that the same try again does not help.
func podRefusal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusUnauthorized && code != http.StatusNotFound &&
		code != http.StatusConflict && code != http.StatusTooManyRequests
}

func orElse(text, other string) string {
	if text == "" {
		return other
	}
	return text
}

// shorten cuts a text to at most n bytes, on a rune's border.
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	const mark = "…"
	cut := n - len(mark)
	for cut > 0 && text[cut]&0xC0 == 0x80 {
		cut--
	}
	return text[:cut] + mark
}
