package controllers

import (
	"maps"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"cloop.dev/cloop/apis/v1alpha1"
)

// baseOverlay is a repository with the paths clusters/dev, with the pool gpu, and
// clusters/base, with the pool small.
func baseOverlay() map[string]string {
	files := overlay("gpu")
	maps.Copy(files, map[string]string{
		"clusters/base/kustomization.yaml": "resources:\n  - small.yaml\n",
		"clusters/base/small.yaml":         poolFile("small", 1),
	})
	return files
}

func TestASyncWaitsForWhatItDependsOn(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, baseOverlay())
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.DependsOn = []v1alpha1.PoolSyncReference{{Name: "base"}} })
	sync := s.ready(v1alpha1.ReasonDependencyNotReady)
	s.says(sync, "there is no PoolSync base", "goes on by itself")
	if condition(sync, v1alpha1.ConditionStalled).Type != "" || condition(sync, v1alpha1.ConditionReconciling).Status != metav1.ConditionTrue || s.hasPool("gpu") {
		t.Errorf("it does not wait: %+v", sync.Status.Conditions)
	}
	// Nobody asks this one to look again: the other's change does.
	s.as("base", func() { s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.Path = "./clusters/base" }) })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
	if !s.hasPool("gpu") {
		t.Error("nothing is applied")
	}

	// Of one source it waits for the same revision, and holds to the last one until then.
	commit, sync := s.push(map[string]string{"pools/gpu.yaml": poolFile("gpu", 7), "clusters/base/small.yaml": poolFile("small", 2)})
	s.says(sync, "PoolSync base has not applied main@sha1:"+commit)
	s.kubectlEdit("gpu", `{"spec":{"maxRunners":3}}`)
	s.until("an edit is taken back", func() bool { return s.pool("gpu").Spec.MaxRunners == 4 })
	s.as("base", func() { s.sync() })
	s.until("it goes on", func() bool { return s.pool("gpu").Spec.MaxRunners == 7 })

	// What is not Ready is waited for, whatever it lacks.
	s.git.Commit(fleetRepository, map[string]string{"clusters/base/small.yaml": poolFile("small", -1)})
	s.as("base", func() { s.sync(); s.ready(v1alpha1.ReasonValidationFailed) })
	s.says(s.sync(), "PoolSync base is not Ready (ValidationFailed)")
	s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.DependsOn = nil })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
}

func TestSyncsThatDependOnEachOtherSaySo(t *testing.T) {
	t.Parallel()
	s := newSyncStage(t, baseOverlay())
	s.poolSync(func(spec *v1alpha1.PoolSyncSpec) { spec.DependsOn = []v1alpha1.PoolSyncReference{{Name: "base"}} })
	s.as("base", func() {
		s.poolSync(func(spec *v1alpha1.PoolSyncSpec) {
			spec.Path, spec.DependsOn = "./clusters/base", []v1alpha1.PoolSyncReference{{Name: "fleet", Namespace: s.ns}}
		})
		s.until("it says that it waits for itself", func() bool {
			message := condition(s.get(), v1alpha1.ConditionStalled).Message
			return strings.Contains(message, "depends on itself: base depends on fleet depends on base: take one out of ") && !strings.Contains(message, "by itself")
		})
	})
	s.until("so does the other", func() bool {
		return strings.Contains(condition(s.get(), v1alpha1.ConditionStalled).Message, "depends on itself: fleet depends on base depends on fleet")
	})
	s.as("base", func() { s.edit(func(sync *v1alpha1.PoolSync) { sync.Spec.DependsOn = nil }) })
	s.ready(v1alpha1.ReasonReconciliationSucceeded)
}

