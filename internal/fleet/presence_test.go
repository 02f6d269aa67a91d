package fleet_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

func TestUnserved(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	lease := func(holder string, renewed time.Duration) *fleet.ControllerLease {
		return &fleet.ControllerLease{Holder: holder, Renewed: now.Add(-renewed), Lasts: 10 * time.Second}
	}
	for name, c := range map[string]struct {
		change func(*v1alpha1.PoolSync)
		lease  *fleet.ControllerLease
		pushed time.Duration
		want   string
	}{
		"nothing is known":             {nil, nil, 0, ""},
		"the Lease is renewed":         {nil, lease("pod-1", time.Second), time.Hour, ""},
		"the Lease has just run out":   {nil, lease("pod-1", time.Minute), time.Hour, ""},
		"the Lease is not renewed":     {nil, lease("pod-1", 2*time.Minute), 0, "does not run: pod-1, which holds its Lease in namespace cloop-fleet, gave the last sign at 2026-03-01T11:58:00Z"},
		"nobody holds the Lease":       {nil, lease("", 2*time.Minute), 0, "nobody holds its Lease"},
		"suspended":                    {func(s *v1alpha1.PoolSync) { s.Spec.Suspend = true }, lease("", time.Hour), time.Hour, ""},
		"a new commit, without Lease":  {nil, nil, 3 * time.Minute, ""},
		"an old commit, without Lease": {nil, nil, 5 * time.Minute, "nobody has acted on it although there is a newer commit, at 2026-03-01T11:55:00Z, and it is due every 1m0s"},
		"made, and nobody came": {func(s *v1alpha1.PoolSync) { s.Generation, s.CreationTimestamp = 1, ago(5*time.Minute) }, nil, 0,
			"although its spec has changed, at 2026-03-01T11:55:00Z"},
		"changed a moment ago": {func(s *v1alpha1.PoolSync) {
			s.Generation, s.CreationTimestamp = 2, ago(time.Hour)
			changed := ago(time.Minute)
			s.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &changed}}
		}, nil, 0, ""},
		"asked, and nobody came": {func(s *v1alpha1.PoolSync) {
			s.Annotations = map[string]string{fleet.AnnotationReconcile: now.Add(-time.Hour).Format(time.RFC3339Nano)}
		}, nil, 0, "although it was asked to reconcile, at 2026-03-01T11:00:00Z"},
		"asked, and somebody came": {func(s *v1alpha1.PoolSync) {
			s.Status.LastHandledReconcileAt = now.Add(-time.Hour).Format(time.RFC3339Nano)
			s.Annotations = map[string]string{fleet.AnnotationReconcile: s.Status.LastHandledReconcileAt}
		}, nil, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: "cloop-fleet", Name: "fleet"}}
			sync.Spec.Interval.Duration = time.Minute
			if c.change != nil {
				c.change(sync)
			}
			pushed := time.Time{}
			if c.pushed > 0 {
				pushed = now.Add(-c.pushed)
			}
			if got := fleet.Unserved(sync, c.lease, pushed, now); got == "" != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}
