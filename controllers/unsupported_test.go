package controllers

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// A pool that asks for volumes is served without them, and says so until it asks
// no more.
func TestAPoolSaysWhatItGoesWithout(t *testing.T) {
	s := newStage(t, 4)
	pool := s.pool()
	size := resource.MustParse("50Gi")
	change := func(persistence *v1alpha1.Persistence) {
		t.Helper()
		before := pool.DeepCopy()
		pool.Spec.Persistence = persistence
		if err := s.client.Patch(s.ctx, pool, client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	says := func() string {
		if err := s.client.Get(s.ctx, client.ObjectKeyFromObject(pool), pool); err != nil {
			t.Fatal(err)
		}
		if c := meta.FindStatusCondition(pool.Status.Conditions, v1alpha1.ConditionUnsupported); c != nil {
			return c.Reason + " " + c.Message
		}
		return ""
	}
	change(&v1alpha1.Persistence{Enabled: true, Size: &size, ReclaimPolicy: v1alpha1.ReclaimDelete, MinFree: resource.MustParse("1Gi")})
	s.until("it says that there are no volumes", func() bool { return strings.HasPrefix(says(), "NotBuilt spec.persistence: ") })
	s.hub.queue(1)
	s.untilPods(1)
	change(nil)
	s.until("it says nothing any more", func() bool { return says() == "" })
}

// What a sync misses it says.
func TestASyncSaysWhatItGoesWithout(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Hub = &v1alpha1.HubConnection{URL: "https://hub.example.com", TokenSecretRef: v1alpha1.SecretKeyRef{Name: "hub-token", Key: "token"}}
	})
	sync := s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if message := condition(sync, v1alpha1.ConditionUnsupported).Message; !strings.HasPrefix(message, "spec.hub: ") {
		t.Errorf("Unsupported says %s", message)
	}
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Hub = nil })
	s.until("it says nothing any more", func() bool {
		return meta.FindStatusCondition(s.get().Status.Conditions, v1alpha1.ConditionUnsupported) == nil
	})
}

func TestUnsupportedFields(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*v1alpha1.PoolSyncSpec)
		want   string
	}{
		"a hub":               {func(s *v1alpha1.PoolSyncSpec) { s.Hub = &v1alpha1.HubConnection{} }, "spec.hub"},
		"what every sync has": {func(s *v1alpha1.PoolSyncSpec) { s.Prune, s.Path = true, "." }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.PoolSyncSpec{}
			test.change(spec)
			if field, _, _ := strings.Cut(strings.Join(unsupported(spec), "; "), ": "); field != test.want {
				t.Errorf("says %q, want %q", field, test.want)
			}
		})
	}
}
