package controllers

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// valueOf is the value of a counter or gauge.
func valueOf(t *testing.T, one prometheus.Collector) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(one)
	families, err := registry.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%d metrics: %v", len(families), err)
	}
	metric := families[0].GetMetric()[0]
	return metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
}
