package hub

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

const (
	// firstRetry and lastRetry bound the wait after a repository could not be
	// read.
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
	// syncTimeout bounds one look at a repository with all that follows.
	syncTimeout = 2 * time.Minute
	// maxMessage bounds what a sync says, in bytes.
	maxMessage = 8 << 10
)

// syncs follows the configured repositories.
type syncs struct {
	store *store.Store
	// followers: sync name → its follower.
	followers map[string]*follower
	// validator is the process's only one: it keeps what it compiles.
	validator *schemas.Validator
}

// newSyncs prepares the followers and lets pools of syncs go that are not
// configured any more.
func newSyncs(ctx context.Context, o Options, data *store.Store, m *metrics) (*syncs, error) {
	validator, err := schemas.NewValidator()
	if err != nil {
		return nil, fmt.Errorf("load the schemas: %w", err)
	}
	sweepClones(o)
	out := &syncs{store: data, followers: map[string]*follower{}, validator: validator}
	var records []hubv1.Sync
	// Rendering is what takes memory here, so one repository at a time does.
	rendering := &sync.Mutex{}
	for _, config := range o.Syncs {
		records = append(records, hubv1.Sync{Name: config.Name, Repository: config.URL, Path: config.Path})
		out.followers[config.Name] = &follower{
			config: config, dir: cloneDir(o), store: data, validator: validator, clock: o.Clock,
			log: o.Log.With("sync", config.Name), metrics: m, wake: data.Bus.Subscribe(store.PokeTopic(config.Name)).C, pushed: data.Bus.Subscribe(store.PushTopic(config.Name)).C, rendering: rendering,
			poster: newPoster(o, config, m),
		}
	}
	if err := data.KeepSyncs(ctx, records); err != nil {
		return nil, fmt.Errorf("keep the configured syncs: %w", err)
	}
	return out, nil
}

// cloneDir is where the clones are, each below the name of its sync.
func cloneDir(o Options) string { return filepath.Join(o.DataDir, "git") }

// sweepClones removes the clones of syncs that are not configured any more.
func sweepClones(o Options) {
	keep := []string{projectsDir}
	for _, config := range o.Syncs {
		keep = append(keep, config.Name)
	}
	removed, err := fleet.Sweep(cloneDir(o), keep)
	if err != nil {
		o.Log.Error("clones of syncs that are gone stay behind", "error", err)
	}
	if len(removed) > 0 {
		o.Log.Info("removes clones of syncs that are gone", "dirs", removed)
	}
}

// run follows every repository until the context ends.
func (s *syncs) run(ctx context.Context) {
	var group sync.WaitGroup
	for _, f := range s.followers {
		group.Go(func() { s.store.Alone(ctx, "sync "+f.config.Name, f.work) })
	}
	group.Wait()
}

// follower keeps the pools of one repository as it defines them. One goroutine
// uses it; others poke it.
type follower struct {
	config    SyncConfig
	dir       string
	store     *store.Store
	validator *schemas.Validator
	clock     clock.WithTicker
	log       *slog.Logger
	metrics   *metrics
	// wake and pushed have a value when somebody asks for a look and when a forge
	// says that there is something new, which is debounced; at any hub.
	wake, pushed <-chan struct{}
	// poster tells the forge what becomes of commits; nil where it need not know.
	poster *poster
	// hook takes the forge's events; nil where it sends none.
	hook *webhook
	// looked is when the last look began.
	looked time.Time
	// rendering guards the memory that rendering takes, over all followers.
	rendering *sync.Mutex

	git *fleet.Git
	// auth is what git was opened with.
	auth fleet.Auth
	// built is the revision that documents come from; empty before the first.
	built     string
	documents []store.PoolDocument
	// besides are problems that come with them and are of none.
	besides []string
	// before is the revision that was looked at last, and rewritten what was said of
	// the history that led to it; both are empty in a new process.
	before, rewritten string
	// closure is the digest of all text that they are made of; empty: it is not
	// known. builder remembers what it built last; nil before the first build.
	closure string
	builder *fleet.Builder
	// refused is the newest revision that did not build or validate, and why: it
	// is not built again unless somebody asks.
	refused    string
	refusedErr error
	// waiting is set while a pool's document is back but the pool still drains.
	waiting  bool
	failures int
}

