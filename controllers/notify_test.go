package controllers

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	eventv1 "github.com/fluxcd/pkg/apis/event/v1"

	"cloop.dev/cloop/apis/v1alpha1"
)

// eventReceiver takes Events as a notification-controller does.
type eventReceiver struct {
	*httptest.Server
	mu     sync.Mutex // guards what follows
	posted []eventv1.Event
	tries  int
	// answers are the next codes, 200 once they are used up.
	answers []int
}

func newEventReceiver(t *testing.T, answers ...int) *eventReceiver {
	t.Helper()
	r := &eventReceiver{answers: answers}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		var event eventv1.Event
		decoder := json.NewDecoder(request.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&event); err != nil || request.Method != http.MethodPost || request.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s of %s: %v", request.Method, request.Header.Get("Content-Type"), err)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tries++
		code := http.StatusOK
		if len(r.answers) > 0 {
			code, r.answers = r.answers[0], r.answers[1:]
		}
		if code == http.StatusOK {
			r.posted = append(r.posted, event)
		}
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
	}))
	t.Cleanup(r.Close)
	return r
}

func (r *eventReceiver) events() []eventv1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.posted)
}

// next waits for so many Events of a reason and returns the last.
func (r *eventReceiver) next(s *syncStage, n int, reason v1alpha1.Reason) eventv1.Event {
	s.t.Helper()
	of := func() []eventv1.Event {
		return slices.DeleteFunc(r.events(), func(e eventv1.Event) bool { return !e.HasReason(string(reason)) })
	}
	s.until("Events are posted", func() bool { return len(of()) >= n })
	got := of()
	if len(got) != n {
		s.t.Fatalf("%d Events instead of %d: %+v", len(got), n, got)
	}
	return got[n-1]
}

// A notification-controller is told of what changes, with the revision.
func TestEventsArePostedOnTransitions(t *testing.T) {
	t.Parallel()
	to := newEventReceiver(t)
	s := newSyncStage(t, overlay("gpu"))
	s.stop()
	s.eventsAddr = to.URL
	s.startController()
	s.poolSync()
	revision := s.ready(v1alpha1.ReasonReconciliationSucceeded).Status.LastAppliedRevision

	first := to.next(s, 1, v1alpha1.ReasonReconciliationSucceeded)
	of := first.InvolvedObject
	if of.Kind != v1alpha1.PoolSyncKind || of.APIVersion != v1alpha1.GroupVersion.String() || of.Namespace != s.ns || of.Name != s.name || of.UID != s.get().UID {
		t.Errorf("it is about %+v", of)
	}
	if first.Severity != eventv1.EventSeverityInfo || !strings.Contains(first.Message, "2 created") || first.ReportingController != v1alpha1.FieldManagerPoolSync || first.Timestamp.IsZero() {
		t.Errorf("%+v", first)
	}
	if !first.HasMetadata("cloop.dev/revision", revision) || first.HasMetadata("cloop.dev/commit_status", "update") {
		t.Errorf("the metadata are %v", first.Metadata)
	}

	s.sync()
	s.sync()
	commit, _ := s.push(map[string]string{"README.md": "about something else\n"})
	other := to.next(s, 2, v1alpha1.ReasonReconciliationSucceeded)
	if !other.HasMetadata("cloop.dev/commit_status", "update") || !other.HasMetadata("cloop.dev/revision", "main@sha1:"+commit) {
		t.Errorf("a commit about something else: %+v", other)
	}
	if told := s.events(v1alpha1.ReasonReconciliationSucceeded); len(told) != 1 {
		t.Errorf("the cluster is told of it: %q", told)
	}

	commit, _ = s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", -1)})
	bad := to.next(s, 1, v1alpha1.ReasonValidationFailed)
	if bad.Severity != eventv1.EventSeverityError || !bad.HasMetadata("cloop.dev/revision", "main@sha1:"+commit) || !strings.Contains(bad.Message, "gpu.yaml:9") {
		t.Errorf("a bad commit: %+v", bad)
	}
	s.sync()
	s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 4)})
	well := to.next(s, 3, v1alpha1.ReasonReconciliationSucceeded)
	if well.Severity != eventv1.EventSeverityInfo || well.HasMetadata("cloop.dev/commit_status", "update") {
		t.Errorf("all is well again: %+v", well)
	}
}

// postOnce posts Events of one pool to a eventReceiver until it has had so many tries.
func postOnce(t *testing.T, to *eventReceiver, tries int, events ...poolEvent) *poster {
	t.Helper()
	p := newPoster(Options{EventsAddr: to.URL, Controllers: []string{executorPoolController}, Instance: "one"}, newScheme(), prometheus.NewRegistry())
	p.first = time.Millisecond
	r := &eventRecorder{EventRecorder: &record.FakeRecorder{}, poster: p}
	gpu := &v1alpha1.ExecutorPool{ObjectMeta: metav1.ObjectMeta{
		Namespace: "pools", Name: "gpu", Annotations: map[string]string{
			v1alpha1.AnnotationRevision: "main@sha1:abc", eventv1.Group + "/team": "ml", "example.com/private": "x",
		},
	}}
	for _, e := range events {
		r.record(gpu, e)
	}
	done := make(chan error, 1)
	go func() { done <- p.Start(t.Context()) }()
	deadline := time.Now().Add(patience)
	settled := func() bool {
		to.mu.Lock()
		defer to.mu.Unlock()
		return to.tries >= tries && len(p.queue) == 0
	}
	for !settled() {
		if time.Now().After(deadline) {
			t.Fatal("the Events are not posted")
		}
		time.Sleep(time.Millisecond)
	}
	return p
}

func TestPostingGoesOnWhenTheReceiverFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answers []int
		tries   int
		result  string
		second  bool
	}{
		"it starts again":      {[]int{500, 503}, 4, "sent", true},
		"it had the same":      {[]int{429}, 2, "sent", true},
		"it wants none":        {[]int{404}, 2, "refused", true},
		"it is somewhere else": {[]int{302}, 2, "refused", true},
		"it fails for long":    {[]int{500, 500, 500, 500}, 5, "dropped", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			to := newEventReceiver(t, c.answers...)
			p := postOnce(t, to, c.tries, podRefused("first"), podRefused("second"))
			deadline := time.Now().Add(patience)
			for valueOf(t, p.posts.WithLabelValues("sent")) < 1 && time.Now().Before(deadline) {
				time.Sleep(time.Millisecond)
			}
			if n := valueOf(t, p.posts.WithLabelValues(c.result)); n < 1 {
				t.Errorf("%v are %s", n, c.result)
			}
			to.mu.Lock()
			defer to.mu.Unlock()
			if n := len(to.posted); n == 0 || to.posted[n-1].Message != "second" || to.tries != c.tries {
				t.Errorf("after %d tries: %+v", to.tries, to.posted)
			}
		})
	}
}

func TestWhatIsPosted(t *testing.T) {
	t.Parallel()
	const hidden = "hunter2hunter2"
	to := newEventReceiver(t)
	long := strings.Repeat("ä", maxPosted)
	postOnce(t, to, 2, podRefused("cannot read https://git:"+hidden+"@git.example.com/fleet"), podStuck(long))
	got := to.events()
	if len(got) != 2 {
		t.Fatalf("%d Events", len(got))
	}
	if strings.Contains(got[0].Message, hidden) || !strings.Contains(got[0].Message, "git.example.com") {
		t.Errorf("it says %q", got[0].Message)
	}
	want := map[string]string{"cloop.dev/revision": "main@sha1:abc", "event.toolkit.fluxcd.io/team": "ml"}
	if len(got[0].Metadata) != len(want) || got[0].Metadata["cloop.dev/revision"] != "main@sha1:abc" || got[0].Metadata["event.toolkit.fluxcd.io/team"] != "ml" {
		t.Errorf("the metadata are %v", got[0].Metadata)
	}
	if n := len(got[1].Message); n > maxPosted || n < maxPosted/2 {
		t.Errorf("a message of %d bytes", n)
	}
	if got[0].ReportingController != v1alpha1.FieldManagerExecutorPool || got[0].ReportingInstance != "one" || got[0].Severity != eventv1.EventSeverityError {
		t.Errorf("%+v", got[0])
	}
}

func TestMoreEventsThanWaitAreDropped(t *testing.T) {
	p := newPoster(Options{EventsAddr: "http://127.0.0.1:1", Controllers: []string{poolSyncController}}, newScheme(), prometheus.NewRegistry())
	r := &eventRecorder{EventRecorder: &record.FakeRecorder{}, poster: p}
	for range postsWaiting + 3 {
		r.record(&v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Name: "fleet", Namespace: "fleet"}}, poolEvent{message: "x"})
	}
	if n := valueOf(t, p.posts.WithLabelValues("dropped")); n != 3 {
		t.Errorf("%v are dropped", n)
	}
}

func TestEventsAddr(t *testing.T) {
	for addr, ok := range map[string]bool{
		"": true, "http://notification-controller.flux-system.svc.cluster.local./": true, "https://events.example.com/cloop": true,
		"notification-controller:80": false, "ftp://x/": false, "http://": false, "http://u:p@x/": false, "http://x/?token=y": false,
	} {
		if err := checkEventsAddr(addr); (err == nil) != ok {
			t.Errorf("%q: %v", addr, err)
		} else if err != nil && strings.Contains(err.Error(), "u:p") {
			t.Errorf("the error has the credential: %v", err)
		}
	}
}

// Whoever was told last of another state hears of the one that a rollback comes back to,
// however short ago that was told.
func TestARollbackIsTold(t *testing.T) {
	t.Parallel()
	to := newEventReceiver(t)
	s := newSyncStage(t, overlay("gpu"))
	s.stop()
	s.eventsAddr = to.URL
	s.startController()
	at := map[string]string{"v1": s.git.Commit(fleetRepository, map[string]string{"README.md": "one\n"})}
	at["v2"] = s.git.Commit(fleetRepository, map[string]string{"pools/gpu.yaml": poolFile("gpu", 5)})
	at["empty"] = s.git.Commit(fleetRepository, map[string]string{"clusters/dev/kustomization.yaml": "resources: []\n"})
	for tag, commit := range at {
		s.git.Tag(fleetRepository, tag, commit)
	}
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Source.Git.Ref.Tag = "v1" })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	for i, tag := range []string{"v2", "v1", "v2", "empty", "v2", "empty", "v1"} {
		s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.Source.Git.Ref.Tag = tag })
		s.until("the state is told", func() bool {
			told := to.events()
			return len(told) == i+2 && told[i+1].HasMetadata("cloop.dev/revision", tag+"@sha1:"+at[tag])
		})
		if last := to.events()[i+1]; (last.Severity == eventv1.EventSeverityError) != (tag == "empty") {
			t.Errorf("of %s is told %+v", tag, last)
		}
	}
	s.sync()
	s.sync()
	if told := to.events(); len(told) != 8 {
		t.Errorf("%d Events are told: %+v", len(told), told)
	}
}
