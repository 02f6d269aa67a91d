package controllers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

func entry(name, path string, since time.Time, corrected *time.Time) v1alpha1.DriftEntry {
	e := v1alpha1.DriftEntry{Kind: "ExecutorPool", Namespace: "ns", Name: name, Path: path, Cause: v1alpha1.DriftClusterEdited, Since: metav1.NewTime(since)}
	if corrected != nil {
		at := metav1.NewTime(*corrected)
		e.Corrected = &at
	}
	return e
}

// A difference that is told by its parts now, or by what it is a part of, has not ended;
// a commit that landed has.
func TestDriftThatIsToldOtherwiseHasNotEnded(t *testing.T) {
	all := func(*v1alpha1.DriftEntry) bool { return true }
	at := func(minute int) metav1.Time {
		return metav1.NewTime(time.Date(2026, 11, 29, 12, minute, 0, 0, time.UTC))
	}
	waits := func(name, path string) finding {
		e := entry(name, path, time.Time{}, nil)
		e.Cause = v1alpha1.DriftCommitNotApplied
		return finding{DriftEntry: e}
	}
	held := follow(nil, []finding{waits("gpu", "")}, all, at(0))
	if message := driftMessage(&held.detected[0]); strings.Contains(message, "nothing") || !strings.Contains(message, "is held back") {
		t.Errorf("it is told as %q", message)
	}
	parts := follow(held.entries, []finding{waits("gpu", "/spec/a"), waits("batch", "")}, all, at(1))
	if len(parts.corrected) != 0 || len(parts.entries) != 2 || len(parts.detected) != 2 {
		t.Errorf("its parts: %+v", parts)
	}
	whole := follow(parts.entries, []finding{waits("gpu", "")}, all, at(2))
	if len(whole.corrected) != 1 || whole.corrected[0].Name != "batch" || len(whole.entries) != 2 {
		t.Errorf("the whole of it: %+v", whole)
	}
	landed := follow(whole.entries, nil, all, at(3))
	if len(landed.corrected) != 1 || landed.corrected[0].Message != "the cluster has what Git says" {
		t.Errorf("it landed: %+v", landed)
	}
	if got := fieldsAnd(2, 1) + ", " + fieldsAnd(1, 0) + ", " + fieldsAnd(0, 2); got != "2 fields and 1 object as a whole, 1 field, 2 objects as a whole" {
		t.Errorf("they are counted as %s", got)
	}
}

func TestDriftFollowsFromPassToPass(t *testing.T) {
	start := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	all := func(*v1alpha1.DriftEntry) bool { return true }
	at := func(after time.Duration) metav1.Time { return metav1.NewTime(start.Add(after)) }

	first := follow(nil, []finding{{DriftEntry: entry("gpu", "/a", time.Time{}, nil)}}, all, at(0))
	if len(first.entries) != 1 || len(first.detected) != 1 || !first.entries[0].Since.Time.Equal(start) {
		t.Fatalf("first: %+v", first)
	}
	second := follow(first.entries, []finding{{DriftEntry: entry("gpu", "/a", time.Time{}, nil)}}, all, at(time.Minute))
	if len(second.detected) != 0 || !second.entries[0].Since.Time.Equal(start) {
		t.Fatalf("it began anew: %+v", second)
	}
	// Nothing is known of an object that was not looked at.
	unseen := follow(second.entries, nil, func(*v1alpha1.DriftEntry) bool { return false }, at(2*time.Minute))
	if len(unseen.entries) != 1 || unseen.entries[0].Corrected != nil {
		t.Fatalf("unseen: %+v", unseen)
	}
	gone := follow(second.entries, nil, all, at(2*time.Minute))
	if len(gone.corrected) != 1 || gone.entries[0].Corrected == nil {
		t.Fatalf("gone: %+v", gone)
	}
	kept := follow(gone.entries, nil, all, at(11*time.Minute))
	if len(kept.entries) != 1 || len(kept.corrected) != 0 {
		t.Fatalf("kept: %+v", kept)
	}
	if dropped := follow(gone.entries, nil, all, at(12*time.Minute)); len(dropped.entries) != 0 {
		t.Fatalf("dropped: %+v", dropped)
	}
	again := follow(gone.entries, []finding{{entry("gpu", "/a", time.Time{}, nil), true}}, all, at(3*time.Minute))
	if len(again.entries) != 1 || len(again.detected) != 1 || len(again.corrected) != 1 || !again.entries[0].Since.Time.Equal(start.Add(3*time.Minute)) {
		t.Fatalf("again: %+v", again)
	}
}

