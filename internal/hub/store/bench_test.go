package store_test

import (
	"bytes"
	"database/sql"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/postgrestest"
)

// durable is a database whose commits are on disk when they are answered.
type durable struct {
	options store.Options
	// plain opens a second, empty database of the same kind, and takes a row.
	plain *sql.DB
}

// eachDurable runs a benchmark on both databases.
func eachDurable(b *testing.B, run func(*testing.B, durable)) {
	b.Run("sqlite", func(b *testing.B) {
		plain, err := sql.Open("sqlite", "file:"+filepath.Join(b.TempDir(), "plain.db")+"?_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)")
		check(b, err)
		run(b, durable{store.Options{Dir: b.TempDir()}, plain})
	})
	b.Run("postgres", func(b *testing.B) {
		postgrestest.Shared(b) // says what is missing
		server, err := postgrestest.Start(postgrestest.ServerOptions{Durable: true, Settings: map[string]string{"shared_buffers": "128MB"}})
		check(b, err)
		b.Cleanup(server.Stop)
		plain, err := sql.Open("pgx", server.URL("postgres"))
		check(b, err)
		hub := server.NewDatabase(b, "")
		run(b, durable{store.Options{URL: server.URL(hub)}, plain})
	})
}

// busy is a hub with a pool of so many runners, by the real clock.
type busy struct {
	b          *testing.B
	s          *store.Store
	credential store.Credential
	keys       atomic.Int64
}

func (d durable) busy(b *testing.B, maximum int32) *busy {
	b.Helper()
	d.options.Clock, d.options.Limits = clock.RealClock{}, store.Limits{LogBytes: math.MaxInt64}
	s, err := store.Open(background, d.options)
	check(b, err)
	b.Cleanup(func() { check(b, s.Close()) })
	w := &world{s: s}
	w.furnish(b, maximum)
	return &busy{b: b, s: s, credential: w.credential}
}

// each does something n times at once.
func each(n int, do func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { do(i) })
	}
	group.Wait()
}

