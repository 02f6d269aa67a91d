package controllers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"cloop.dev/cloop/apis/v1alpha1"
)

// serves sets a pool's Ready condition, as its controller does.
func (s *syncStage) serves(name string, status metav1.ConditionStatus, reason v1alpha1.Reason) {
	s.t.Helper()
	pool := s.pool(name)
	before := pool.DeepCopy()
	pool.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: status, Reason: string(reason), ObservedGeneration: pool.Generation, LastTransitionTime: metav1.Now(),
	}}
	if err := s.client.Status().Patch(s.ctx, pool, client.MergeFrom(before)); err != nil {
		s.t.Fatal(err)
	}
}

func TestReadyWaitsForWhatIsApplied(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu", "batch"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Wait = true })
	s.until("it waits", func() bool {
		sync := s.get()
		return sync.Status.LastAppliedRevision != "" && condition(sync, v1alpha1.ConditionReady).Reason == string(v1alpha1.ReasonProgressing)
	})
	s.serves("gpu", metav1.ConditionTrue, v1alpha1.ReasonServing)
	s.serves("batch", metav1.ConditionFalse, v1alpha1.ReasonConnecting)
	s.until("it says for what", func() bool {
		c := condition(s.get(), v1alpha1.ConditionReady)
		return c.Status == metav1.ConditionUnknown && c.Message == "applied, and waits: 1 of 3 objects of "+s.get().Status.LastAppliedRevision+" not Ready: ExecutorPool "+s.ns+"/batch (Connecting)"
	})
	s.serves("batch", metav1.ConditionTrue, v1alpha1.ReasonServing)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)

	// A new generation was not looked at by its controller yet.
	s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 5)})
	sync := s.ready(v1alpha1.ReasonProgressing)
	s.says(sync, "ExecutorPool "+s.ns+"/gpu (")
	s.serves("gpu", metav1.ConditionTrue, v1alpha1.ReasonServing)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)

	// Another process knows that it was.
	s.stop()
	s.startController()
	s.sync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)

	// What fails later has as long to come back.
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Timeout.Duration = 5 * time.Second })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.serves("gpu", metav1.ConditionFalse, v1alpha1.ReasonHubUnavailable)
	s.says(s.ready(v1alpha1.ReasonHealthCheckFailed), "in 5s: 1 of 3 objects", "ExecutorPool "+s.ns+"/gpu (HubUnavailable)")
	s.serves("gpu", metav1.ConditionTrue, v1alpha1.ReasonServing)
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
}

func TestHowLongObjectsAreWaitedFor(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var h health
	at := func(seconds int, all bool, revision string) string {
		h.judge(all, revision, time.Minute, now.Add(time.Duration(seconds)*time.Second))
		switch {
		case all:
			return "ready"
		case h.failed:
			return "failed"
		case h.sound == revision:
			return "was ready"
		}
		return "waits"
	}
	for _, step := range []struct {
		seconds  int
		all      bool
		revision string
		want     string
	}{
		{0, false, "a", "waits"}, {59, false, "a", "waits"}, {60, false, "a", "failed"},
		// Another revision begins anew.
		{61, false, "b", "waits"}, {120, false, "b", "waits"}, {121, false, "b", "failed"},
		{122, true, "b", "ready"}, {130, false, "b", "was ready"}, {189, false, "b", "was ready"}, {190, false, "b", "failed"},
		{191, true, "b", "ready"}, {192, false, "b", "was ready"}, {193, false, "c", "waits"},
	} {
		if got := at(step.seconds, step.all, step.revision); got != step.want {
			t.Errorf("after %d s at %s: %s, want %s", step.seconds, step.revision, got, step.want)
		}
	}
	// Another process goes on from what the condition says.
	since := metav1.NewTime(now)
	for name, test := range map[string]struct {
		ready metav1.Condition
		want  string
	}{
		"Ready":       {metav1.Condition{Status: metav1.ConditionTrue}, "was ready"},
		"failed":      {metav1.Condition{Status: metav1.ConditionFalse, Reason: "HealthCheckFailed", LastTransitionTime: since}, "failed"},
		"progressing": {metav1.Condition{Status: metav1.ConditionUnknown, Reason: "Progressing", LastTransitionTime: since}, "failed"},
		"another":     {metav1.Condition{Status: metav1.ConditionFalse, Reason: "BuildFailed", LastTransitionTime: since}, "waits"},
	} {
		h = healthOf(&test.ready, "a")
		if got := at(60, false, "a"); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}

// Each pool that becomes Ready is an event: who waits for it is known without reading an
// inventory of as many pools.
func TestWhoWaitsForAPoolIsNotRead(t *testing.T) {
	r := &poolSyncReconciler{memories: map[types.NamespacedName]*syncMemory{}}
	queue := &delays{}
	pool := newPool()
	pool.SetLabels(map[string]string{v1alpha1.LabelPoolSyncNamespace: "fleet", v1alpha1.LabelPoolSyncName: "one"})
	sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "one"}}
	for _, wait := range []bool{false, true, false} {
		sync.Spec.Wait = wait
		r.memory(sync)
		// There is no client: a read would panic.
		r.waiters("fleet").Update(t.Context(), event.UpdateEvent{ObjectOld: pool, ObjectNew: pool}, queue)
		if got := len(queue.added) > 0; got != wait {
			t.Errorf("spec.wait is %t, and it is looked at again: %t", wait, got)
		}
		queue.added = nil
	}
}

// delays is a queue that notes what is added later.
type delays struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added []reconcile.Request
}

func (d *delays) AddAfter(request reconcile.Request, _ time.Duration) {
	d.added = append(d.added, request)
}