func TestDriftIsBoundedAndKeepsWhatIsOpen(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	var before []v1alpha1.DriftEntry
	var found []finding
	for i := range maxDrift {
		before = append(before, entry(fmt.Sprintf("old%02d", i), "/a", now, &now))
		found = append(found, finding{DriftEntry: entry(fmt.Sprintf("z%02d", i), "/a", now, nil)})
	}
	h := follow(before, found, func(*v1alpha1.DriftEntry) bool { return true }, metav1.NewTime(now))
	shown, cut := shownDrift(h.entries, maxDriftBytes)
	if len(h.entries) != 2*maxDrift || len(shown) != maxDrift || cut {
		t.Fatalf("%d of %d entries", len(shown), len(h.entries))
	}
	for _, e := range shown {
		if e.Corrected != nil {
			t.Fatalf("%+v took an open one's place", e)
		}
	}
}

func TestDriftValuesAreBoundedAndRedacted(t *testing.T) {
	if got := asJSON(nil); got != "" {
		t.Errorf("nothing is %q", got)
	}
	if got := asJSON(strings.Repeat("a", 2*maxDriftValue)); len(got) > maxDriftValue {
		t.Errorf("%d bytes", len(got))
	}
	if got := asJSON("cloop_pool1_abcdefghijklmnopqrstuvwxyz"); strings.Contains(got, "abcdef") {
		t.Errorf("a credential: %s", got)
	}
}

func TestBackoff(t *testing.T) {
	for failures, want := range map[int]time.Duration{0: time.Second, 1: 2 * time.Second, 3: 8 * time.Second, 10: time.Minute, 1000: time.Minute} {
		if got := backoff(failures, time.Minute); got != want {
			t.Errorf("after %d failures %s", failures, got)
		}
	}
	if got := backoff(0, 500*time.Millisecond); got != 500*time.Millisecond {
		t.Errorf("got %s", got)
	}
	for range 100 {
		if got := jittered(time.Minute); got < 54*time.Second || got > 66*time.Second {
			t.Errorf("jittered to %s", got)
		}
	}
}

func TestWhenGitIsAsked(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	r := &poolSyncReconciler{clock: c, jitter: func(d time.Duration) time.Duration { return d }}
	sync := &v1alpha1.PoolSync{}
	sync.Generation = 1
	sync.Spec.Interval.Duration = time.Minute
	m := &syncMemory{}
	do := func(err *stageError) *syncPass {
		p := newSyncPass(sync, m, c.Now())
		if p.full = r.dueNow(t.Context(), p); p.full {
			p.request = requestOf(sync)
		}
		p.fail(err)
		r.settle(p)
		m.status = p.status
		return p
	}
	if p := do(nil); !p.full || r.wait(p) != time.Minute {
		t.Errorf("the first pass: full %v, next in %s", p.full, r.wait(p))
	}
	c.SetTime(c.Now().Add(20 * time.Second))
	if p := do(nil); p.full || r.wait(p) != 40*time.Second {
		t.Errorf("a change in the cluster: full %v, next in %s", p.full, r.wait(p))
	}
	metav1.SetMetaDataAnnotation(&sync.ObjectMeta, "reconcile.fluxcd.io/requestedAt", "now")
	if p := do(nil); !p.full || p.status.LastHandledReconcileAt != "now" {
		t.Errorf("a request: full %v, handled %q", p.full, p.status.LastHandledReconcileAt)
	}
	if p := do(nil); p.full {
		t.Error("a request was served twice")
	}
	metav1.SetMetaDataAnnotation(&sync.ObjectMeta, v1alpha1.AnnotationApprovePrune, "abc")
	if p := do(nil); !p.full {
		t.Error("an approval was not noticed")
	}
	sync.Generation = 2
	if p := do(transient(v1alpha1.ReasonSourceUnavailable, errors.New("down"))); !p.full || r.wait(p) != time.Second {
		t.Errorf("a failure: full %v, next in %s", p.full, r.wait(p))
	}
	c.SetTime(c.Now().Add(time.Second))
	if p := do(transient(v1alpha1.ReasonSourceUnavailable, errors.New("down"))); !p.full || r.wait(p) != 2*time.Second {
		t.Errorf("the second: full %v, next in %s", p.full, r.wait(p))
	}
	// What else wakes it does not put that off, though it finds the same.
	c.SetTime(c.Now().Add(time.Second))
	if p := do(transient(v1alpha1.ReasonApplyFailed, errors.New("refused as before"))); p.full || r.wait(p) != time.Second {
		t.Errorf("a pass in between: full %v, next in %s", p.full, r.wait(p))
	}
	c.SetTime(c.Now().Add(time.Second))
	if p := do(stalled(v1alpha1.ReasonValidationFailed, errors.New("bad"))); r.wait(p) != time.Minute {
		t.Errorf("what only a commit heals: next in %s", r.wait(p))
	}
	// An entry that is to be dropped wakes it sooner.
	corrected := metav1.NewTime(c.Now().Add(30*time.Second - keepCorrected))
	m.drift = []v1alpha1.DriftEntry{{Corrected: &corrected}}
	if p := do(nil); r.wait(p) != 30*time.Second {
		t.Errorf("an old entry: next in %s", r.wait(p))
	}
}

