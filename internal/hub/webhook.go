package hub

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/hub/problem"
)

const (
	// maxEvent bounds the body of an event: GitHub sends up to 25 MB. It is
	// hashed as it comes, and of it no more than maxEventKept is kept.
	maxEvent = 25 << 20
	// maxEventKept is what is looked at of an event; the ref stands at its
	// beginning.
	maxEventKept = 64 << 10
	// eventTimeout is how long a body may take to arrive.
	eventTimeout = 30 * time.Second
	// minWebhookSecret is the least length of a secret, in bytes: anybody may try
	// to guess it.
	minWebhookSecret = 16
	// refusedEvery is how often refused events of a sync are logged: anybody can
	// send them.
	refusedEvery = time.Minute
)

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
	secret func() (hookSecret, error)
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
	var unknown [sha256.Size]byte
	_, _ = rand.Read(unknown[:]) // it does not fail
	h := &webhooks{
		hooks: map[string]*webhook{}, clock: o.Clock, log: o.Log, metrics: m,
		stranger: &webhook{forge: forge.GitHub, secret: func() (hookSecret, error) { return hookSecret{key: unknown[:]}, nil }},
	}
	for name, f := range syncs.followers {
		config := f.config.Webhook
		if config == nil {
			continue
		}
		f.hook = &webhook{
			sync: name, forge: config.Forge, ref: followed(f.config), push: f.push,
			secret: func() (hookSecret, error) { return readHookSecret(config.Forge, config.SecretFile) },
		}
		h.hooks[name] = f.hook
	}
	return h
}

// followed is the ref whose pushes matter to a sync.
func followed(c SyncConfig) string {
	switch {
	case c.Ref.Commit != "":
		return ""
	case c.Ref.Tag != "":
		return "refs/tags/" + c.Ref.Tag
	case c.Ref.Branch != "":
		return "refs/heads/" + c.Ref.Branch
	}
	return "refs/heads/main"
}

// readHookSecret reads a sync's secret again, so that it can be changed.
func readHookSecret(kind forge.Kind, file string) (hookSecret, error) {
	text, err := readSecret("the webhook's secret", file)
	if err != nil {
		return hookSecret{}, err
	}
	if len(text.Reveal()) < minWebhookSecret {
		return hookSecret{}, fmt.Errorf("the webhook's secret in %s is shorter than %d characters: make a longer one, for instance with `openssl rand -hex 32`", file, minWebhookSecret)
	}
	return newHookSecret(kind, text)
}

// ServeHTTP takes one event.
func (h *webhooks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	hook, known := h.hooks[r.PathValue("sync")]
	if !known {
		hook = h.stranger
	}
	key, keyErr := hook.secret()
	if keyErr != nil {
		key, _ = h.stranger.secret() // it does not fail
	}
	event, err := h.receive(w, r, hook.forge, key)
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		refuse(w, problem.New(hubv1.CodeTooLarge, "the event is larger than %d bytes", maxEvent))
		return
	}
	if err = cmp.Or(keyErr, err); err == nil && !event.genuine {
		err = errors.New("its signature is not what the secret makes of it: give hub and forge the same secret")
	}
	if err != nil || !known {
		if known {
			if hook.tell(h.clock.Now(), err) {
				h.log.Warn("webhook event is refused", "sync", hook.sync, "error", err)
			}
			h.metrics.webhooks.WithLabelValues(hook.sync, "refused").Inc()
		}
		refuse(w, problem.New(hubv1.CodeNotFound, "there is no such webhook, or the event is not signed with its secret"))
		return
	}
	hook.tell(h.clock.Now(), nil)
	result, says := h.act(r.Context(), hook, event)
	h.metrics.webhooks.WithLabelValues(hook.sync, result).Inc()
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	// The forge shows it beside the delivery; if it is gone, nobody misses it.
	_ = json.NewEncoder(w).Encode(map[string]string{"result": result, "message": says})
}

// act does what a genuine event asks for.
func (h *webhooks) act(ctx context.Context, hook *webhook, e event) (result, says string) {
	switch {
	case e.kind == "ping":
		return "ignored", "sync " + hook.sync + " takes push events here"
	case e.kind != "push":
		return "ignored", "only push events matter"
	case e.ref != "" && hook.ref != "" && e.ref != hook.ref:
		return "ignored", "sync " + hook.sync + " follows " + hook.ref
	}
	switch first, err := hook.push(ctx, e.identities); {
	case err != nil:
		h.log.Error("webhook event is not passed on", "sync", hook.sync, "error", err)
		return "failed", "the hub's storage does not work; sync " + hook.sync + " looks at its repository when its interval is over"
	case !first:
		return "ignored", "the event was received before"
	}
	return "accepted", "sync " + hook.sync + " looks at its repository"
}

// receive reads an event and judges its signature.
func (h *webhooks) receive(w http.ResponseWriter, r *http.Request, kind forge.Kind, key hookSecret) (event, error) {
	// Where it cannot be set the server's own timeouts hold.
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(eventTimeout))
	check := newVerifier(kind, key, r.Header, h.clock.Now())
	kept := &prefix{most: maxEventKept}
	if _, err := io.Copy(io.MultiWriter(check, kept), http.MaxBytesReader(w, r.Body, maxEvent)); err != nil {
		return event{}, err
	}
	if !check.genuine() {
		return event{}, nil
	}
	return event{
		genuine: true, kind: eventKind(kind, r.Header), identities: check.identities(),
		ref: pushedRef(r.Header.Get("Content-Type"), kept.data),
	}, nil
}

func refuse(w http.ResponseWriter, p *hubv1.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // who is gone needs no answer
}

// prefix keeps the beginning of what is written to it.
type prefix struct {
	most int
	data []byte
}

// Write is io.Writer's.
func (p *prefix) Write(data []byte) (int, error) {
	p.data = append(p.data, data[:min(len(data), p.most-len(p.data))]...)
	return len(data), nil
}
