package controllers

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/metric"
	"cloop.dev/cloop/internal/secret"
)

// Metrics with the names, labels and buckets of Flux's, so that its dashboards and
// alerts show our kinds beside its own. Flux has the last three from its
// controllers, of which current ones have only the duration, and the first from
// kube-state-metrics.
var (
	byObject = []string{"kind", "name", "namespace"}

	gotkInfo = metric.Definition{
		Name: "gotk_resource_info", Kind: metric.Gauge, Help: "1 for each object as it is, in the labels that Flux's dashboards read.",
		Labels: []string{"customresource_group", "customresource_version", "customresource_kind", "exported_namespace", "name", "ready", "suspended", "revision", "source_name", "url"},
	}
	gotkDuration = metric.Definition{
		Name: "gotk_reconcile_duration_seconds", Kind: metric.Histogram, Help: "Time of a look at an object.", Labels: byObject,
		Buckets: prometheus.ExponentialBucketsRange(10e-3, 1800, 10),
	}
	gotkCondition = metric.Definition{
		Name: "gotk_reconcile_condition", Kind: metric.Gauge, Help: "1 for the status that an object's condition Ready has, 0 for the others.", Labels: []string{"kind", "name", "namespace", "type", "status"},
	}
	gotkSuspend = metric.Definition{Name: "gotk_suspend_status", Kind: metric.Gauge, Help: "1 for an object that is suspended, else 0.", Labels: byObject}
)

var conditionStatuses = []metav1.ConditionStatus{metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown}

// gotkMetrics are those of one kind.
type gotkMetrics struct {
	kind      string
	info      *prometheus.GaugeVec
	duration  *prometheus.HistogramVec
	condition *prometheus.GaugeVec
	suspend   *prometheus.GaugeVec

	mu    sync.Mutex                          // guards shown
	shown map[types.NamespacedName]gotkObject // object → what info has of it
}

// gotkObject is what is shown of an object.
type gotkObject struct {
	ready     metav1.ConditionStatus
	suspended bool
	// revision that was applied, and where it is from: the name of a source of Flux, or a
	// repository's URL.
	revision, source, url string
}

func newGotkMetrics(registry prometheus.Registerer, kind string) *gotkMetrics {
	return &gotkMetrics{
		kind: kind, shown: map[types.NamespacedName]gotkObject{},
		info: register(registry, gotkInfo.NewGauge()), duration: register(registry, gotkDuration.NewHistogram()),
		condition: register(registry, gotkCondition.NewGauge()), suspend: register(registry, gotkSuspend.NewGauge()),
	}
}

// readyStatus is the status of the condition Ready.
func readyStatus(conditions []metav1.Condition) metav1.ConditionStatus {
	if ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); ready != nil {
		return ready.Status
	}
	return metav1.ConditionUnknown
}

// looked shows an object after a look at it that took so long.
func (m *gotkMetrics) looked(name types.NamespacedName, is gotkObject, took time.Duration) {
	m.duration.WithLabelValues(m.kind, name.Name, name.Namespace).Observe(took.Seconds())
	m.show(name, is)
}

func (m *gotkMetrics) show(name types.NamespacedName, is gotkObject) {
	is.url = secret.Redact(is.url)
	m.mu.Lock()
	defer m.mu.Unlock()
	before, known := m.shown[name]
	if known && before == is {
		return
	}
	if known {
		// The revision and the state are labels: the old series would stay beside the new.
		m.info.DeleteLabelValues(m.labels(name, before)...)
	}
	m.shown[name] = is
	m.info.WithLabelValues(m.labels(name, is)...).Set(1)
	for _, status := range conditionStatuses {
		m.condition.WithLabelValues(m.kind, name.Name, name.Namespace, v1alpha1.ConditionReady, string(status)).Set(asGauge(status == is.ready))
	}
	m.suspend.WithLabelValues(m.kind, name.Name, name.Namespace).Set(asGauge(is.suspended))
}

func asGauge(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// labels are the values of gotkInfo's.
func (m *gotkMetrics) labels(name types.NamespacedName, is gotkObject) []string {
	return []string{
		v1alpha1.Group, v1alpha1.GroupVersion.Version, m.kind, name.Namespace, name.Name,
		string(is.ready), strconv.FormatBool(is.suspended), is.revision, is.source, is.url,
	}
}

// forget drops the series of an object that is gone.
func (m *gotkMetrics) forget(name types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if before, known := m.shown[name]; known {
		m.info.DeleteLabelValues(m.labels(name, before)...)
	}
	delete(m.shown, name)
	for _, status := range conditionStatuses {
		m.condition.DeleteLabelValues(m.kind, name.Name, name.Namespace, v1alpha1.ConditionReady, string(status))
	}
	m.suspend.DeleteLabelValues(m.kind, name.Name, name.Namespace)
	m.duration.DeleteLabelValues(m.kind, name.Name, name.Namespace)
}