// Somebody who edits as fast as it is corrected must not have the two write
// without end.
func TestContestsAreAnsweredEverLater(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC))
	r := &poolSyncReconciler{clock: c}
	m := &syncMemory{}
	id := objectID{name: "gpu"}
	corrected := 0
	try := func() time.Time {
		p, s := &syncPass{memory: m}, &sight{id: id, edited: []fleet.FieldDiff{{Path: "/spec/maxRunners", Manager: "scaler"}}}
		if r.mayCorrect(p, s) {
			corrected++
			m.corrected(id, c.Now())
		}
		if !s.again.Equal(p.again) {
			t.Errorf("put off until %s, looked at again at %s", s.again, p.again)
		}
		return p.again
	}
	for range freeCorrections + 1 {
		try()
	}
	if again := try(); corrected != freeCorrections || !again.Equal(c.Now().Add(time.Second)) {
		t.Fatalf("%d corrections at once, then one at %s", corrected, again)
	}
	c.SetTime(c.Now().Add(time.Second))
	try()
	if again := try(); corrected != freeCorrections+1 || !again.Equal(c.Now().Add(2*time.Second)) {
		t.Fatalf("%d corrections, then one at %s", corrected, again)
	}
	if said := m.contestOf(id).String(); said != "scaler changes /spec/maxRunners as fast as it is put back (put back 6 times in 1s)" {
		t.Errorf("said is %s", said)
	}
	if p := (&syncPass{memory: m}); !r.mayCorrect(p, &sight{id: objectID{name: "batch"}}) {
		t.Fatal("another object pays for it")
	}
	c.SetTime(c.Now().Add(contestEnds))
	if try(); corrected != freeCorrections+2 {
		t.Fatal("it is never over")
	}
}

func TestFieldsOfAPointer(t *testing.T) {
	if got := fieldsOf("/metadata/annotations/cloop.dev~1revision"); len(got) != 3 || got[2] != "cloop.dev/revision" {
		t.Errorf("got %q", got)
	}
}

