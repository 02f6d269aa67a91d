package controllers

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// warnings are the Warning Events of a namespace, as "reason: message".
func warnings(t *testing.T, c client.Client, ns string) []string {
	t.Helper()
	list := &corev1.EventList{}
	if err := c.List(t.Context(), list, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, e := range list.Items {
		if e.Type == corev1.EventTypeWarning {
			found = append(found, e.Reason+": "+e.Message)
		}
	}
	return found
}

func TestTroubleIsToldOnceItLasts(t *testing.T) {
	const down, bad = v1alpha1.ReasonSourceUnavailable, v1alpha1.ReasonValidationFailed
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var t1 trouble
	if tell, at := t1.lasts(down, true, now); tell || !at.Equal(now.Add(troubleGrace)) {
		t.Errorf("the first failure: %v, at %s", tell, at)
	}
	if tell, _ := t1.lasts(down, true, now.Add(troubleGrace)); !tell {
		t.Error("it lasts and nobody is told")
	}
	if tell, at := t1.lasts(down, true, now.Add(2*troubleGrace)); tell || !at.IsZero() {
		t.Errorf("told again: %v, at %s", tell, at)
	}
	var t2 trouble
	if tell, _ := t2.lasts(bad, false, now); !tell {
		t.Error("what does not pass is told late")
	}

	shown := func(ago time.Duration, reason v1alpha1.Reason) *metav1.Condition {
		return &metav1.Condition{Reason: string(reason), LastTransitionTime: metav1.NewTime(now.Add(-ago))}
	}
	for name, c := range map[string]struct {
		left    *metav1.Condition
		reason  v1alpha1.Reason
		passing bool
		want    bool
	}{
		"well before":             {nil, down, true, false},
		"told by another process": {shown(time.Hour, down), down, true, false},
		"seen by another process": {shown(time.Second, down), down, true, false},
		"bad before":              {shown(time.Second, bad), bad, false, false},
		"then something else":     {shown(time.Hour, down), bad, false, true},
	} {
		left := troubleOf(c.left, c.passing, now)
		if tell, _ := left.lasts(c.reason, c.passing, now); tell != c.want {
			t.Errorf("%s: %v", name, tell)
		}
	}
	left := troubleOf(shown(time.Second, down), true, now)
	if tell, _ := left.lasts(down, true, now.Add(troubleGrace)); !tell {
		t.Error("what began in another process is never told")
	}
}

// A fresh system's parts come up in any order.
func TestAFreshSyncDoesNotCryWolf(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.git.Create("later")
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Source.Git.URL = s.git.URL("later") })
	s.ready(v1alpha1.ReasonSourceUnavailable)
	s.git.Commit("later", overlay("gpu"))
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	// Events are written in order.
	s.until("the success is told", func() bool { return len(s.events(v1alpha1.ReasonReconciliationSucceeded)) == 1 })
	if told := warnings(t, s.client, s.ns); len(told) > 0 {
		t.Errorf("told %q", told)
	}
}

func TestAnOutageThatLastsIsTold(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.stop()
	c := clocktesting.NewFakePassiveClock(time.Now())
	s.clock = c
	s.startController()
	s.poolSync()
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	s.git.Close()
	s.sync()
	s.ready(v1alpha1.ReasonSourceUnavailable)
	if told := s.events(v1alpha1.ReasonSourceUnavailable); len(told) > 0 {
		t.Errorf("told at once: %q", told)
	}
	c.SetTime(c.Now().Add(troubleGrace))
	s.sync()
	s.until("it is told", func() bool { return len(s.events(v1alpha1.ReasonSourceUnavailable)) == 1 })
}

func TestAFreshPoolDoesNotCryWolf(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	p := &v1alpha1.ExecutorPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "gpu"},
		Spec: v1alpha1.ExecutorPoolSpec{
			HubURL: s.hub.server.URL, HubCABundle: s.hub.bundle(), MaxRunners: 1,
			PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: "later", Key: "credential"},
		},
	}
	s.create(p)
	s.reason(v1alpha1.ConditionDegraded, v1alpha1.ReasonCredentialUnreadable)
	s.create(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "later"},
		StringData: map[string]string{"credential": fakeCredential},
	})
	s.reason(v1alpha1.ConditionReady, v1alpha1.ReasonServing)
	s.hub.queue(1)
	s.event(v1alpha1.ReasonScaledUp)
	if told := warnings(t, s.client, s.ns); len(told) > 0 {
		t.Errorf("told %q", told)
	}
}

func TestAHubThatStaysAwayIsTold(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	s.stop()
	c := clocktesting.NewFakePassiveClock(time.Now())
	s.clock = c
	s.startController()
	p := s.pool()
	s.hub.change(func() { s.hub.closed = true })
	s.hub.server.Close()
	s.reason(v1alpha1.ConditionDegraded, v1alpha1.ReasonHubUnavailable)
	if told := warnings(t, s.client, s.ns); len(told) > 0 {
		t.Errorf("told at once: %q", told)
	}
	c.SetTime(c.Now().Add(troubleGrace))
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"look":"again"}}}`))
	if err := s.client.Patch(s.ctx, p, patch); err != nil {
		t.Fatal(err)
	}
	s.event(v1alpha1.ReasonHubUnavailable)
}
