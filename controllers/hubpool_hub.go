package controllers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/internal/secret"
)

// managementHub is what the HubPool controller asks of a hub.
type managementHub interface {
	GetPool(ctx context.Context, pool string) (hubv1.Pool, error)
	DefinePool(ctx context.Context, pool string, request hubv1.DefinePoolRequest) (hubv1.Pool, error)
	UndefinePool(ctx context.Context, pool, owner string) (hubv1.Pool, error)
	ReleasePool(ctx context.Context, pool, owner string) (hubv1.Pool, error)
	ListCredentials(ctx context.Context, pool string, revoked bool) ([]hubv1.Credential, error)
	CreateCredential(ctx context.Context, pool string) (hubv1.Credential, error)
	RevokeCredential(ctx context.Context, pool, credential string) (hubv1.Credential, error)
	FinishRotation(ctx context.Context, pool string, request hubv1.FinishRotationRequest) (hubv1.FinishRotationResponse, error)
	WatchPool(ctx context.Context, pool string) iter.Seq2[hubv1.Pool, error]
	// Ahead is by how much the hub's clock is ahead of this machine's.
	Ahead() time.Duration
}

// managementToken is what a token for a hub's management API looks like. Anything
// else in the Secret, a key of Git that a committer pointed at, is sent to no hub.
func managementToken(text string) bool {
	return (strings.HasPrefix(text, "cloop_usr1_") || strings.HasPrefix(text, "cloop_adm1_")) && secret.Whole(text)
}

// readToken reads the management token. The problem never quotes what is there.
func (r *hubPoolReconciler) readToken(ctx context.Context, p *hubPoolPass) (secret.String, *stageError) {
	ref := p.pool.Spec.Hub.TokenSecretRef
	object := &corev1.Secret{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: p.pool.Namespace, Name: ref.Name}, object)
	text := strings.TrimSpace(string(object.Data[ref.Key]))
	switch {
	case apierrors.IsNotFound(err) && p.pool.DeletionTimestamp != nil && !p.memory.token.Empty():
		// The two go together, with the whole namespace perhaps.
		return p.memory.token, nil
	case apierrors.IsNotFound(err):
		err = fmt.Errorf("the Secret %s does not exist", ref.Name)
	case apierrors.IsForbidden(err):
		err = fmt.Errorf("the controller may not read the Secret %s", ref.Name)
	case err != nil:
		err = fmt.Errorf("read the Secret %s: %w", ref.Name, err)
	case text == "":
		err = fmt.Errorf("the Secret %s has nothing under the key %s", ref.Name, ref.Key)
	case !managementToken(text):
		err = fmt.Errorf("what the Secret %s has under the key %s is no whole token of a hub", ref.Name, ref.Key)
	default:
		p.memory.token = secret.New(text)
		return p.memory.token, nil
	}
	return secret.String{}, transient(v1alpha1.ReasonTokenUnreadable, err)
}

// hubFailure says what an error of the hub's means.
func hubFailure(err error) *stageError {
	var problem *hubv1.Problem
	if errors.Is(err, errFenced) || errors.Is(err, hubclient.ErrUnavailable) || !errors.As(err, &problem) {
		return transient(v1alpha1.ReasonHubUnavailable, err)
	}
	// The reason brings its own remedy.
	bare := *problem
	bare.Remedy = ""
	switch {
	case problem.Code == hubv1.CodePoolManagedByGit && problem.Source != nil && ofCluster(problem.Source.Sync):
		return stalled(v1alpha1.ReasonOwnedByAnother, &bare)
	case problem.Code == hubv1.CodePoolManagedByGit:
		return stalled(v1alpha1.ReasonHubSyncOwns, &bare)
	case problem.Code == hubv1.CodeNotFound:
		// Ours, and not there for this token.
		return transient(v1alpha1.ReasonTokenRefused, &bare)
	case problem.Status == http.StatusUnauthorized, problem.Code == hubv1.CodeForbidden && len(problem.Errors) == 0:
		return stalled(v1alpha1.ReasonTokenRefused, &bare)
	}
	refused := stalled(v1alpha1.ReasonDefinitionRefused, &bare)
	if problem.Code == hubv1.CodePoolExists {
		// No field of the definition helps.
		refused.remedy = problem.Remedy
	}
	return refused
}