func TestCorrectionRemovesAndRestores(t *testing.T) {
	have := newPool()
	have.SetResourceVersion("7")
	data, err := correction(have, []fleet.FieldDiff{
		{Path: "/spec/runnerLabels/by", Have: "hand"}, {Path: "/spec/maxRunners", Want: int64(0), Have: int64(3)}, {Path: "/spec/hubPool", Want: "gpu"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"remove","path":"/spec/runnerLabels/by"},` +
		`{"op":"replace","path":"/spec/maxRunners","value":0},{"op":"add","path":"/spec/hubPool","value":"gpu"}]`
	if string(data) != want {
		t.Errorf("patch is %s", data)
	}
}

func TestPruneLimit(t *testing.T) {
	object := func(name string) *unstructured.Unstructured {
		pool := newPool()
		pool.SetNamespace("ns")
		pool.SetName(name)
		return pool
	}
	var all, doomed []*unstructured.Unstructured
	for i := range 10 {
		all = append(all, object(fmt.Sprint("p", i)))
	}
	doomed = all[:7]
	for name, test := range map[string]struct {
		limit    v1alpha1.PruneLimit
		approval string
		refused  bool
	}{
		"within":             {v1alpha1.PruneLimit{Count: 7, Percent: 70}, "", false},
		"count":              {v1alpha1.PruneLimit{Count: 6, Percent: 100}, "", true},
		"percent":            {v1alpha1.PruneLimit{Count: 100, Percent: 69}, "", true},
		"no percent":         {v1alpha1.PruneLimit{Count: 100}, "", false},
		"zero":               {v1alpha1.PruneLimit{}, "", true},
		"approved":           {v1alpha1.PruneLimit{}, "abc", false},
		"approved in full":   {v1alpha1.PruneLimit{}, "main@sha1:abc", false},
		"another's approval": {v1alpha1.PruneLimit{}, "abd", true},
	} {
		sync := &v1alpha1.PoolSync{}
		sync.Spec.PruneLimit = test.limit
		sync.Annotations = map[string]string{v1alpha1.AnnotationApprovePrune: test.approval}
		p := &syncPass{
			sync: sync, status: &v1alpha1.PoolSyncStatus{Inventory: inventoryOf(all)},
			target: &build{commit: "abc", revision: "main@sha1:abc"},
		}
		err := withinLimit(p, doomed)
		if (err != nil) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (err.reason != v1alpha1.ReasonPruneNeedsApproval || !err.stalled || !strings.Contains(err.message(), "and 2 more")) {
			t.Errorf("%s: %s", name, err.message())
		}
	}
}

func TestInventoryIsSortedAndMerged(t *testing.T) {
	a := []v1alpha1.InventoryEntry{{APIVersion: "v1", Kind: "B", Name: "1"}, {APIVersion: "v1", Kind: "A", Name: "2"}}
	b := []v1alpha1.InventoryEntry{{APIVersion: "v1", Kind: "A", Name: "2"}, {APIVersion: "v1", Kind: "A", Name: "1"}}
	got := merged(a, b)
	if len(got) != 3 || got[0].Name != "1" || got[2].Kind != "B" {
		t.Errorf("got %v", got)
	}
}

// Rendering is most of what a new commit costs, and the repository is rendered
// once for what is applied and what is checked.
func TestACommitIsRenderedOnce(t *testing.T) {
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range overlay("a", "b", "c", "d") {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	const path = "clusters/dev"
	r := &poolSyncReconciler{validator: validator}
	once := testing.AllocsPerRun(3, func() {
		if report, err := fleet.Check(t.Context(), validator, dir, path); err != nil || report.Failed() {
			t.Fatal(report, err)
		}
	})
	got := testing.AllocsPerRun(3, func() {
		b := &build{path: path, byID: map[objectID]*wanted{}}
		if err := r.render(t.Context(), &v1alpha1.PoolSync{}, fleet.NewBuilder(validator), dir, b, nil); err != nil || len(b.objects) != 5 {
			t.Fatal(err, len(b.objects))
		}
	})
	if got > 1.4*once {
		t.Errorf("a commit takes %.0f allocations, rendering and checking it once %.0f", got, once)
	}
}

// Who checks a root that something else applies may turn the finding off; a
// PoolSync must not apply such an object all the same.
func TestAnIgnoredKindIsNotApplied(t *testing.T) {
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files := overlay("a")
	files["clusters/dev/secret.yaml"] = "apiVersion: v1\nkind: Secret # cloop:ignore kind-not-applied Flux applies this\nmetadata: {name: s}\n"
	files["clusters/dev/kustomization.yaml"] += "  - secret.yaml\n"
	for name, text := range files {
		file := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	report, err := fleet.Check(t.Context(), validator, dir)
	if err != nil || len(report.Problems) > 0 || len(report.Suppressed) != 1 {
		t.Fatal(report, err)
	}
	b := &build{path: "clusters/dev", byID: map[objectID]*wanted{}}
	r := &poolSyncReconciler{validator: validator}
	if err := r.render(t.Context(), &v1alpha1.PoolSync{}, fleet.NewBuilder(validator), dir, b, nil); err != nil {
		t.Fatal(err.message())
	}
	if secret := (objectID{kind: "Secret", name: "s"}); !b.held[secret] || b.byID[secret] != nil || len(b.problems) != 1 || b.problems[0].Rule != fleet.RuleKindNotApplied {
		t.Errorf("held back are %v for %v", b.held, b.problems)
	}
}

// A Secret that is made of files has the newlines that editors end them with.
func TestWhatAFileEndsWithIsNotOfTheCredential(t *testing.T) {
	of := func(name string, data map[string]string) *corev1.Secret {
		out := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name}, Data: map[string][]byte{}}
		for key, value := range data {
			out.Data[key] = []byte(value)
		}
		return out
	}
	sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "fleet"}}
	sync.Spec.Source.Git.SecretRef = &v1alpha1.LocalObjectReference{Name: "git"}
	sync.Spec.Source.Git.ProxySecretRef = &v1alpha1.LocalObjectReference{Name: "proxy"}
	r := &poolSyncReconciler{live: fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(
		of("git", map[string]string{"username": "robot\n", "password": " pass word\r\n", "bearerToken": "token\n", "identity.password": "phrase\n"}),
		of("proxy", map[string]string{"address": "http://proxy.example.com:3128\n", "username": "through\n", "password": "hunter2\n"}),
	).Build()}
	got, _, err := r.gitAuth(t.Context(), sync)
	want := fleet.Auth{
		Username: "robot", Password: secret.New(" pass word"), Bearer: secret.New("token"), Passphrase: secret.New("phrase"),
		Proxy: &fleet.Proxy{Address: "http://proxy.example.com:3128", Username: "through", Password: secret.New("hunter2")},
	}
	if err != nil || !got.Same(want) {
		t.Errorf("it is %+v, %v", got, err)
	}
}
