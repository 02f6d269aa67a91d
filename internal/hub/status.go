package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/secret"
)

const (
	// postPatience is for how long one status is tried before the others get
	// their turn.
	postPatience = 2 * time.Minute
	// postAgain is how long to wait after statuses were refused: somebody has to
	// correct the token or the configuration.
	postAgain = 5 * time.Minute
	// maxStatuses bounds how many wait while the forge cannot be reached. Those
	// of older commits are dropped: nobody waits for them any more.
	maxStatuses = 32
)

// poster tells a forge what becomes of the commits that a sync sees: one status
// for each. The follower says, and never waits; one goroutine posts.
type poster struct {
	config     SyncConfig
	repository forge.Repository
	clock      clock.WithTicker
	log        *slog.Logger
	metrics    *metrics
	wake       chan struct{}

	mu sync.Mutex
	// wanted are the statuses to post, one a revision, oldest first.
	wanted []forge.Status
	// said is what the follower said last.
	said forge.Status
	// failing is the failure that was logged last; empty after a success.
	failing string

	// What follows is the posting goroutine's own.

	client *forge.Client
	// token and bundle are what the client was made with.
	token  secret.String
	bundle []byte
}

// trouble says why statuses are not posted; empty where they are.
func (p *poster) trouble() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failing
}

// newPoster is nil where the sync posts nothing.
func newPoster(o Options, config SyncConfig, m *metrics) *poster {
	if config.Status == nil {
		return nil
	}
	repository, err := forge.Locate(config.URL, config.Status.Forge, config.Status.API)
	if err != nil {
		return nil // checkSyncs has refused it
	}
	return &poster{
		config: config, repository: repository, clock: o.Clock, log: o.Log.With("sync", config.Name), metrics: m, wake: make(chan struct{}, 1),
	}
}

// say tells what has become of the newest commit. A repository that cannot be
// read says nothing of any commit.
func (p *poster) say(record hubv1.Sync, err error) {
	if p == nil || record.LastAttemptedRevision == "" || errors.Is(err, fleet.ErrSource) {
		return
	}
	s := forge.Status{
		Revision: record.LastAttemptedRevision, Context: "cloop/" + p.config.Status.Name,
		Link: p.config.Status.Link,
	}
	if branch, is := strings.CutPrefix(p.config.Ref.Full(), "refs/heads/"); is {
		s.Branch = branch
	}
	if s.Link == "" {
		s.Link = p.repository.Tree(s.Revision, p.config.Path)
	}
	s.State, s.Description = verdictOn(record, err)
	p.mu.Lock()
	defer p.mu.Unlock()
	if s == p.said {
		return
	}
	p.said = s
	p.wanted = slices.DeleteFunc(p.wanted, func(w forge.Status) bool { return w.Revision == s.Revision })
	p.wanted = append(p.wanted, s)
	if len(p.wanted) > maxStatuses {
		p.wanted = slices.Delete(p.wanted, 0, len(p.wanted)-maxStatuses)
	}
	nudge(p.wake)
}

// verdictOn is what a status says of a sync's newest revision.
func verdictOn(record hubv1.Sync, err error) (forge.State, string) {
	switch {
	case err != nil && store.Trouble(err) != nil:
		return forge.Error, "the hub's storage does not work; the commit is not applied yet"
	case err != nil:
		// The forge shows the revision beside it already, and has room for a line.
		short := fleet.Short(record.LastAttemptedRevision)
		said := strings.TrimPrefix(err.Error(), fmt.Sprintf("revision %s is ", short))
		return forge.Failure, strings.Replace(said, fmt.Sprintf(" of %s; held back: ", short), ": ", 1)
	case record.State == hubv1.SyncPending:
		return forge.Pending, record.Message
	}
	return forge.Success, record.Message
}

// run posts until the context ends.
func (p *poster) run(ctx context.Context) {
	defer func() {
		if p.client != nil {
			p.client.Close()
		}
	}()
	for ctx.Err() == nil {
		sleep(ctx, p.clock, cmp.Or(p.round(ctx), never), p.wake)
	}
}

// round tries every status that waits, and returns how long to wait before the
// next; 0: nothing waits.
func (p *poster) round(ctx context.Context) time.Duration {
	p.mu.Lock()
	wanted := slices.Clone(p.wanted)
	p.mu.Unlock()
	var wait time.Duration
	for i, s := range wanted {
		err := p.post(ctx, s)
		if ctx.Err() != nil {
			return 0
		}
		p.tell(s, err)
		var refusal *forge.Refusal
		refused := errors.As(err, &refusal)
		final := refused && !refusal.Passes
		if err == nil || final && i < len(wanted)-1 {
			p.done(s)
			continue
		}
		wait = postAgain
		if refused && !refusal.Until.IsZero() {
			// The others would only be refused as well.
			return max(refusal.Until.Sub(p.clock.Now()), time.Second)
		}
	}
	return wait
}

// done forgets a status, unless something newer is to be said of the commit.
func (p *poster) done(s forge.Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = slices.DeleteFunc(p.wanted, func(w forge.Status) bool { return w == s })
}

func (p *poster) post(ctx context.Context, s forge.Status) error {
	client, err := p.connect()
	if err != nil {
		return err
	}
	posted, err := client.Publish(ctx, s)
	if err != nil {
		return err
	}
	result := "unchanged"
	if posted {
		result = "posted"
		p.log.Info("commit status is posted", "context", s.Context, "revision", s.Revision, "state", s.State)
	}
	p.metrics.statuses.WithLabelValues(p.config.Name, result).Inc()
	return nil
}

// connect returns the client, a new one when token or certificates have changed.
func (p *poster) connect() (*forge.Client, error) {
	token, err := readSecret("the forge's token", p.config.Status.TokenFile)
	if err != nil {
		return nil, err
	}
	var bundle []byte
	if file := p.config.Status.CAFile; file != "" {
		if bundle, err = readFile(context.Background(), file); err != nil {
			return nil, fmt.Errorf("read the certificates for the forge: %w", err)
		}
	}
	if p.client != nil && p.token.Equal(token) && slices.Equal(p.bundle, bundle) {
		return p.client, nil
	}
	client, err := forge.New(forge.Options{
		Repository: p.repository, Token: token, CABundle: bundle, Clock: p.clock, Patience: postPatience, UserAgent: "cloop-hub",
	})
	if err != nil {
		return nil, err
	}
	if p.client != nil {
		p.client.Close()
	}
	p.client, p.token, p.bundle = client, token, bundle
	return client, nil
}

// tell logs how posting goes, once per change.
func (p *poster) tell(s forge.Status, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil {
		p.failing = ""
		return
	}
	p.metrics.statuses.WithLabelValues(p.config.Name, "failed").Inc()
	if text := printable.Clip(secret.Redact(err.Error()), maxMessage); text != p.failing {
		p.failing = text
		p.log.Error("commit status is not posted", "context", s.Context, "revision", s.Revision, "error", err)
	}
}

// maxSecretFile is far above any token or secret.
const maxSecretFile = 64 << 10

// readSecret reads a secret from a file, without the line break at its end.
func readSecret(what, file string) (secret.String, error) {
	data, err := readFile(context.Background(), file)
	if err != nil {
		return secret.String{}, fmt.Errorf("read %s: %w", what, err)
	}
	if len(data) > maxSecretFile {
		return secret.String{}, fmt.Errorf("read %s: %s is no file of at most %d bytes", what, file, maxSecretFile)
	}
	text := strings.TrimSpace(string(data))
	if text == "" {
		return secret.String{}, fmt.Errorf("read %s: %s is empty", what, file)
	}
	return secret.New(text), nil
}
