package controllers

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
)

// stored is a PoolSync on the API server with nobody to reconcile it, and a reconciler
// that writes its status.
func stored(t *testing.T) (*poolSyncReconciler, *v1alpha1.PoolSync) {
	t.Helper()
	config := restConfig(t)
	c, err := client.New(config, client.Options{Scheme: newScheme()})
	if err != nil {
		t.Fatal(err)
	}
	sync := &v1alpha1.PoolSync{
		ObjectMeta: metav1.ObjectMeta{Namespace: clustertest.Namespace(t, config), Name: "fleet"},
		Spec: v1alpha1.PoolSyncSpec{
			Source: v1alpha1.PoolSyncSource{Git: v1alpha1.GitSource{URL: "https://git.example.com/fleet.git"}}, Path: "./clusters/eu", Suspend: true,
			Drift: v1alpha1.DriftPolicy{Mode: v1alpha1.DriftCorrect},
		},
	}
	sync.Spec.Interval.Duration, sync.Spec.Timeout.Duration = 3600e9, 60e9
	if err := c.Create(t.Context(), sync); err != nil {
		t.Fatal(err)
	}
	return &poolSyncReconciler{client: c, clock: clock.RealClock{}, events: newPoolEvents(&eventRecorder{EventRecorder: record.NewFakeRecorder(10)}, clock.RealClock{})}, sync
}

// buildOf is a build of so many pools with names of so many letters.
func buildOf(t testing.TB, pools, letters int) *build {
	t.Helper()
	b := &build{revision: "main@sha1:" + strings.Repeat("a", 40), byID: map[objectID]*wanted{}}
	for i := range pools {
		pool := newPool()
		pool.SetNamespace("cloop-pools")
		pool.SetName(fmt.Sprintf("%s-%05d", strings.Repeat("p", letters-6), i))
		want := wantedFrom(t, pool)
		b.objects = append(b.objects, want)
		b.byID[want.id] = want
	}
	return b
}

// etcd takes 1.5 MiB. A status beyond that would never be written again, and what the
// controller applied would be forgotten.
func TestAStatusIsWrittenWhateverIsInIt(t *testing.T) {
	r, sync := stored(t)
	p := newSyncPass(sync, &syncMemory{}, r.clock.Now())
	b := buildOf(t, 10000, 53)
	p.memory.newest = b
	if err := r.fit(t.Context(), p); err != nil {
		t.Fatal(err.message())
	}
	p.target, p.status.Inventory = b, inventory(b.objects)
	var found []finding
	for i := range 200 {
		value := strings.Repeat(`<"&`, maxDriftValue/3)
		found = append(found, finding{DriftEntry: v1alpha1.DriftEntry{
			Kind: "ExecutorPool", Namespace: sync.Namespace, Name: fmt.Sprintf("gpu-%05d", i), Path: "/spec/" + strings.Repeat("a", 2000),
			Cause: v1alpha1.DriftClusterEdited, Git: value, Cluster: value, Manager: strings.Repeat("m", maxDriftManager),
			Outcome: v1alpha1.OutcomeRefused, Message: strings.Repeat("m", maxDriftMessage),
		}})
	}
	history := follow(nil, found, p.looked(), metav1.NewTime(r.clock.Now()))
	long := strings.Repeat("<\n", maxConditionMessage/2)
	r.set(p, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonApplyFailed, long)
	r.set(p, v1alpha1.ConditionStalled, metav1.ConditionTrue, v1alpha1.ReasonApplyFailed, long)
	r.setDrifted(p, p.showDrift(history.entries))
	if err := r.writeStatus(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	got := &v1alpha1.PoolSync{}
	if err := r.client.Get(t.Context(), client.ObjectKeyFromObject(sync), got); err != nil {
		t.Fatal(err)
	}
	if len(got.Status.Inventory) != 10000 || len(got.Status.Drift) == 0 {
		t.Errorf("the status has %d objects and %d differences", len(got.Status.Inventory), len(got.Status.Drift))
	}
	drifted := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionDrifted).Message
	if want := fmt.Sprintf("in 200 fields; status.drift lists what, the first %d of 200, with long values cut", len(got.Status.Drift)); !strings.Contains(drifted, want) {
		t.Errorf("Drifted says %s, not %s", drifted, want)
	}
	// What is not shown is not found anew in each pass.
	if again := follow(p.memory.drift, found, p.looked(), metav1.NewTime(r.clock.Now())); len(again.detected) > 0 {
		t.Errorf("%d are found again", len(again.detected))
	}
}

// What would not fit is refused before anything of it is applied.
func TestMoreObjectsThanAStatusHolds(t *testing.T) {
	r, sync := stored(t)
	for name, test := range map[string]struct {
		pools, letters int
		before         *build
		fits           bool
	}{
		"many":                   {11999, 28, nil, true},
		"too many":               {12001, 20, nil, false},
		"long names":             {10000, 240, nil, false},
		"few with long names":    {3000, 240, nil, true},
		"all of them have moved": {7000, 30, buildOf(t, 7000, 31), false},
	} {
		sync := sync.DeepCopy()
		p := newSyncPass(sync, &syncMemory{newest: buildOf(t, test.pools, test.letters)}, r.clock.Now())
		if test.before != nil {
			p.status.Inventory = inventory(test.before.objects)
		}
		before := len(p.status.Inventory)
		err := r.fit(t.Context(), p)
		if (err == nil) != test.fits || len(p.status.Inventory) != before {
			t.Errorf("%s: %s", name, err.message())
		}
		if err != nil && (!err.stalled || !strings.Contains(err.message(), "divide the overlay over two PoolSyncs") || !strings.Contains(err.message(), fmt.Sprint("an inventory of ", test.pools+before))) {
			t.Errorf("%s: %s", name, err.message())
		}
		if err != nil {
			continue
		}
		// What fits is written with the most that stands beside it.
		p.status.Inventory = inventory(p.memory.newest.objects)
		data, _ := json.Marshal(strings.Repeat("v", 1<<20))
		p.showDrift([]v1alpha1.DriftEntry{{Kind: "ExecutorPool", Name: "gpu", Cause: v1alpha1.DriftClusterEdited, Since: metav1.NewTime(r.clock.Now()), Git: shorten(string(data), maxDriftValue)}})
		if err := r.writeStatus(t.Context(), p); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
