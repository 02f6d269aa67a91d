package hub

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// metrics are the hub's. Labels are pools, syncs and states, never a run, a
// runner, a project or a person.
type metrics struct {
	registry *prometheus.Registry
	queued   *prometheus.HistogramVec
	started  *prometheus.HistogramVec
	mints    *prometheus.CounterVec
	retired  *prometheus.CounterVec
	settled  *prometheus.CounterVec
	synced   *prometheus.HistogramVec
	statuses *prometheus.CounterVec
	webhooks *prometheus.CounterVec
}

// waitBuckets reach from a warm hand-off (milliseconds) to a pool at its limit.
var waitBuckets = []float64{.002, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800}

func newMetrics() *metrics {
	histogram := func(name, help, label string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: waitBuckets}, []string{label})
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &metrics{
		registry: prometheus.NewRegistry(),
		queued:   histogram("cloop_run_queue_seconds", "Time from the queue to a runner.", "pool"),
		started:  histogram("cloop_run_start_seconds", "Time from the queue to the start of the command.", "pool"),
		mints:    counter("cloop_executor_pool_mints_total", "Runner tokens minted.", "pool"),
		retired:  counter("cloop_executor_pool_retirements_total", "Runners retired.", "pool"),
		settled:  counter("cloop_runs_settled_total", "Runs settled, by how they ended.", "pool", "state"),
		synced:   histogram("cloop_fleet_sync_duration_seconds", "Time of a Git sync that found a new revision.", "sync"),
		statuses: counter("cloop_fleet_statuses_total", "Commit statuses for the forge, by what came of them.", "sync", "result"),
		webhooks: counter("cloop_fleet_webhooks_total", "Events from the forge for a sync, by what came of them.", "sync", "result"),
	}
	m.registry.MustRegister(m.queued, m.started, m.mints, m.retired, m.settled, m.synced, m.statuses, m.webhooks,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
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

var (
	demandDesc  = prometheus.NewDesc("cloop_executor_pool_demand", "Runs that wait for the pool.", []string{"pool"}, nil)
	runnersDesc = prometheus.NewDesc("cloop_executor_pool_runners", "Runners of the pool that are not retired, by state.", []string{"pool", "state"}, nil)
)

// poolCollector reads the gauges from the database when they are asked for, so
// that they cannot drift from it.
type poolCollector struct{ store *store.Store }

// scrapeTimeout bounds the reading of one scrape.
const scrapeTimeout = 5 * time.Second

// Describe tells prometheus what Collect gives.
func (c poolCollector) Describe(out chan<- *prometheus.Desc) {
	out <- demandDesc
	out <- runnersDesc
}

// Collect reads the pools.
func (c poolCollector) Collect(out chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeTimeout)
	defer cancel()
	pools, err := c.store.ListPools(ctx, false)
	if err != nil {
		out <- prometheus.NewInvalidMetric(demandDesc, err)
		return
	}
	for _, pool := range pools {
		demand := pool.Queued
		if pool.State != hubv1.PoolActive || pool.Cordon != nil {
			demand = 0
		}
		out <- prometheus.MustNewConstMetric(demandDesc, prometheus.GaugeValue, float64(demand), pool.Name)
		for state, n := range map[hubv1.RunnerState]int32{
			hubv1.RunnerStarting: pool.Runners.Starting, hubv1.RunnerIdle: pool.Runners.Idle,
			hubv1.RunnerBusy: pool.Runners.Busy, hubv1.RunnerRetiring: pool.Runners.Retiring,
		} {
			out <- prometheus.MustNewConstMetric(runnersDesc, prometheus.GaugeValue, float64(n), pool.Name, string(state))
		}
	}
}
