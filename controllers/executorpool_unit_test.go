package controllers

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/pool"
	"cloop.dev/cloop/internal/secret"
)

func testToken(text string) secret.String { return secret.New(text) }

func TestHubAllowed(t *testing.T) {
	for _, c := range []struct {
		list []string
		hub  string
		want bool
	}{
		{nil, "https://anything.example.com", true},
		{[]string{"https://hub.example.com"}, "https://hub.example.com/base", true},
		{[]string{"hub.example.com"}, "https://HUB.example.com:443", true},
		{[]string{"hub.example.com:8443"}, "https://hub.example.com:8443", true},
		{[]string{"hub.example.com:8443"}, "https://hub.example.com", false},
		{[]string{"hub.example.com"}, "https://hub.example.com.evil.example", false},
		{[]string{"hub.example.com"}, "https://hub.example.com@evil.example", false},
		{[]string{"hub.example.com"}, "http://hub.example.com", false},
		{[]string{"http://hub.example.com"}, "https://hub.example.com", false},
	} {
		if got := hubAllowed(c.list, c.hub); got != c.want {
			t.Errorf("hubAllowed(%q, %q) is %v", c.list, c.hub, got)
		}
	}
}

func TestTheSameEventIsRecordedOnceInTenMinutes(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	recorder := record.NewFakeRecorder(10)
	events := newPoolEvents(&eventRecorder{EventRecorder: recorder}, c)
	gpu := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}
	other := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Name: "cpu"}}
	count := func(want int, what string) {
		t.Helper()
		if got := len(recorder.Events); got != want {
			t.Errorf("%s: %d Events, want %d", what, got, want)
		}
	}
	events.record(gpu, podRefused("quota"))
	events.record(gpu, podRefused("quota, again"))
	count(1, "the same")
	events.record(other, podRefused("quota"))
	count(2, "another pool's")
	events.record(gpu, runnerFailed("r1", pool.End{Reason: "Error", Message: "a"}))
	events.record(gpu, runnerFailed("r2", pool.End{Reason: "Error", Message: "b"}))
	count(4, "other reasons")
	c.SetTime(c.Now().Add(eventPause))
	events.record(gpu, podRefused("quota"))
	count(5, "ten minutes later")
}

func TestPodPhases(t *testing.T) {
	container := func(state corev1.ContainerState) []corev1.ContainerStatus {
		return []corev1.ContainerStatus{{Name: "runner", State: state}}
	}
	for name, c := range map[string]struct {
		status corev1.PodStatus
		want   pool.PodPhase
		failed bool
	}{
		"new":       {corev1.PodStatus{}, pool.PodPending, false},
		"scheduled": {corev1.PodStatus{Phase: corev1.PodPending}, pool.PodPending, false},
		"running":   {corev1.PodStatus{Phase: corev1.PodRunning}, pool.PodRunning, false},
		"its container runs": {corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: container(
			corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})}, pool.PodRunning, false},
		"its container ended": {corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: container(
			corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 2, Reason: "Error"}})}, pool.PodEnded, true},
		"succeeded":       {corev1.PodStatus{Phase: corev1.PodSucceeded}, pool.PodEnded, false},
		"evicted":         {corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted"}, pool.PodEnded, true},
		"its node is out": {corev1.PodStatus{Phase: corev1.PodUnknown}, pool.PodRunning, false},
	} {
		got := podOf(&corev1.Pod{Status: c.status}, "")
		if got.Phase != c.want || got.Phase == pool.PodEnded && got.End.Failed() != c.failed {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestShortenKeepsRunesWhole(t *testing.T) {
	if got := shorten("ääää", 6); got != "ä…" {
		t.Errorf("got %q", got)
	}
	if got := shorten("abc", 3); got != "abc" {
		t.Errorf("got %q", got)
	}
}

func TestOfTwoPoolsWithOneCredentialTheNamedOneServes(t *testing.T) {
	xpool := func(name, hubPool string, age time.Duration) *v1alpha1.ExecutorPool {
		made := metav1.NewTime(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(-age))
		return &v1alpha1.ExecutorPool{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: made},
			Spec:       v1alpha1.ExecutorPoolSpec{HubPool: hubPool},
		}
	}
	for name, pair := range map[string]struct{ first, second *v1alpha1.ExecutorPool }{
		"its own name beats age":       {xpool("gpu", "", 0), xpool("batch", "", time.Hour)},
		"a name that it gives too":     {xpool("west", "gpu", 0), xpool("batch", "", time.Hour)},
		"one that names another pool":  {xpool("west", "gpu", 0), xpool("gpu", "batch", time.Hour)},
		"of two that name it, age":     {xpool("west", "gpu", time.Hour), xpool("gpu", "", 0)},
		"of two that do not, age":      {xpool("west", "", time.Hour), xpool("east", "", 0)},
		"made in one second, the name": {xpool("east", "gpu", 0), xpool("gpu", "", 0)},
	} {
		t.Run(name, func(t *testing.T) {
			if !precedes(pair.first, pair.second, "gpu") || precedes(pair.second, pair.first, "gpu") {
				t.Errorf("%s does not come before %s", pair.first.Name, pair.second.Name)
			}
		})
	}
}

// stale is a cache that missed every change of a Secret, and counts the reads of
// the API server beside it.
type stale struct {
	client.Client
	value string
	reads int
}

func (s *stale) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	object.SetName(key.Name)
	object.SetResourceVersion("1")
	return nil
}

