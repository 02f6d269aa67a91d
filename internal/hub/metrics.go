package hub

import (
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/metric"
)

var (
	// waitBuckets reach from a warm hand-off (milliseconds) to a pool at its limit.
	waitBuckets = []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}
	// answerBuckets reach from a read to a request that waits for the disk.
	answerBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 10}

	byPool = []string{"pool"}

	runQueue   = metric.Definition{Name: "cloop_run_queue_seconds", Kind: metric.Histogram, Help: "Time from the queue to a runner.", Labels: byPool, Buckets: waitBuckets}
	runStart   = metric.Definition{Name: "cloop_run_start_seconds", Kind: metric.Histogram, Help: "Time from the queue to the start of the command.", Labels: byPool, Buckets: waitBuckets}
	runSettled = metric.Definition{Name: "cloop_runs_settled_total", Kind: metric.Counter, Help: "Runs settled, by the state that they ended in.", Labels: []string{"pool", "state"}}

	poolMints       = metric.Definition{Name: "cloop_executor_pool_mints_total", Kind: metric.Counter, Help: "Runner tokens minted.", Labels: byPool}
	poolRefused     = metric.Definition{Name: "cloop_executor_pool_mint_refusals_total", Kind: metric.Counter, Help: "Requests for a runner token that the hub refused, by the problem's code.", Labels: []string{"pool", "code"}}
	poolRetirements = metric.Definition{Name: "cloop_executor_pool_retirements_total", Kind: metric.Counter, Help: "Runners retired.", Labels: byPool}

	syncDuration = metric.Definition{Name: "cloop_fleet_sync_duration_seconds", Kind: metric.Histogram, Help: "Time of a Git sync that found a new revision.", Labels: []string{"sync"}, Buckets: waitBuckets}
	syncResults  = metric.Definition{Name: "cloop_fleet_syncs_total", Kind: metric.Counter, Help: "Looks at a fleet repository, by how the sync stood afterwards.", Labels: []string{"sync", "state"}}
	syncStatuses = metric.Definition{Name: "cloop_fleet_statuses_total", Kind: metric.Counter, Help: "Commit statuses for the forge, by what came of them.", Labels: []string{"sync", "result"}}
	syncWebhooks = metric.Definition{Name: "cloop_fleet_webhooks_total", Kind: metric.Counter, Help: "Events from the forge for a sync, by what came of them.", Labels: []string{"sync", "result"}}

	storeCommit = metric.Definition{Name: "cloop_store_commit_seconds", Kind: metric.Histogram, Help: "Time that one commit to the database takes.", Buckets: answerBuckets}
	storeBatch  = metric.Definition{Name: "cloop_store_commit_changes", Kind: metric.Histogram, Help: "Changes that share one commit.", Buckets: []float64{1, 2, 4, 8, 16, 32, 64}}

	httpDuration = metric.Definition{Name: "cloop_http_request_duration_seconds", Kind: metric.Histogram, Help: "Time of a request that is no stream.", Labels: []string{"route"}, Buckets: answerBuckets}
	httpRequests = metric.Definition{Name: "cloop_http_requests_total", Kind: metric.Counter, Help: "Requests by HTTP status. A stream counts when it ends.", Labels: []string{"route", "status"}}
	httpLimited  = metric.Definition{Name: "cloop_http_rate_limited_total", Kind: metric.Counter, Help: "Requests that a rate limit refused, by the limit's name in the hub's configuration.", Labels: []string{"limit"}}
	httpStreams  = metric.Definition{Name: "cloop_http_streams", Kind: metric.Gauge, Help: "Open watches and logs that are followed.", Labels: []string{"route"}}
)

// metrics are the hub's that count what happens.
type metrics struct {
	registry *prometheus.Registry
	queued   *prometheus.HistogramVec
	started  *prometheus.HistogramVec
	mints    *prometheus.CounterVec
	refused  *prometheus.CounterVec
	retired  *prometheus.CounterVec
	settled  *prometheus.CounterVec
	synced   *prometheus.HistogramVec
	syncs    *prometheus.CounterVec
	statuses *prometheus.CounterVec
	webhooks *prometheus.CounterVec
	commits  *prometheus.HistogramVec
	batches  *prometheus.HistogramVec
	answered *prometheus.HistogramVec
	requests *prometheus.CounterVec
	rates    *prometheus.CounterVec
	streams  *prometheus.GaugeVec
	// open is how many streams there are.
	open atomic.Int64
}

func newMetrics() *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		queued:   runQueue.NewHistogram(), started: runStart.NewHistogram(), settled: runSettled.NewCounter(),
		mints: poolMints.NewCounter(), refused: poolRefused.NewCounter(), retired: poolRetirements.NewCounter(),
		synced: syncDuration.NewHistogram(), syncs: syncResults.NewCounter(),
		statuses: syncStatuses.NewCounter(), webhooks: syncWebhooks.NewCounter(),
		commits: storeCommit.NewHistogram(), batches: storeBatch.NewHistogram(),
		answered: httpDuration.NewHistogram(), requests: httpRequests.NewCounter(), rates: httpLimited.NewCounter(), streams: httpStreams.NewGauge(),
	}
	m.registry.MustRegister(m.queued, m.started, m.mints, m.refused, m.retired, m.settled, m.synced, m.syncs, m.statuses, m.webhooks,
		m.commits, m.batches, m.answered, m.requests, m.rates, m.streams,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Metrics lists the hub's metrics, beside those of the Go runtime and of the
// process.
func Metrics() []metric.Definition {
	return append([]metric.Definition{
		runQueue, runStart, runSettled, poolMints, poolRefused, poolRetirements,
		syncDuration, syncResults, syncStatuses, syncWebhooks, storeCommit, storeBatch, httpDuration, httpRequests, httpLimited, httpStreams,
	}, gauges...)
}

// observe counts a committed change.
func (m *metrics) observe(e store.Event) {
	switch e.Action {
	case store.ActionRunHand:
		m.queued.WithLabelValues(e.Pool).Observe(e.Took.Seconds())
	case store.ActionRunStarted:
		m.started.WithLabelValues(e.Pool).Observe(e.Took.Seconds())
	case store.ActionRunnerMint, store.ActionRunnerRemint:
		m.mints.WithLabelValues(e.Pool).Inc()
	case store.ActionRunnerRetired:
		m.retired.WithLabelValues(e.Pool).Inc()
	case store.ActionRunSettled:
		m.settled.WithLabelValues(e.Pool, e.State).Inc()
	}
}

// committed measures one commit.
func (m *metrics) committed(changes int, took time.Duration) {
	m.commits.WithLabelValues().Observe(took.Seconds())
	m.batches.WithLabelValues().Observe(float64(changes))
}

// limited counts a request that a rate limit refused.
func (m *metrics) limited(by api.Limit) { m.rates.WithLabelValues(string(by)).Inc() }

// mintRefused counts a token that a controller asked for and did not get.
func (m *metrics) mintRefused(pool string, code hubv1.Code) {
	m.refused.WithLabelValues(pool, string(code)).Inc()
}
