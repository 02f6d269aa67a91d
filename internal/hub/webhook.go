package hub

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/forge/hook"
	"cloop.dev/cloop/internal/hub/problem"
)

// refusedEvery is how often refused events of a sync are logged: anybody can
// send them.
const refusedEvery = time.Minute

// webhooks takes push events of forges and has the sync look at its repository.
// Who sends an event proves that he knows the sync's secret; everybody else gets
// one answer, whether there is such a sync or not.
type webhooks struct {
	// hooks: sync name → its hook.
	hooks map[string]*webhook
	// stranger stands for every other name, so that it takes as long to refuse.
	stranger *webhook
	clock    clock.WithTicker
	log      *slog.Logger
	metrics  *metrics
}

// webhook is one sync's.
type webhook struct {
	sync  string
	forge forge.Kind
	// secret reads the secret.
	secret func() (hook.Secret, error)
	// ref is what the sync follows, such as refs/heads/main; empty where any
	// push may matter.
	ref string
	// push has the sync look, unless it was told of the event before.
	push func(ctx context.Context, identities []string) (first bool, err error)

	mu sync.Mutex
	// refused is when a refused event was logged last.
	refused time.Time
	// failure is why the last event was refused; empty where it was taken.
	failure string
}

// trouble says why events are refused; empty where they are not.
func (h *webhook) trouble() string {
	if h == nil {
		return ""
	}
	if _, err := h.secret(); err != nil {
		return err.Error()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failure
}

// tell notes why the last event was refused, and whether that is to be logged:
// anybody can send one.
func (h *webhook) tell(now time.Time, err error) (log bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = ""
	if err == nil {
		return false
	}
	h.failure = err.Error()
	if log = h.refused.IsZero() || now.Sub(h.refused) >= refusedEvery; log {
		h.refused = now
	}
	return log
}

func newWebhooks(o Options, syncs *syncs, m *metrics) *webhooks {
	stranger := hook.Stranger()
	h := &webhooks{
		hooks: map[string]*webhook{}, clock: o.Clock, log: o.Log, metrics: m,
		stranger: &webhook{forge: forge.GitHub, secret: func() (hook.Secret, error) { return stranger, nil }},
	}
	for name, f := range syncs.followers {
		config := f.config.Webhook
		if config == nil {
			continue
		}
		f.hook = &webhook{
			sync: name, forge: config.Forge, ref: f.config.Ref.Full(), push: f.push,
			secret: func() (hook.Secret, error) { return readHookSecret(config.Forge, config.SecretFile) },
		}
		h.hooks[name] = f.hook
	}
	return h
}

// readHookSecret reads a sync's secret again, so that it can be changed.
func readHookSecret(kind forge.Kind, file string) (hook.Secret, error) {
	text, err := readSecret("the webhook's secret", file)
	if err != nil {
		return hook.Secret{}, err
	}
	key, err := hook.NewSecret(kind, text)
	if err != nil {
		return hook.Secret{}, fmt.Errorf("%s: %w", file, err)
	}
	return key, nil
}

// ServeHTTP takes one event.
func (h *webhooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at, known := h.hooks[r.PathValue("sync")]
	if !known {
		at = h.stranger
	}
	key, keyErr := at.secret()
	if keyErr != nil {
		key, _ = h.stranger.secret() // it does not fail
	}
	event, err := hook.Receive(w, r, at.forge, key, h.clock.Now())
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		refuse(w, problem.New(hubv1.CodeTooLarge, "the event is larger than %d bytes", hook.MaxEvent))
		return
	}
	// An event that did not come whole says nothing about the secret, and anybody
	// can begin one.
	partial := err != nil
	if err = cmp.Or(keyErr, err); err == nil && !event.Genuine {
		err = errors.New("its signature is not what the secret makes of it: give hub and forge the same secret")
	}
	if err != nil || !known {
		if known {
			if !partial && at.tell(h.clock.Now(), err) {
				h.log.Warn("webhook event is refused", "sync", at.sync, "error", err)
			}
			h.metrics.webhooks.WithLabelValues(at.sync, "refused").Inc()
		}
		unknown := problem.New(hubv1.CodeNotFound, "there is no such webhook, or the event is not signed with its secret")
		// Whoever reads it looks after the forge, and has no list of the hub's to look at.
		unknown.Remedy = "compare the address and the secret that the forge has with the sync's webhook in the hub's configuration"
		refuse(w, unknown)
		return
	}
	at.tell(h.clock.Now(), nil)
	result, says := h.act(r.Context(), at, event)
	h.metrics.webhooks.WithLabelValues(at.sync, result).Inc()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	// The forge shows it beside the delivery; if it is gone, nobody misses it.
	_ = json.NewEncoder(w).Encode(map[string]string{"result": result, "message": says})
}

// act does what a genuine event asks for.
func (h *webhooks) act(ctx context.Context, at *webhook, e hook.Event) (result, says string) {
	if why := e.Ignored("sync "+at.sync, at.ref); why != "" {
		return "ignored", why
	}
	switch first, err := at.push(ctx, e.Identities); {
	case err != nil:
		h.log.Error("webhook event is not passed on", "sync", at.sync, "error", err)
		return "failed", "the hub's storage does not work; sync " + at.sync + " looks at its repository when its interval is over"
	case !first:
		return "ignored", "the event was received before"
	}
	return "accepted", "sync " + at.sync + " looks at its repository"
}

func refuse(w http.ResponseWriter, p *hubv1.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // who is gone needs no answer
}