// live is the API server.
type live struct{ *stale }

func (l live) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.reads++
	object.SetName(key.Name)
	object.(*corev1.Secret).Data = map[string][]byte{"credential": []byte(l.value)}
	return nil
}

func TestTheCredentialIsReadAgainWithinFiveMinutesAndAtOnceWhenItIsRefused(t *testing.T) {
	first, second, third := fakeCredential, whole("cloop_pool1_secondsecondsecond"), whole("cloop_pool1_thirdthirdthirdthird")
	fake := clocktesting.NewFakeClock(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	cluster := &stale{value: first}
	xpool := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "gpu"}}
	xpool.Spec.PoolCredentialSecretRef = v1alpha1.SecretKeyRef{Name: "gpu-pool-credential", Key: "credential"}
	hubs := newHubConnections(hubclient.Hello{}, nil, fake)
	r := &executorPoolReconciler{client: cluster, live: live{cluster}, hubs: hubs, clock: fake}
	o := &observation{xpool: xpool, memory: &poolMemory{}}
	read := func() string {
		t.Helper()
		if err := r.readCredential(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		return o.memory.credential.value.Reveal()
	}
	if got := read(); got != first {
		t.Fatalf("read %q", got)
	}
	cluster.value = second
	fake.Step(5*time.Minute - time.Second)
	if got := read(); got != first || cluster.reads != 1 {
		t.Errorf("read again before it was due: %d times", cluster.reads)
	}
	fake.Step(time.Second)
	if got := read(); got != second {
		t.Errorf("after five minutes it holds %q", got)
	}
	if lookAgain > 5*time.Minute {
		t.Errorf("a quiet pool is looked at every %s", lookAgain)
	}
	// The hub refuses what was read.
	cluster.value = third
	conn := &hubConnection{}
	hubs.conns[client.ObjectKeyFromObject(xpool)] = conn
	fake.Step(time.Second)
	conn.failed(fake.Now(), &hubv1.Problem{Status: http.StatusUnauthorized, Code: hubv1.CodeUnauthenticated}, true)
	if got := read(); got != third {
		t.Errorf("once it was refused it holds %q", got)
	}
}

func TestOnlyAWholePoolCredentialIsTaken(t *testing.T) {
	ref := v1alpha1.SecretKeyRef{Name: "gpu-pool-credential", Key: "credential"}
	last := fakeCredential[len(fakeCredential)-1:]
	for text, says := range map[string]string{
		fakeCredential:                               "",
		" " + fakeCredential + "\n":                  "",
		fakeCredential[:len(fakeCredential)-1]:       "not whole",
		strings.Replace(fakeCredential, "5", "6", 1): "not whole",
		fakeCredential + last:                        "not whole",
		"":                                           "nothing under the key",
		"hunter2":                                    "is no pool credential",
		whole("cloop_run1_0123456789abcdefghij"):     "is no pool credential",
		whole("cloop_pool1_short"):                   "is no pool credential",
	} {
		object := &corev1.Secret{Data: map[string][]byte{"credential": []byte(text)}}
		value, problem := credentialIn(object, ref)
		if (says == "") != (problem == "") || !strings.Contains(problem, says) || (problem == "") == value.Empty() {
			t.Errorf("of %q it says %q", text, problem)
		}
		if text != "" && strings.Contains(problem, strings.TrimSpace(text)) {
			t.Errorf("it quotes what is there: %q", problem)
		}
	}
}