func ofCluster(owner string) bool {
	_, _, _, of := hubv1.Provenance{Sync: owner}.Cluster()
	return of
}

// managementHubs holds a client for each hub and token, and a watch for each
// HubPool. Starting, replacing and ending them is its job alone; Start ends all of
// them with the manager.
type managementHubs struct {
	userAgent string
	fence     *fence
	clock     clock.PassiveClock
	// patience is how long a hub has for an answer; zero: as long as a client gives it.
	patience time.Duration
	// changed carries HubPools whose pool has changed at the hub; it is never closed.
	changed chan event.GenericEvent
	// dial replaces hubclient.New in tests.
	dial func(hubTarget) (managementHub, func(), error)

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex // guards hubs
	hubs  map[types.NamespacedName]*managedHub
	links []*hubLink
}

// hubLink is what the HubPools share that have one hub and token.
type hubLink struct {
	target hubTarget
	hub    managementHub
	close  func()
	users  int
	pace   pace
	// lane is that of all links to the hub.
	lane *hubLane
	// unwatched is how many of the HubPools have no watch, because the hub serves the
	// token as many as it does.
	unwatched atomic.Int32
}

// pace keeps to what a hub says of how often it may be asked.
type pace struct {
	mu    sync.Mutex // guards until
	until time.Time
}

// errPaced is what becomes of a request that the hub has asked not to send yet.
type errPaced struct{ until time.Time }

func (e errPaced) Error() string {
	return "the hub has asked for a pause until " + e.until.UTC().Format(time.RFC3339)
}

func (p *pace) check(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Before(p.until) {
		return errPaced{p.until}
	}
	return nil
}

// note takes in how long the hub wants to be left alone.
func (p *pace) note(now time.Time, err error) {
	var problem *hubv1.Problem
	if !errors.As(err, &problem) || problem.RetryAfterSeconds <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if until := now.Add(min(time.Duration(problem.RetryAfterSeconds)*time.Second, longestPause)); until.After(p.until) {
		p.until = until
	}
}

// longestPause is what is believed at most of what a hub asks for.
const longestPause = 5 * time.Minute

func newManagementHubs(build string, f *fence, c clock.PassiveClock) *managementHubs {
	ctx, cancel := context.WithCancel(context.Background())
	h := &managementHubs{
		userAgent: v1alpha1.FieldManagerPoolSync + "/" + build, fence: f, clock: c, changed: make(chan event.GenericEvent, 256),
		ctx: ctx, cancel: cancel, hubs: map[types.NamespacedName]*managedHub{},
	}
	h.dial = func(t hubTarget) (managementHub, func(), error) {
		c, err := hubclient.New(hubclient.Options{URL: t.url, Pin: t.pin, CABundle: []byte(t.bundle), Token: t.credential, UserAgent: h.userAgent, Timeout: h.patience})
		if err != nil {
			return nil, nil, err
		}
		return c, c.CloseIdleConnections, nil
	}
	return h
}

// Start waits for the manager to stop and then ends every watch.
func (h *managementHubs) Start(ctx context.Context) error {
	<-ctx.Done()
	h.cancel()
	h.wg.Wait()
	return nil
}

// of is the hub for a HubPool, made anew if the target has changed.
func (h *managementHubs) of(name types.NamespacedName, target hubTarget) (*managedHub, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if hub := h.hubs[name]; hub != nil {
		if hub.link.target.same(target) {
			return hub, nil
		}
		h.leaveLocked(name)
	}
	link, err := h.linkLocked(target)
	if err != nil {
		return nil, fmt.Errorf("connect to the hub %s: %w", target.url, err)
	}
	link.users++
	hub := &managedHub{hubs: h, link: link, name: name}
	h.hubs[name] = hub
	return hub, nil
}

func (h *managementHubs) linkLocked(target hubTarget) (*hubLink, error) {
	for _, link := range h.links {
		if link.target.same(target) {
			return link, nil
		}
	}
	hub, close, err := h.dial(target)
	if err != nil {
		return nil, err
	}
	link := &hubLink{target: target, hub: hub, close: close, lane: h.laneLocked(target.url)}
	h.links = append(h.links, link)
	return link, nil
}

