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

// What a sync would do otherwise than it is told it does not do at all; what it
// only misses it says.
func TestASyncSaysWhatItGoesWithout(t *testing.T) {
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
		spec.Hub = &v1alpha1.HubConnection{URL: "https://hub.example.com", TokenSecretRef: v1alpha1.SecretKeyRef{Name: "hub-token", Key: "token"}}
		spec.SourceRef, spec.Source = &v1alpha1.SourceReference{Kind: v1alpha1.SourceBucket, Name: "other"}, v1alpha1.PoolSyncSource{}
	})
	sync := s.ready(v1alpha1.ReasonNotBuilt)
	if message := condition(sync, v1alpha1.ConditionStalled).Message; !strings.HasPrefix(message, "spec.sourceRef: sources of Flux are not read: ") {
		t.Errorf("Stalled says %s", message)
	}
	if s.hasPool("gpu") {
		t.Error("what was to wait was applied")
	}
	s.edit(func(sync *v1alpha1.PoolSync) {
		sync.Spec.SourceRef = nil
		sync.Spec.Source.Git = v1alpha1.GitSource{URL: s.git.URL(fleetRepository), SecretRef: &v1alpha1.LocalObjectReference{Name: "fleet-git"}}
	})
	sync = s.ready(v1alpha1.ReasonReconciliationSucceeded)
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
		change           func(*v1alpha1.PoolSyncSpec)
		refused, ignored string
	}{
		"a source of Flux":      {func(s *v1alpha1.PoolSyncSpec) { s.SourceRef = &v1alpha1.SourceReference{} }, "spec.sourceRef", ""},
		"a hub":                 {func(s *v1alpha1.PoolSyncSpec) { s.Hub = &v1alpha1.HubConnection{} }, "", "spec.hub"},
		"what every sync has":   {func(s *v1alpha1.PoolSyncSpec) { s.Prune, s.Path = true, "." }, "", ""},
		"a time of a past halt": {func(s *v1alpha1.PoolSyncSpec) { s.SuspendReason = "holidays" }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &v1alpha1.PoolSyncSpec{}
			test.change(spec)
			refused, ignored := unsupported(spec)
			for _, c := range []struct{ got, want string }{{strings.Join(refused, "; "), test.refused}, {strings.Join(ignored, "; "), test.ignored}} {
				if field, _, _ := strings.Cut(c.got, ": "); field != c.want {
					t.Errorf("says %q, want %q", c.got, c.want)
				}
			}
		})
	}
}