// push says that the forge has new commits, at whichever hub the sync runs,
// unless that was said before.
func (f *follower) push(ctx context.Context, identities []string) (first bool, err error) {
	return f.store.Pushed(ctx, f.config.Name, identities)
}

// work follows the repository and tells its forge, until the context ends.
func (f *follower) work(ctx context.Context) {
	var posting sync.WaitGroup
	if f.poster != nil {
		posting.Go(func() { f.poster.run(ctx) })
	}
	f.run(ctx)
	posting.Wait()
}

// nudge wakes whoever reads from a channel that holds one.
func nudge(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default: // it is awake already
	}
}

func (f *follower) run(ctx context.Context) {
	revoked := f.store.Bus.Subscribe(store.RevokedTopic)
	defer revoked.Close()
	for ctx.Err() == nil {
		due := f.once(ctx)
		if !f.sleep(ctx, due, revoked) {
			return
		}
	}
}

// pushGap is the least time between two looks that pushes cause: the first is
// looked at right away, and a hundred that follow it together.
const pushGap = 5 * time.Second

// sleep waits until the sync is due again: by the clock, because somebody asks
// or pushes, or because a pool that it waits for is drained.
func (f *follower) sleep(ctx context.Context, due time.Time, revoked *store.Subscription) bool {
	for {
		timer := f.clock.NewTimer(due.Sub(f.clock.Now()))
		// A clock that moved on before the timer was there would never fire it.
		if !f.clock.Now().Before(due) {
			timer.Stop()
			return ctx.Err() == nil
		}
		over := f.pause(ctx, timer.C(), &due, revoked)
		timer.Stop()
		if over {
			return ctx.Err() == nil
		}
	}
}

// pause waits for the next thing that happens, and says whether the wait is
// over; it may bring the time nearer at which it is due.
func (f *follower) pause(ctx context.Context, timer <-chan time.Time, due *time.Time, revoked *store.Subscription) bool {
	select {
	case <-timer:
		return true
	case <-f.wake:
		f.refused = ""
		return true
	case <-f.pushed:
		if next := f.looked.Add(pushGap); next.Before(*due) {
			*due = next
		}
		return false
	case <-revoked.C:
		return f.waiting
	case <-ctx.Done():
		return true
	}
}

// once looks at the repository, applies what it says, records how that went,
// and returns when to look again. That is a point in time, counted from the
// look itself, so that the clock may move on before anybody waits for it.
func (f *follower) once(ctx context.Context) time.Time {
	bounded, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	f.looked = f.clock.Now()
	record, _, err := f.store.GetSync(ctx, f.config.Name)
	if err != nil {
		return f.clock.Now().Add(f.retry(ctx, err))
	}
	before := record
	message, err := f.sync(bounded, &record)
	if ctx.Err() != nil {
		// The hub stops: what broke off says nothing about the repository.
		return time.Time{}
	}
	now := f.clock.Now().UTC()
	record.LastRun = &now
	wait := f.jittered(f.config.Interval)
	if err != nil {
		record.State, record.Message = hubv1.SyncFailed, printable.Clip(secret.Redact(err.Error()), maxMessage)
		if errors.Is(err, fleet.ErrSource) {
			wait = f.retry(ctx, nil)
		}
	} else {
		record.State, record.Message = hubv1.SyncReady, message
		if f.waiting {
			record.State = hubv1.SyncPending
		}
		f.failures = 0
	}
	if before.State != record.State || before.Message != record.Message {
		f.log.Info("sync is "+string(record.State), "revision", record.LastAttemptedRevision, "message", record.Message)
	}
	f.metrics.syncs.WithLabelValues(f.config.Name, string(record.State)).Inc()
	f.poster.say(record, err)
	if err := f.store.SaveSync(ctx, record); err != nil {
		return now.Add(f.retry(ctx, err))
	}
	return now.Add(wait)
}