// laneLocked is that of a hub, whoever asks it.
func (h *managementHubs) laneLocked(url string) *hubLane {
	for _, link := range h.links {
		if link.target.url == url {
			return link.lane
		}
	}
	return newHubLane()
}

// leave ends what there is for a HubPool.
func (h *managementHubs) leave(name types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaveLocked(name)
}

func (h *managementHubs) leaveLocked(name types.NamespacedName) {
	hub := h.hubs[name]
	if hub == nil {
		return
	}
	delete(h.hubs, name)
	hub.end()
	if hub.link.users--; hub.link.users > 0 {
		return
	}
	hub.link.close()
	for i, link := range h.links {
		if link == hub.link {
			h.links = append(h.links[:i], h.links[i+1:]...)
			break
		}
	}
}

// managedHub is a hub as one HubPool has it: nothing is changed there unless the
// Lease holds, and nothing asked before the hub wants it.
type managedHub struct {
	hubs *managementHubs
	link *hubLink
	name types.NamespacedName

	mu     sync.Mutex // guards what follows
	cancel context.CancelFunc
	// latest is what the open watch brought last, without an id where the hub has no
	// such pool; nil while there is none. It is never changed once it is here.
	latest *hubv1.Pool
	// crowded says that its watch was one too many.
	crowded bool
}

// ask sends one request.
func ask[T any](ctx context.Context, h *managedHub, do func(managementHub) (T, error)) (T, error) {
	var none T
	if err := h.link.lane.enter(ctx); err != nil {
		return none, err
	}
	// Those before it may have been asked for a pause.
	if err := h.link.pace.check(h.hubs.clock.Now()); err != nil {
		h.link.lane.leave(err)
		return none, err
	}
	out, err := do(h.link.hub)
	defer h.link.lane.leave(err)
	h.link.pace.note(h.hubs.clock.Now(), err)
	return out, err
}

// change is ask for what changes something.
func change[T any](ctx context.Context, h *managedHub, do func(managementHub) (T, error)) (T, error) {
	if !h.hubs.fence.holds() {
		var none T
		return none, errFenced
	}
	return ask(ctx, h, do)
}

// GetPool and what follows are managementHub's.
func (h *managedHub) GetPool(ctx context.Context, pool string) (hubv1.Pool, error) {
	return ask(ctx, h, func(hub managementHub) (hubv1.Pool, error) { return hub.GetPool(ctx, pool) })
}

func (h *managedHub) definePool(ctx context.Context, pool string, request hubv1.DefinePoolRequest) (hubv1.Pool, error) {
	return change(ctx, h, func(hub managementHub) (hubv1.Pool, error) { return hub.DefinePool(ctx, pool, request) })
}

func (h *managedHub) undefinePool(ctx context.Context, pool, owner string) (hubv1.Pool, error) {
	return change(ctx, h, func(hub managementHub) (hubv1.Pool, error) { return hub.UndefinePool(ctx, pool, owner) })
}

func (h *managedHub) releasePool(ctx context.Context, pool, owner string) (hubv1.Pool, error) {
	return change(ctx, h, func(hub managementHub) (hubv1.Pool, error) { return hub.ReleasePool(ctx, pool, owner) })
}

func (h *managedHub) credentials(ctx context.Context, pool string) ([]hubv1.Credential, error) {
	return ask(ctx, h, func(hub managementHub) ([]hubv1.Credential, error) { return hub.ListCredentials(ctx, pool, false) })
}

// mint makes a credential. Repeating it with the same key brings its record again,
// without its secret.
func (h *managedHub) mint(ctx context.Context, pool, key string) (hubv1.Credential, error) {
	return change(ctx, h, func(hub managementHub) (hubv1.Credential, error) {
		return hub.CreateCredential(hubclient.WithIdempotencyKey(ctx, key), pool)
	})
}

func (h *managedHub) revoke(ctx context.Context, pool, credential string) error {
	_, err := change(ctx, h, func(hub managementHub) (hubv1.Credential, error) { return hub.RevokeCredential(ctx, pool, credential) })
	return err
}

