// Package metric describes metrics once: what is registered and what the
// reference page lists come of one Definition.
//
// In goes a Definition, out come a prometheus collector or a description. It
// registers nothing. Labels are for bounded sets only: pools, syncs, routes and
// words from the code; never a run, a runner, a project or a person.
package metric

import "github.com/prometheus/client_golang/prometheus"

// Kind is what a metric can do.
type Kind string

// Kinds of metrics.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Definition is one metric.
type Definition struct {
	Name string
	Kind Kind
	// Help is one sentence; it says what is counted, and the unit where the name
	// does not.
	Help   string
	Labels []string
	// Buckets of a histogram, rising.
	Buckets []float64
}

// NewCounter makes the counter.
func (d Definition) NewCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

// NewGauge makes the gauge.
func (d Definition) NewGauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

// NewHistogram makes the histogram.
func (d Definition) NewHistogram() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, d.Labels)
}

// Desc is the description of what a collector of its own gives.
func (d Definition) Desc() *prometheus.Desc {
	return prometheus.NewDesc(d.Name, d.Help, d.Labels, nil)
}