// retry is how long to wait before trying again after a failure that will pass.
func (f *follower) retry(ctx context.Context, err error) time.Duration {
	if err != nil && ctx.Err() == nil {
		f.log.Error("sync cannot use the database", "error", err)
	}
	wait := retry.After(f.failures, firstRetry, min(lastRetry, f.config.Interval))
	f.failures++
	return f.jittered(wait)
}

// jittered spreads looks at one Git server over a tenth to either side.
func (f *follower) jittered(wait time.Duration) time.Duration {
	return wait - wait/10 + rand.N(wait/5+1) //nolint:gosec // spreads load, guards nothing
}

// sync brings the pools to what the repository says and says what it did. A document
// that may not be applied keeps back itself alone, and the error says so; any other
// error is of a revision that changed nothing. It keeps the revisions in the record.
func (f *follower) sync(ctx context.Context, record *hubv1.Sync) (string, error) {
	began := f.clock.Now()
	if err := f.open(); err != nil {
		return "", err
	}
	found, err := f.git.Follow(ctx, f.config.Ref, f.before)
	if err != nil {
		return "", err
	}
	revision := found.Commit
	record.LastAttemptedRevision = revision
	// Signers come and go, so this is asked at each look.
	by, err := f.config.verify(ctx, f.git, found, f.clock.Now())
	if err != nil {
		return "", err
	}
	fresh := revision != f.built
	if fresh && revision == f.refused {
		return "", f.refusedErr
	}
	if fresh {
		err := f.build(ctx, record)
		f.tellHistory(ctx, found)
		if err != nil {
			if !errors.Is(err, fleet.ErrSource) && ctx.Err() == nil {
				f.refused, f.refusedErr = record.LastAttemptedRevision, err
			}
			return "", err
		}
		f.built = revision
	}
	applied, err := f.store.ApplyDocuments(ctx, store.Revision{Sync: f.config.Name, Commit: revision, Allow: f.config.Allow, Limit: f.config.PruneLimit}, f.documents)
	if err != nil {
		return "", fmt.Errorf("revision %s is not applied: %w", fleet.Short(revision), err)
	}
	f.waiting = len(applied.Waiting) > 0
	now := f.clock.Now().UTC()
	record.Pools = names(f.documents)
	record.HeldBack = dated(applied.HeldBack, record.HeldBack, maxHeldBack, now, func(h *hubv1.HeldBack) (string, *time.Time) { return h.Pool, &h.Since })
	record.Observed = dated(applied.Observed, record.Observed, maxObserved, now, func(o *hubv1.Observed) (string, *time.Time) { return o.Pool, &o.Since })
	record.PruneWaits = waitingSince(applied.PruneWaits, record.PruneWaits, now)
	if fresh {
		f.metrics.synced.WithLabelValues(f.config.Name).Observe(f.clock.Since(began).Seconds())
	}
	if err := f.partly(revision, applied); err != nil {
		return "", err
	}
	record.LastAppliedRevision = revision
	return f.message(found, by, applied), nil
}

// waitingSince is what waits for an approval now, since when something does.
func waitingSince(now, before *hubv1.PruneWaits, at time.Time) *hubv1.PruneWaits {
	if now == nil {
		return nil
	}
	now.Since = at
	if before != nil {
		now.Since = before.Since
	}
	return now
}

// maxNamed bounds how many pools a message names.
const maxNamed = 5

// maxHeldBack bounds how many documents a sync's record lists that are held back.
const maxHeldBack = 200

// dated are documents that are not applied now, as far as a record lists them, since
// when each is: as those of before, by pool.
func dated[T any](now, before []T, most int, at time.Time, fields func(*T) (pool string, since *time.Time)) []T {
	since := map[string]time.Time{}
	for i := range before {
		pool, was := fields(&before[i])
		since[pool] = *was
	}
	now = now[:min(len(now), most)]
	for i := range now {
		pool, is := fields(&now[i])
		*is = at
		if was, known := since[pool]; known {
			*is = was
		}
	}
	return now
}