// syncNeeding is a PoolSync that depends on others.
func syncNeeding(name string, others ...string) *v1alpha1.PoolSync {
	named := func(name string) (namespace, short string) {
		if namespace, short, far := strings.Cut(name, "/"); far {
			return namespace, short
		}
		return "", name
	}
	namespace, short := named(name)
	sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: orElse(namespace, "fleet"), Name: short, Generation: 2}}
	for _, other := range others {
		namespace, short := named(other)
		sync.Spec.DependsOn = append(sync.Spec.DependsOn, v1alpha1.PoolSyncReference{Namespace: namespace, Name: short})
	}
	return sync
}

func TestTheWayRoundIsTheShortest(t *testing.T) {
	all := map[types.NamespacedName]*v1alpha1.PoolSync{}
	for _, sync := range []*v1alpha1.PoolSync{
		syncNeeding("a", "b", "c"), syncNeeding("b", "d", "gone"), syncNeeding("c", "c"), syncNeeding("d", "c", "a"), syncNeeding("e", "a"),
		syncNeeding("far", "other/far"), syncNeeding("other/far", "other/hidden", "fleet/far"),
	} {
		all[types.NamespacedName{Namespace: sync.Namespace, Name: sync.Name}] = sync
	}
	read := func(name types.NamespacedName) *v1alpha1.PoolSync { return all[name] }
	for name, want := range map[string]string{"a": "a b d a", "b": "b d a b", "c": "c c", "e": "", "far": "far other/far far"} {
		if got := strings.Join(wayBack(all[types.NamespacedName{Namespace: "fleet", Name: name}], read), " "); got != want {
			t.Errorf("from %s: %q, want %q", name, got, want)
		}
	}
}

func TestWhatADependencyLacks(t *testing.T) {
	good := func() *v1alpha1.PoolSync {
		other := syncNeeding("base")
		other.Status.ObservedGeneration, other.Status.LastAppliedRevision = 2, "main@sha1:b"
		other.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2}}
		return other
	}
	for name, test := range map[string]struct {
		change func(*v1alpha1.PoolSync)
		want   string
	}{
		"nothing":            {func(*v1alpha1.PoolSync) {}, ""},
		"to stay":            {func(o *v1alpha1.PoolSync) { o.DeletionTimestamp = &metav1.Time{} }, "is being deleted"},
		"a look":             {func(o *v1alpha1.PoolSync) { o.Status.Conditions = nil }, "was not looked at since its spec changed"},
		"a look at its spec": {func(o *v1alpha1.PoolSync) { o.Generation++ }, "was not looked at since its spec changed"},
		"to be Ready": {func(o *v1alpha1.PoolSync) {
			o.Status.Conditions[0].Status, o.Status.Conditions[0].Reason = metav1.ConditionFalse, "Bad"
		}, "is not Ready (Bad)"},
		"the revision":        {func(o *v1alpha1.PoolSync) { o.Status.LastAppliedRevision = "main@sha1:a" }, "has not applied main@sha1:b yet but main@sha1:a"},
		"any revision":        {func(o *v1alpha1.PoolSync) { o.Status.LastAppliedRevision = "" }, "has not applied main@sha1:b yet but nothing"},
		"it, of another repo": {func(o *v1alpha1.PoolSync) { o.Spec.Source.Git.URL, o.Status.LastAppliedRevision = "https://other", "x" }, ""},
		"it, of a source": {func(o *v1alpha1.PoolSync) {
			o.Spec.SourceRef, o.Status.LastAppliedRevision = &v1alpha1.SourceReference{Kind: "Bucket", Name: "b"}, "x"
		}, ""},
	} {
		other := good()
		test.change(other)
		if got := lacks(syncNeeding("fleet", "base"), other, "main@sha1:b"); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
	one, two := syncNeeding("a"), syncNeeding("b")
	one.Spec.SourceRef = &v1alpha1.SourceReference{Kind: "Bucket", Name: "b"}
	two.Spec.SourceRef = &v1alpha1.SourceReference{Kind: "Bucket", Name: "b", Namespace: "fleet"}
	if !sameSource(one, two) {
		t.Error("one source of Flux is two")
	}
}
