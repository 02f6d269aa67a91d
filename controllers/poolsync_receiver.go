package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	fluxmeta "github.com/fluxcd/pkg/apis/meta"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/forge/hook"
	"cloop.dev/cloop/internal/secret"
)

const (
	// pushGap is the least time between two requests that pushes to one PoolSync
	// cause: the first is made at once, and those until then in one.
	pushGap = 5 * time.Second
	// keepSecret is how long a webhook's secret is kept: anybody may send events, and
	// not each is to cost a request to the API server.
	keepSecret = 10 * time.Second
	// readSecretWithin is how long the API server may take to say a webhook's secret.
	readSecretWithin = 10 * time.Second
	// refusedEvery is how often refused events of a PoolSync are logged.
	refusedEvery = time.Minute
	// eventsAtOnce are received side by side; each takes some 100 KiB.
	eventsAtOnce = 128
)

// receiver takes push events of forges and asks for the sync of the PoolSync that they
// are for. Who sends one proves that he knows its secret; everybody else gets one
// answer, whether there is such a PoolSync or not. It keeps no event: one that is sent
// again asks for another sync, which changes nothing. Standbys receive as well.
type receiver struct {
	// syncs are PoolSyncs from the cache, and live Secrets from the API server.
	syncs    client.Client
	live     client.Reader
	clock    clock.Clock
	stranger hook.Secret
	arrivals arrivals

	mu    sync.Mutex // guards hooks and what they point to
	hooks map[types.NamespacedName]*hookState
	work  sync.WaitGroup
}

// hookState is what is remembered of the webhook of one PoolSync.
type hookState struct {
	// key and failure are what was read for reference; until when they are kept.
	reference v1alpha1.GitWebhook
	key       hook.Secret
	failure   error
	until     time.Time
	// refused is when a refused event was logged last, asked when a sync was asked for.
	refused, asked time.Time
	// waits: a sync will be asked for, once pushGap is over.
	waits bool
}

// addReceiver has a manager serve webhooks, where an address is given.
func addReceiver(mgr ctrl.Manager, opts Options, syncs client.Client, live client.Reader, c clock.PassiveClock) error {
	if opts.WebhookAddr == "" || opts.WebhookAddr == "0" {
		return nil
	}
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", opts.WebhookAddr)
	if err != nil {
		return fmt.Errorf("listen for webhooks: %w", err)
	}
	r := newReceiver(syncs, live, clockOf(c))
	if err := mgr.Add(&hookServer{receiver: r, listener: listener}); err != nil {
		return errors.Join(fmt.Errorf("add the webhook receiver: %w", err), listener.Close())
	}
	return nil
}

// clockOf is a clock that can wait, where the passive one cannot the machine's.
func clockOf(c clock.PassiveClock) clock.Clock {
	if full, ok := c.(clock.Clock); ok {
		return full
	}
	return clock.RealClock{}
}

func newReceiver(syncs client.Client, live client.Reader, c clock.Clock) *receiver {
	return &receiver{
		syncs: syncs, live: live, clock: c, stranger: hook.Stranger(), arrivals: arrivals{most: eventsAtOnce}, hooks: map[types.NamespacedName]*hookState{},
	}
}

// hookServer serves a receiver as long as the manager runs.
type hookServer struct {
	receiver *receiver
	listener net.Listener
}

// NeedLeaderElection says that a standby receives as well.
func (s *hookServer) NeedLeaderElection() bool { return false }

// Start serves until ctx ends.
func (s *hookServer) Start(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.Handle("POST /hook/{namespace}/{name}", s.receiver.handler(ctx))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10}
	ended := make(chan error, 1)
	go func() { ended <- server.Serve(s.listener) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve webhooks: %w", err)
	case <-ctx.Done():
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(stopping) != nil {
		_ = server.Close() // an event that takes longer is sent again
	}
	s.receiver.work.Wait()
	if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve webhooks: %w", err)
	}
	return nil
}

// handler takes events; what waits to be asked for ends with ctx.
func (r *receiver) handler(ctx context.Context) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		defer r.arrivals.begin(w, req)()
		r.receive(ctx, w, req)
	})
}

