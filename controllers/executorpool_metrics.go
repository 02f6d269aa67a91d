package controllers

import (
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/metric"
	"cloop.dev/cloop/internal/pool"
)

// surfaceHubCluster labels drift between the hub and a cluster.
const surfaceHubCluster = "hub-cluster"

// poolMetrics are the executor controller's metrics. Labels are bounded: the
// pool, and words from the code.
type poolMetrics struct {
	demand      *prometheus.GaugeVec
	runners     *prometheus.GaugeVec
	mints       *prometheus.CounterVec
	retirements *prometheus.CounterVec
	start       *prometheus.HistogramVec
	drifted     *prometheus.GaugeVec
	gotk        *gotkMetrics
}

var (
	byPool = []string{"namespace", "pool"}

	poolDemand      = metric.Definition{Name: "cloop_executor_pool_demand", Kind: metric.Gauge, Help: "Runs that wait at the hub for the pool.", Labels: byPool}
	poolRunners     = metric.Definition{Name: "cloop_executor_pool_runners", Kind: metric.Gauge, Help: "Runners of the pool in this cluster by state, and how many it wants (state desired).", Labels: []string{"namespace", "pool", "state"}}
	poolMints       = metric.Definition{Name: "cloop_executor_pool_mints_total", Kind: metric.Counter, Help: "Requests for a runner token by the hub's answer.", Labels: []string{"namespace", "pool", "result"}}
	poolRetirements = metric.Definition{Name: "cloop_executor_pool_retirements_total", Kind: metric.Counter, Help: "Requests to retire a runner by the state that the hub answered.", Labels: []string{"namespace", "pool", "result"}}
	poolStart       = metric.Definition{
		Name: "cloop_executor_pool_start_seconds", Kind: metric.Histogram, Help: "Time from the hub's snapshot to the created Pod.", Labels: byPool,
		Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10},
	}
	poolDrift = metric.Definition{Name: "cloop_pool_drift", Kind: metric.Gauge, Help: "Fields on which two surfaces of the pool disagree.", Labels: []string{"namespace", "pool", "surface"}}
)

// Metrics lists the controllers' metrics, beside those of controller-runtime.
func Metrics() []metric.Definition {
	return []metric.Definition{poolDemand, poolRunners, poolMints, poolRetirements, poolStart, poolDrift, syncDuration, eventPosts, gotkInfo, gotkDuration, gotkCondition, gotkSuspend}
}

// newPoolMetrics registers the metrics.
func newPoolMetrics(registry prometheus.Registerer) *poolMetrics {
	return &poolMetrics{
		demand: register(registry, poolDemand.NewGauge()), runners: register(registry, poolRunners.NewGauge()),
		mints: register(registry, poolMints.NewCounter()), retirements: register(registry, poolRetirements.NewCounter()),
		start: register(registry, poolStart.NewHistogram()), drifted: driftGauge(registry),
		gotk: newGotkMetrics(registry, v1alpha1.ExecutorPoolKind),
	}
}

// driftGauge is shared by all who compare two surfaces.
func driftGauge(registry prometheus.Registerer) *prometheus.GaugeVec {
	return register(registry, poolDrift.NewGauge())
}

// register registers a metric, or returns the one of the same name that is
// there already: another controller of the process shares it.
func register[C prometheus.Collector](registry prometheus.Registerer, metric C) C {
	err := registry.Register(metric)
	if err == nil {
		return metric
	}
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(C); ok {
			return existing
		}
	}
	// Two metrics of one name that differ: a mistake in the code.
	panic(err)
}

// observe sets the gauges; numbers is nil before the hub's first snapshot.
func (m *poolMetrics) observe(name types.NamespacedName, numbers *pool.Numbers) {
	if numbers == nil {
		return
	}
	m.demand.WithLabelValues(name.Namespace, name.Name).Set(float64(numbers.Queued))
	for state, n := range map[string]int32{
		"desired":                    numbers.Desired,
		string(hubv1.RunnerStarting): numbers.Starting,
		string(hubv1.RunnerIdle):     numbers.Idle,
		string(hubv1.RunnerBusy):     numbers.Busy,
		string(hubv1.RunnerRetiring): numbers.Retiring,
	} {
		m.runners.WithLabelValues(name.Namespace, name.Name, state).Set(float64(n))
	}
}

func (m *poolMetrics) minted(name types.NamespacedName, result string) {
	m.mints.WithLabelValues(name.Namespace, name.Name, result).Inc()
}

func (m *poolMetrics) retired(name types.NamespacedName, state string) {
	m.retirements.WithLabelValues(name.Namespace, name.Name, orElse(state, "unknown")).Inc()
}

func (m *poolMetrics) started(name types.NamespacedName, took time.Duration) {
	m.start.WithLabelValues(name.Namespace, name.Name).Observe(took.Seconds())
}

func (m *poolMetrics) drift(name types.NamespacedName, entries int) {
	m.drifted.WithLabelValues(name.Namespace, name.Name, surfaceHubCluster).Set(float64(entries))
}

// forget drops the series of a pool that is gone.
func (m *poolMetrics) forget(name types.NamespacedName) {
	labels := prometheus.Labels{"namespace": name.Namespace, "pool": name.Name}
	for _, vec := range []interface{ DeletePartialMatch(prometheus.Labels) int }{
		m.demand, m.runners, m.mints, m.retirements, m.start, m.drifted,
	} {
		vec.DeletePartialMatch(labels)
	}
	m.gotk.forget(name)
}
