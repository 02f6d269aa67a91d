package e2e

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/dev"
)

// distribution collects what each iteration took and reports percentiles,
// since a mean hides the run that somebody waited for.
type distribution []time.Duration

func (d *distribution) add(took time.Duration) { *d = append(*d, took) }

func (d distribution) report(b *testing.B) {
	b.Helper()
	slices.Sort(d)
	for _, percent := range []int{50, 95, 99} {
		at := min(len(d)-1, len(d)*percent/100)
		b.ReportMetric(float64(d[at].Microseconds())/1000, fmt.Sprintf("p%d-ms", percent))
	}
	// The mean is what Go prints by itself; it says nothing here.
	b.ReportMetric(0, "ns/op")
}

// told brings a system up and tells the story as far as two warm pools.
func told(b *testing.B) *dev.System {
	b.Helper()
	system := up(b)
	story := dev.Story{System: system}
	if err := story.RunUntil(b.Context(), dev.Steps()[0]); err != nil {
		b.Fatal(err)
	}
	return system
}

// BenchmarkPushToApplied measures from the start of a push to the ExecutorPool
// in the cluster having the pushed value, with both sides poked as a webhook
// would.
func BenchmarkPushToApplied(b *testing.B) {
	system := told(b)
	fleet, err := system.Fleet(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	const file = "pools/base/agents.yaml"
	last := 4
	var took distribution
	for b.Loop() {
		next := 4 + (last-3)%50
		if err := fleet.Replace(file, fmt.Sprintf("maxRunners: %d", last), fmt.Sprintf("maxRunners: %d", next)); err != nil {
			b.Fatal(err)
		}
		if _, err := fleet.Commit(b.Context(), "Change the maximum"); err != nil {
			b.Fatal(err)
		}
		began := time.Now()
		if err := fleet.Push(b.Context()); err != nil {
			b.Fatal(err)
		}
		if err := system.Poke(b.Context()); err != nil {
			b.Fatal(err)
		}
		eventually(b, func(ctx context.Context) bool {
			var pool v1alpha1.ExecutorPool
			err := system.Cluster.Get(ctx, client.ObjectKey{Namespace: dev.PoolNamespace, Name: "agents"}, &pool)
			return err == nil && int(pool.Spec.MaxRunners) == next
		})
		took.add(time.Since(began))
		last = next
	}
	took.report(b)
}

// BenchmarkQueuedToPod measures from the hub queueing a run, on a pool with no
// runner, to the API server having its Pod.
func BenchmarkQueuedToPod(b *testing.B) {
	system := told(b)
	if err := system.Bind(b.Context(), "batch"); err != nil {
		b.Fatal(err)
	}
	var took distribution
	for b.Loop() {
		pods, err := system.WatchPods(b.Context(), "batch")
		if err != nil {
			b.Fatal(err)
		}
		run, err := system.StartRun(b.Context(), "true")
		if err != nil {
			b.Fatal(err)
		}
		created, err := pods.First(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		pods.Stop()
		took.add(created.Sub(run.QueuedAt))
		settle(b, system, run.ID, "batch", 0)
	}
	took.report(b)
}

// BenchmarkWarmStart measures from the hub queueing a run to its command
// starting, on a pool whose runner waits. It includes the clone.
func BenchmarkWarmStart(b *testing.B) {
	benchmarkStart(b, "agents", 1)
}

// BenchmarkColdStart is the same on a pool with no runner.
func BenchmarkColdStart(b *testing.B) {
	benchmarkStart(b, "batch", 0)
}

func benchmarkStart(b *testing.B, pool string, idle int32) {
	system := told(b)
	if err := system.Bind(b.Context(), pool); err != nil {
		b.Fatal(err)
	}
	var took distribution
	for b.Loop() {
		run, err := system.StartRun(b.Context(), "true")
		if err != nil {
			b.Fatal(err)
		}
		took.add(settle(b, system, run.ID, pool, idle))
	}
	took.report(b)
}

// settle waits until a run has ended and its pool has as many idle runners as
// before and none besides, and says how long after queueing the command
// started.
func settle(b *testing.B, system *dev.System, id, pool string, idle int32) time.Duration {
	b.Helper()
	run, err := system.Settled(b.Context(), id)
	if err != nil {
		b.Fatal(err)
	}
	if run.StartedAt == nil {
		b.Fatalf("run %s is %s: %s", id, run.State, run.Reason)
	}
	eventually(b, func(ctx context.Context) bool {
		p, err := system.Hub.GetPool(ctx, pool)
		return err == nil && p.Runners.Idle == idle && p.Runners.Starting+p.Runners.Busy+p.Runners.Retiring == 0
	})
	return run.StartedAt.Sub(run.QueuedAt)
}

// BenchmarkIdle measures what a system with two pools costs while nothing
// happens, over one minute: memory of each part and the requests that the
// executor controller sends to the API server beside watches and its Lease.
// It measures once, however many iterations it is asked for.
func BenchmarkIdle(b *testing.B) {
	system := told(b)
	// The first moments hold what the story caused.
	pause(b, 20*time.Second)
	before := requests(b, system)
	pause(b, time.Minute)
	b.ReportMetric(requests(b, system)-before, "API-requests/min")
	for _, part := range dev.Crashable() {
		b.ReportMetric(resident(b, system.PID(part)), part+"-MiB")
	}
	b.ReportMetric(0, "ns/op")
}

// pause lets real time pass: what an idle system does is the measurement.
func pause(b *testing.B, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-b.Context().Done():
	}
}

// resident is a process's resident memory in MiB.
func resident(b *testing.B, pid int) float64 {
	b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, found := strings.CutPrefix(line, "VmRSS:"); found {
			kib, err := strconv.ParseFloat(strings.Fields(value)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib / 1024
		}
	}
	b.Fatalf("process %d has no VmRSS", pid)
	return 0
}

// requests counts what the executor controller has asked of the API server,
// without its Lease (PUT) and without watches, which count when they end.
func requests(b *testing.B, system *dev.System) float64 {
	b.Helper()
	var total float64
	samples(b, system.MetricsURL(dev.Crashable()[1]), func(name string, value float64) {
		if strings.HasPrefix(name, "rest_client_requests_total{") && !strings.Contains(name, `method="PUT"`) {
			total += value
		}
	})
	if total == 0 {
		b.Fatal("the controller's metrics count no request")
	}
	return total
}

// samples reads metrics.
func samples(b *testing.B, url string, each func(name string, value float64)) {
	b.Helper()
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, url, nil)
	if err != nil {
		b.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "#") {
			continue
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			b.Fatal(err)
		}
		each(name, value)
	}
}

func eventually(b *testing.B, holds func(context.Context) bool) {
	b.Helper()
	err := wait.PollUntilContextTimeout(b.Context(), 5*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return holds(ctx), nil
	})
	if err != nil {
		b.Fatal(err)
	}
}