func (r *receiver) receive(ctx context.Context, w http.ResponseWriter, req *http.Request) {
	name := types.NamespacedName{Namespace: req.PathValue("namespace"), Name: req.PathValue("name")}
	sync := &v1alpha1.PoolSync{}
	known := r.syncs.Get(req.Context(), name, sync) == nil && sync.Spec.Source.Git.Webhook != nil
	kind, key, failure := forge.GitHub, r.stranger, error(nil)
	if known {
		kind = forge.Kind(sync.Spec.Source.Git.Webhook.Forge)
		if key, failure = r.secret(req.Context(), sync); failure != nil {
			key = r.stranger
		}
	}
	event, err := hook.Receive(w, req, kind, key, r.clock.Now())
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		answerHook(w, http.StatusRequestEntityTooLarge, "refused", fmt.Sprintf("the event is larger than %d bytes", hook.MaxEvent))
		return
	case errors.Is(err, errOut):
		answerHook(w, http.StatusServiceUnavailable, "refused", "too many events at once: send it again")
		return
	case !known || cmp.Or(failure, err) != nil || !event.Genuine:
		if known {
			r.refuse(ctx, name, cmp.Or(failure, err, errNotGenuine))
		}
		answerHook(w, http.StatusNotFound, "refused", "there is no such webhook, or the event is not signed with its secret")
		return
	}
	who := "PoolSync " + name.String()
	if why := event.Ignored(who, fleetRefOf(sync)); why != "" {
		answerHook(w, http.StatusAccepted, "ignored", why)
		return
	}
	if err := r.ask(ctx, name); err != nil {
		logf.FromContext(ctx).Error(err, "does not pass a webhook's event on", "poolSync", name.String())
		answerHook(w, http.StatusServiceUnavailable, "failed", "the API server does not take it; "+who+" looks at its repository when its interval is over")
		return
	}
	answerHook(w, http.StatusAccepted, "accepted", who+" looks at its repository")
}

var errNotGenuine = errors.New("its signature is not what the secret makes of it: give PoolSync and forge the same secret")

func fleetRefOf(sync *v1alpha1.PoolSync) string { return refOf(sync).Full() }

// answerHook answers with what is shown by the forge beside the delivery.
func answerHook(w http.ResponseWriter, status int, result, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"result": result, "message": message}) // who is gone needs none
}

// state is what is remembered of a PoolSync's webhook. Only those that there are get
// one.
func (r *receiver) state(name types.NamespacedName) *hookState {
	s := r.hooks[name]
	if s == nil {
		s = &hookState{}
		r.hooks[name] = s
	}
	return s
}

// secret reads the secret of a PoolSync's webhook, now and then anew.
func (r *receiver) secret(ctx context.Context, sync *v1alpha1.PoolSync) (hook.Secret, error) {
	name, reference, now := client.ObjectKeyFromObject(sync), *sync.Spec.Source.Git.Webhook, r.clock.Now()
	r.mu.Lock()
	s := r.state(name)
	if s.reference == reference && now.Before(s.until) {
		defer r.mu.Unlock()
		return s.key, s.failure
	}
	r.mu.Unlock()
	object := &corev1.Secret{}
	var key hook.Secret
	// Whoever sends an event may go away, and what is read is for all who send one.
	reading, cancel := context.WithTimeout(context.WithoutCancel(ctx), readSecretWithin)
	defer cancel()
	err := r.live.Get(reading, types.NamespacedName{Namespace: sync.Namespace, Name: reference.SecretRef.Name}, object)
	if err == nil {
		key, err = hook.NewSecret(forge.Kind(reference.Forge), secret.New(strings.TrimSpace(string(object.Data[reference.SecretRef.Key]))))
	}
	if err != nil {
		err = fmt.Errorf("key %s of Secret %s: %w", reference.SecretRef.Key, reference.SecretRef.Name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s.reference, s.key, s.failure, s.until = reference, key, err, now.Add(keepSecret)
	return key, err
}

// refuse logs why events are refused, now and then: anybody can send them.
func (r *receiver) refuse(ctx context.Context, name types.NamespacedName, why error) {
	now := r.clock.Now()
	r.mu.Lock()
	s := r.state(name)
	log := s.refused.IsZero() || now.Sub(s.refused) >= refusedEvery
	if log {
		s.refused = now
	}
	r.mu.Unlock()
	if log {
		logf.FromContext(ctx).Info("refuses a webhook's event", "poolSync", name.String(), "reason", why.Error())
	}
}

// ask has the PoolSync sync: at once, or together with others once pushGap is over.
func (r *receiver) ask(ctx context.Context, name types.NamespacedName) error {
	now := r.clock.Now()
	r.mu.Lock()
	s := r.state(name)
	left := s.asked.Add(pushGap).Sub(now)
	if s.waits {
		r.mu.Unlock()
		return nil
	}
	if left <= 0 {
		s.asked = now
		r.mu.Unlock()
		return r.request(ctx, name)
	}
	s.waits = true
	timer := r.clock.NewTimer(left)
	r.work.Add(1)
	r.mu.Unlock()
	go func() {
		defer r.work.Done()
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return
		case <-timer.C():
		}
		r.mu.Lock()
		s.waits, s.asked = false, r.clock.Now()
		r.mu.Unlock()
		if err := r.request(ctx, name); err != nil {
			logf.FromContext(ctx).Error(err, "does not pass a webhook's events on", "poolSync", name.String())
		}
	}()
	return nil
}

// request annotates the PoolSync. A request that is there already is another one's.
func (r *receiver) request(ctx context.Context, name types.NamespacedName) error {
	sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{
		fluxmeta.ReconcileRequestAnnotation: r.clock.Now().UTC().Format(time.RFC3339Nano),
	}}})
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(r.syncs.Patch(ctx, sync, client.RawPatch(types.MergePatchType, patch)))
}