func (h *busy) queue(n int) {
	each(n, func(int) {
		_, err := h.s.StartRun(background, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
		if err != nil {
			h.b.Error(err)
		}
	})
}

// enroll is n runners that are idle and do not listen yet.
func (h *busy) enroll(n int) []store.Runner {
	out := make([]store.Runner, n)
	each(n, func(i int) {
		minted, err := h.s.Mint(background, h.credential, fmt.Sprintf("key-%08d", h.keys.Add(1)))
		if err != nil {
			h.b.Error(err)
			return
		}
		enrolled, err := h.s.Enroll(background, hubv1.EnrollRequest{Token: minted.Token, Name: "runner"})
		if err != nil {
			h.b.Error(err)
			return
		}
		if out[i], err = h.s.AuthRunner(background, enrolled.Session); err != nil {
			h.b.Error(err)
		}
	})
	return out
}

// finish ends what a runner holds, and the runner.
func (h *busy) finish(r store.Runner) {
	snapshot, err := h.s.RunnerSnapshot(background, r)
	if err == nil && snapshot.Run != nil {
		exit := int32(0)
		err = h.s.Result(background, r, snapshot.Run.RunID, hubv1.ResultRequest{Attempt: snapshot.Run.Attempt, ExitCode: &exit})
	}
	if err == nil {
		err = h.s.Bye(background, r, "")
	}
	if err != nil {
		h.b.Error(err)
	}
}

// BenchmarkHandOffs measures how many queued runs a second reach runners that
// begin to listen, a hundred at a time while a thousand wait: from the runner's
// watch to its having the run. Beside it, in the same run: durable commits of
// one row, one after the other.
func BenchmarkHandOffs(b *testing.B) {
	const runs, runners = 1000, 100
	eachDurable(b, func(b *testing.B, d durable) {
		h := d.busy(b, runners)
		var took, whole time.Duration
		rounds := 0
		for b.Loop() {
			rounds++
			began := time.Now()
			h.queue(runs)
			for range runs / runners {
				idle := h.enroll(runners)
				detach := make([]func(), runners)
				start := time.Now()
				each(runners, func(i int) {
					var err error
					if detach[i], err = h.s.Attach(background, idle[i]); err != nil {
						b.Error(err)
						return
					}
					if snapshot, err := h.s.RunnerSnapshot(background, idle[i]); err != nil || snapshot.Run == nil {
						b.Errorf("the runner has %+v, %v", snapshot, err)
					}
				})
				took += time.Since(start)
				each(runners, func(i int) { h.finish(idle[i]); detach[i]() })
			}
			whole += time.Since(began)
		}
		b.ReportMetric(float64(rounds*runs)/took.Seconds(), "handoffs/s")
		b.ReportMetric(float64(rounds*runs)/whole.Seconds(), "wholelives/s")
		b.ReportMetric(commits(b, d.plain), "commits/s")
		b.ReportMetric(0, "ns/op")
	})
}

// commits is how many durable commits of one row a second go one after the
// other.
func commits(b *testing.B, plain *sql.DB) float64 {
	b.Helper()
	defer func() { check(b, plain.Close()) }()
	plain.SetMaxOpenConns(1)
	_, err := plain.Exec("CREATE TABLE one (n INTEGER)")
	check(b, err)
	const n = 500
	start := time.Now()
	for range n {
		_, err := plain.Exec("INSERT INTO one VALUES (1)")
		check(b, err)
	}
	return n / time.Since(start).Seconds()
}

// BenchmarkQueuedToHanded measures from the request that starts a run to the
// runner, which waits, having it.
func BenchmarkQueuedToHanded(b *testing.B) {
	const samples = 100
	eachDurable(b, func(b *testing.B, d durable) {
		h := d.busy(b, samples)
		far := h.s
		measure := func(name string, at *store.Store) {
			b.Run(name, func(b *testing.B) {
				var took []time.Duration
				for b.Loop() {
					for _, r := range h.enroll(samples) {
						took = append(took, h.handed(r, at))
					}
				}
				slices.Sort(took)
				for _, p := range []int{50, 99} {
					b.ReportMetric(float64(took[min(len(took)*p/100, len(took)-1)].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
				}
				b.ReportMetric(0, "ns/op")
			})
		}
		measure("here", h.s)
		if d.options.URL == "" {
			return
		}
		d.options.Clock = clock.RealClock{}
		far, err := store.Open(background, d.options)
		check(b, err)
		b.Cleanup(func() { check(b, far.Close()) })
		measure("at another member", far)
	})
}

// handed starts a run at a member and returns how long it took to reach the
// runner that waits here.
func (h *busy) handed(r store.Runner, at *store.Store) time.Duration {
	detach, err := h.s.Attach(background, r)
	check(h.b, err)
	defer detach()
	sub := h.s.Bus.Subscribe(store.RunnerTopic(r.ID))
	defer sub.Close()
	start := time.Now()
	_, err = at.StartRun(background, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
	check(h.b, err)
	for {
		snapshot, err := h.s.RunnerSnapshot(background, r)
		check(h.b, err)
		if snapshot.Run != nil {
			break
		}
		<-sub.C
	}
	took := time.Since(start)
	h.finish(r)
	return took
}

// BenchmarkMints asks for a thousand runners at once of a pool that may have a
// hundred, half of them at another member where there can be one.
func BenchmarkMints(b *testing.B) {
	const asked, maximum = 1000, 100
	eachDurable(b, func(b *testing.B, d durable) {
		h := d.busy(b, maximum)
		members := []*store.Store{h.s, h.s}
		if d.options.URL != "" {
			d.options.Clock = clock.RealClock{}
			second, err := store.Open(background, d.options)
			check(b, err)
			b.Cleanup(func() { check(b, second.Close()) })
			members[1] = second
		}
		var took time.Duration
		rounds := 0
		for b.Loop() {
			rounds++
			var mu sync.Mutex
			var ids []string
			start := time.Now()
			each(asked, func(i int) {
				out, err := members[i%2].Mint(background, h.credential, fmt.Sprintf("key-%d-%06d", rounds, i))
				if err != nil && codeOf(err) != hubv1.CodePoolAtMaximum {
					b.Error(err)
				}
				if err == nil {
					mu.Lock()
					ids = append(ids, out.RunnerID)
					mu.Unlock()
				}
			})
			took += time.Since(start)
			if len(ids) != maximum {
				b.Fatalf("%d of at most %d were minted", len(ids), maximum)
			}
			each(len(ids), func(i int) { must(b)(h.s.Retire(background, h.credential, ids[i])) })
		}
		b.ReportMetric(float64(rounds*asked)/took.Seconds(), "mints/s")
		b.ReportMetric(0, "ns/op")
	})
}

// BenchmarkLogIngest measures how much log eight runners can write at once, in
// the chunks that they send.
func BenchmarkLogIngest(b *testing.B) {
	const runners, chunks = 8, 8
	line := bytes.Repeat([]byte("a line of a log that somebody may want to read one day, or not\n"), 1<<20/64)
	eachDurable(b, func(b *testing.B, d durable) {
		h := d.busy(b, runners)
		h.queue(runners)
		busy := h.enroll(runners)
		each(runners, func(i int) { must(b)(h.s.Attach(background, busy[i])) })
		offsets := make([]int64, runners)
		var took time.Duration
		for b.Loop() {
			start := time.Now()
			each(runners, func(i int) {
				snapshot, err := h.s.RunnerSnapshot(background, busy[i])
				if err != nil {
					b.Error(err)
					return
				}
				for range chunks {
					if offsets[i], err = h.s.AppendLog(background, busy[i], snapshot.Run.RunID, offsets[i], line); err != nil {
						b.Error(err)
						return
					}
				}
			})
			took += time.Since(start)
		}
		total := int64(0)
		for _, n := range offsets {
			total += n
		}
		b.ReportMetric(float64(total)/took.Seconds()/1e6, "MB/s")
		b.ReportMetric(0, "ns/op")
	})
}