// maxObserved bounds how many documents a sync's record lists that are only compared.
const maxObserved = 1000

// partly says of a revision that is not applied whole what is missing of it and why.
func (f *follower) partly(revision string, applied store.Applied) error {
	var problems []string
	for _, held := range applied.HeldBack {
		problems = append(problems, held.Problems...)
	}
	what := ""
	if len(problems) > 0 {
		what = "; held back: " + strings.Join(problems, "; ")
	}
	if n := len(applied.Kept); n > 0 {
		what += fmt.Sprintf("; %s that Git lacks %s kept until what is new is applied: %s", count.Of(n, "pool"), count.Is(n), strings.Join(count.First(applied.Kept, maxNamed), ", "))
	}
	if w := applied.PruneWaits; w != nil {
		what += fmt.Sprintf("; %s; they stay until somebody says that they may go: %s",
			f.config.PruneLimit.Refusal("it", w.Pools, w.Of, "pool"), store.ApprovePruneCommand(f.config.Name, w.Revision))
	}
	if len(f.besides) > 0 {
		what += "; not applied by the hub, and not sound: " + strings.Join(f.besides, "; ")
	}
	if what == "" {
		return nil
	}
	return fmt.Errorf("applied %d of %s of %s%s%s", len(f.documents)-len(applied.HeldBack), count.Of(len(f.documents), "pool"), fleet.Short(revision), what, notes(applied))
}

// tellHistory notes what was done to the branch or tag that is followed.
func (f *follower) tellHistory(ctx context.Context, found fleet.Revision) {
	said, err := f.git.Rewritten(ctx, f.before, found)
	if err != nil {
		f.log.Debug("sync does not know what became of the history", "before", f.before, "revision", found.String(), "error", err)
	}
	if said != "" {
		f.log.Warn("sync sees history rewritten", "before", f.before, "revision", found.String())
	}
	f.before, f.rewritten = found.String(), said
}

// open opens the repository, again when its credential or certificates have
// changed.
func (f *follower) open() error {
	auth, err := f.config.auth()
	if err != nil {
		return err
	}
	if f.git != nil && f.auth.Same(auth) {
		return nil
	}
	git, err := fleet.OpenGit(filepath.Join(f.dir, f.config.Name), f.config.URL, auth)
	if err != nil {
		return err
	}
	f.git, f.auth = git, auth
	return nil
}

// message says what a revision's documents came to, and who signed it.
func (f *follower) message(revision fleet.Revision, by string, applied store.Applied) string {
	followed := f.config.Ref
	if revision.Tag != "" {
		// A range has come to one of its tags.
		followed = fleet.Ref{Tag: revision.Tag}
	}
	text := fmt.Sprintf("%s at %s defines %s", followed, fleet.Short(revision.Commit), count.Of(len(f.documents)-len(applied.Observed), "pool"))
	if by != "" {
		text += "; signed by " + by
	}
	if f.rewritten != "" {
		text += "; " + f.rewritten
	}
	return text + notes(applied)
}

// notes say of pools that are not, or not under the name, what their documents say.
func notes(applied store.Applied) string {
	text := ""
	if n := len(applied.Observed); n > 0 {
		text += fmt.Sprintf("; %d more %s only compared", n, count.Is(n))
		if n > maxObserved {
			text += fmt.Sprintf(", of which the first %d show drift", maxObserved)
		}
	}
	for _, to := range slices.Sorted(maps.Keys(applied.Renamed)) {
		text += fmt.Sprintf("; %s is %s now", applied.Renamed[to], to)
	}
	for _, part := range []struct {
		names []string
		what  string
	}{
		{applied.Waiting, "come back once they are drained"},
		{applied.Revoked, "were revoked by hand and stay so until their document changes"},
	} {
		if len(part.names) > 0 {
			text += "; " + strings.Join(part.names, ", ") + " " + part.what
		}
	}
	return text
}

func names(documents []store.PoolDocument) []string {
	out := make([]string, 0, len(documents))
	for _, d := range documents {
		out = append(out, d.Name)
	}
	slices.Sort(out)
	return out
}
