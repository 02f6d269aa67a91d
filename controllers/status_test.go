package controllers

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
)

// foreignStatuses are what somebody may write into the status of either kind.
// With two of its own a test makes as many edits as are taken back at once.
var foreignStatuses = map[string]string{
	"a condition more": `{"status":{"conditions":[{"type":"Odd","status":"True","reason":"Odd","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`,
	"ours, changed":    `{"status":{"conditions":[{"type":"Ready","status":"True","reason":"Serving","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`,
	"nothing":          `{"status":null}`,
}

// editStatus writes a status as `kubectl patch --subresource=status` does.
func editStatus(t *testing.T, c client.Client, object client.Object, patch string) {
	t.Helper()
	err := c.Status().Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch)), client.FieldOwner("kubectl-patch"))
	if err != nil {
		t.Fatal(err)
	}
}

// writes are the requests by an agent that changed something.
func writes(requests []string) []string {
	var found []string
	for _, r := range requests {
		if verb, _, _ := strings.Cut(r, " "); verb != "get" && verb != "list" && !strings.Contains(r, "/events") {
			found = append(found, r)
		}
	}
	return found
}

func TestAForeignPoolStatusIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	p := s.pool()
	key := client.ObjectKeyFromObject(p)
	status := func() v1alpha1.ExecutorPoolStatus {
		t.Helper()
		if err := s.client.Get(s.ctx, key, p); err != nil {
			t.Fatal(err)
		}
		return p.Status
	}
	s.until("it serves", s.ready)
	own := status()
	edits := map[string]string{"a count": `{"status":{"desired":77,"runners":3}}`, "the hub pool": `{"status":{"hub":{"id":"p","name":"other","maxRunners":99}}}`}
	for name, patch := range foreignStatuses {
		edits[name] = patch
	}
	for name, patch := range edits {
		before := len(s.requests())
		editStatus(t, s.client, p.DeepCopy(), patch)
		s.until(name+" is taken back", func() bool { return equality.Semantic.DeepEqual(status(), own) })
		wroteOnce(t, s.agent(), before, name)
	}
}

// Whoever writes without end is answered ever later.
func TestAQuarrelAboutAPoolStatusSlowsDown(t *testing.T) {
	t.Parallel()
	s := newStage(t, 4)
	p := s.pool()
	s.until("it serves", s.ready)
	before := len(s.requests())
	for i := range 60 {
		editStatus(t, s.client, p.DeepCopy(), fmt.Sprintf(`{"status":{"desired":%d}}`, 50+i))
	}
	// Five at once, one a second later, one two seconds after that, and so on.
	s.until("the last edit is taken back", func() bool {
		return s.client.Get(s.ctx, client.ObjectKeyFromObject(p), p) == nil && p.Status.Desired == 0
	})
	if made := writes(s.requests()[before:]); len(made) > 3*freeCorrections {
		t.Errorf("60 edits were answered by %d writes", len(made))
	}
}

func TestAForeignSyncStatusIsTakenBack(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync()
	own := s.ready(v1alpha1.ReasonReconciliationSucceeded).Status
	edits := map[string]string{
		"what was applied": `{"status":{"lastAppliedRevision":"main@sha1:0000"}}`,
		"the inventory":    `{"status":{"inventory":[]}}`,
	}
	for name, patch := range foreignStatuses {
		edits[name] = patch
	}
	for name, patch := range edits {
		before := len(requestsBy(t, s.agent()))
		editStatus(t, s.client, s.get(), patch)
		s.until(name+" is taken back", func() bool { return equality.Semantic.DeepEqual(s.get().Status, own) })
		wroteOnce(t, s.agent(), before, name)
	}

	// What was forgotten would never be pruned.
	editStatus(t, s.client, s.get(), `{"status":{"inventory":[]}}`)
	_, sync := s.push(map[string]string{"pools/kustomization.yaml": "resources: []\n"})
	if s.hasPool("gpu") || s.names(sync) != "ResourceQuota/runners" {
		t.Errorf("the pool was not pruned; the inventory is %s", s.names(sync))
	}
}

func TestASuspendedSyncsStatusIsTakenBackToo(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, overlay("gpu"))
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Suspend = true })
	own := s.ready(v1alpha1.ReasonSuspended).Status
	editStatus(t, s.client, s.get(), `{"status":{"conditions":null,"lastAppliedRevision":"main@sha1:0000"}}`)
	s.until("the edit is taken back", func() bool { return equality.Semantic.DeepEqual(s.get().Status, own) })
}

func TestOlderResourceVersions(t *testing.T) {
	for _, c := range []struct {
		version, than string
		want          bool
	}{{"9", "10", true}, {"10", "9", false}, {"10", "10", false}, {"a", "10", false}, {"", "10", false}} {
		if got := older(c.version, c.than); got != c.want {
			t.Errorf("%q before %q: %v", c.version, c.than, got)
		}
	}
}

func TestEnteringAContest(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var c contest
	for i := range freeCorrections {
		if _, may := c.enter(now); !may {
			t.Fatalf("correction %d waits", i)
		}
	}
	at, may := c.enter(now)
	if may || !at.Equal(now.Add(time.Second)) {
		t.Fatalf("the next at %s", at)
	}
	if _, may := c.enter(at); !may {
		t.Fatal("it waits for ever")
	}
	if _, may := c.enter(at.Add(contestEnds)); !may || c.times != 1 {
		t.Fatalf("it is never over: %+v", c)
	}
}

// ready says whether the pool is served, by a process that knows its hub.
func (s *stage) ready() bool {
	p := &v1alpha1.ExecutorPool{}
	if err := s.client.Get(s.ctx, client.ObjectKey{Namespace: s.ns, Name: "gpu"}, p); err != nil {
		s.t.Fatal(err)
	}
	return meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) && p.Status.Hub != nil
}

// The library of the build gives advice, and so does the reason.
func TestAdviceIsGivenOnce(t *testing.T) {
	const advice = "run `cloop fleet check` on the repository and commit a fix"
	for cause, want := range map[string]string{
		"build eu: no such file: " + advice: "build eu: no such file: " + advice + "; nothing was changed",
		"build eu: no such file":            "build eu: no such file: " + advice + "; nothing was changed",
	} {
		if got := stalled(v1alpha1.ReasonBuildFailed, errors.New(cause)).message(); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
	}
}