func (h *managedHub) finish(ctx context.Context, pool string, request hubv1.FinishRotationRequest) (hubv1.FinishRotationResponse, error) {
	return change(ctx, h, func(hub managementHub) (hubv1.FinishRotationResponse, error) {
		return hub.FinishRotation(ctx, pool, request)
	})
}

// now is the time at the hub, whose times are compared with it.
func (h *managedHub) now() time.Time { return h.hubs.clock.Now().Add(h.link.hub.Ahead()) }

// watched is the pool as the open watch has it; nil where none is open, or there is no
// such pool: what this process has just made its watch may not have yet.
func (h *managedHub) watched() *hubv1.Pool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.latest == nil || h.latest.ID == "" {
		return nil
	}
	return h.latest
}

// watch follows the pool from now on, if it is not followed already.
func (h *managedHub) watch(pool string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cancel != nil || h.hubs.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(h.hubs.ctx)
	h.cancel = cancel
	h.hubs.wg.Go(func() { h.follow(ctx, pool) })
}

func (h *managedHub) end() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.cancel != nil {
		h.cancel()
	}
}

// follow keeps a watch open until the context ends.
func (h *managedHub) follow(ctx context.Context, pool string) {
	defer h.crowd(false)
	var backoff hubclient.Backoff
	for ctx.Err() == nil {
		wait := time.Duration(0)
		for have, err := range h.link.hub.WatchPool(ctx, pool) {
			if err != nil {
				wait = h.afterWatch(ctx, err, backoff.Next())
				break
			}
			backoff.Reset()
			h.received(ctx, have)
		}
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// crowd notes whether the watch was one too many.
func (h *managedHub) crowd(is bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case is && !h.crowded:
		h.link.unwatched.Add(1)
	case !is && h.crowded:
		h.link.unwatched.Add(-1)
	}
	h.crowded = is
}

// crowdedLast is the longest wait of a pool for a watch that the hub has no room for:
// until then it is looked at as often as any.
const crowdedLast = time.Hour

// afterWatch notes that the watch has ended, and says how long to wait until the
// next. All that the hub has no watch for ask together as often as it wants one to.
func (h *managedHub) afterWatch(ctx context.Context, err error, wait time.Duration) time.Duration {
	h.mu.Lock()
	was := h.latest
	h.latest = nil
	h.mu.Unlock()
	if was != nil {
		// The next look finds out what is wrong.
		h.notify(ctx)
	}
	if !errors.Is(err, hubclient.ErrUnavailable) {
		return retry.Spread(hubRetryLast) // only a new token helps
	}
	var problem *hubv1.Problem
	if errors.As(err, &problem) && problem.Code == hubv1.CodeTooManyWatches {
		h.crowd(true)
		all := time.Duration(h.link.unwatched.Load()) * time.Duration(problem.RetryAfterSeconds) * time.Second
		return max(wait, retry.Spread(min(all, crowdedLast)))
	}
	h.crowd(false)
	h.link.pace.note(h.hubs.clock.Now(), err)
	var paced errPaced
	if now := h.hubs.clock.Now(); errors.As(h.link.pace.check(now), &paced) {
		return max(wait, paced.until.Sub(now)+retry.Spread(time.Second))
	}
	return wait
}

// received takes in a pool, and has its HubPool reconciled where something has
// changed that matters there: counts of runners do not.
func (h *managedHub) received(ctx context.Context, have hubv1.Pool) {
	h.mu.Lock()
	was := h.latest
	h.latest = &have
	h.mu.Unlock()
	h.crowd(false)
	if was == nil || !reflect.DeepEqual(lasting(was), lasting(&have)) {
		h.notify(ctx)
	}
}

// lasting is what of a pool changes only when somebody changes it.
func lasting(pool *hubv1.Pool) hubv1.Pool {
	kept := *pool
	kept.Revision, kept.Runners, kept.Queued, kept.Controllers, kept.Findings = 0, hubv1.RunnerCounts{}, 0, nil, nil
	return kept
}

func (h *managedHub) notify(ctx context.Context) { h.hubs.tell(ctx, h.name) }

// tell has a HubPool looked at.
func (h *managementHubs) tell(ctx context.Context, name types.NamespacedName) {
	object := &v1alpha1.HubPool{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	select {
	case h.changed <- event.GenericEvent{Object: object}:
	case <-ctx.Done():
	}
}
