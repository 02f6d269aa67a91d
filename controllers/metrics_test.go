package controllers

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/metric"
	"cloop.dev/cloop/internal/secret"
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

// series are a registry's of a name, as the values of some labels → value.
func series(t *testing.T, of prometheus.Gatherer, name string, labels ...string) map[string]float64 {
	t.Helper()
	families, err := of.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]float64{}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, metric := range family.GetMetric() {
			values := map[string]string{}
			for _, pair := range metric.GetLabel() {
				values[pair.GetName()] = pair.GetValue()
			}
			var key []string
			for _, label := range labels {
				key = append(key, values[label])
			}
			found[strings.Join(key, " ")] += metric.GetGauge().GetValue() + float64(metric.GetHistogram().GetSampleCount())
		}
	}
	return found
}

func TestFluxDashboardsSeeAnObjectAsItIs(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	m := newGotkMetrics(registry, v1alpha1.PoolSyncKind)
	fleet, other := types.NamespacedName{Namespace: "a", Name: "fleet"}, types.NamespacedName{Namespace: "b", Name: "fleet"}
	m.looked(fleet, gotkObject{ready: metav1.ConditionTrue, revision: "main@sha1:1", url: "https://git:hunter2hunter2@git.example.com/fleet"}, time.Second)
	m.looked(fleet, gotkObject{ready: metav1.ConditionFalse, revision: "main@sha1:2", source: "flux-fleet", suspended: true}, time.Second)
	m.looked(other, gotkObject{ready: metav1.ConditionUnknown, url: "https://git:hunter2hunter2@git.example.com/fleet"}, time.Second)

	// A second controller of the process shares them.
	newGotkMetrics(registry, v1alpha1.HubPoolKind).looked(fleet, gotkObject{ready: metav1.ConditionTrue}, time.Second)
	info := series(t, registry, "gotk_resource_info", "customresource_group", "customresource_version", "customresource_kind", "exported_namespace", "name", "ready", "suspended", "revision", "source_name", "url")
	want := map[string]float64{
		"cloop.dev v1alpha1 PoolSync a fleet False true main@sha1:2 flux-fleet ":                                                   1,
		"cloop.dev v1alpha1 PoolSync b fleet Unknown false   " + secret.Redact("https://git:hunter2hunter2@git.example.com/fleet"): 1,
		"cloop.dev v1alpha1 HubPool a fleet True false   ":                                                                         1,
	}
	if !maps.Equal(info, want) {
		t.Errorf("the info is %v", info)
	}
	ready := series(t, registry, "gotk_reconcile_condition", "kind", "namespace", "name", "type", "status")
	if ready["PoolSync a fleet Ready False"] != 1 || ready["PoolSync a fleet Ready True"] != 0 || ready["PoolSync b fleet Ready Unknown"] != 1 || len(ready) != 9 {
		t.Errorf("the conditions are %v", ready)
	}
	if n := series(t, registry, "gotk_reconcile_duration_seconds", "kind", "namespace", "name")["PoolSync a fleet"]; n != 2 {
		t.Errorf("%v looks", n)
	}
	if suspended := series(t, registry, "gotk_suspend_status", "kind", "namespace", "name"); suspended["PoolSync a fleet"] != 1 || suspended["PoolSync b fleet"] != 0 {
		t.Errorf("suspended are %v", suspended)
	}

	m.forget(fleet)
	for _, d := range []metric.Definition{gotkInfo, gotkDuration, gotkCondition, gotkSuspend} {
		for key := range series(t, registry, d.Name, "kind", "customresource_kind", "namespace", "exported_namespace") {
			if strings.Contains(key, "PoolSync") && strings.Contains(key, " a") {
				t.Errorf("%s still has %s", d.Name, key)
			}
		}
	}
}

func TestThePoolSyncIsOnFluxDashboards(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	revision := s.ready(v1alpha1.ReasonReconciliationSucceeded).Status.LastAppliedRevision
	shown := func() map[string]float64 {
		return series(t, metrics.Registry, "gotk_resource_info", "customresource_kind", "exported_namespace", "ready", "suspended", "revision")
	}
	s.until("it is shown", func() bool { return shown()["PoolSync "+s.ns+" True false "+revision] == 1 })
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend = true })
	s.until("it is shown as suspended", func() bool { return shown()["PoolSync "+s.ns+" Unknown true "+revision] == 1 })
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Suspend = false })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if err := s.client.Delete(s.ctx, s.get()); err != nil {
		t.Fatal(err)
	}
	s.until("it is shown no more", func() bool {
		for key := range shown() {
			if strings.Contains(key, s.ns) {
				return false
			}
		}
		return true
	})
}
