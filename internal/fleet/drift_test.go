package fleet_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

const (
	older = "1111111111111111111111111111111111111111"
	newer = "2222222222222222222222222222222222222222"
)

// agreeing is a system whose three surfaces say the same at revision newer.
func agreeing(t testing.TB) fleet.DriftInput {
	t.Helper()
	inGit := pool(t, "{hubURL: https://h, poolCredentialSecretRef: {name: s}, maxRunners: 3}")
	live := pool(t, "{hubURL: https://h, poolCredentialSecretRef: {name: s, key: credential}, maxRunners: 3, minRunners: 0, scaleDownDelay: 5m0s}")
	live.SetLabels(map[string]string{v1alpha1.LabelPoolSyncName: "fleet", v1alpha1.LabelPoolSyncNamespace: "cloop-fleet"})
	hub := object(t, hubPool)
	return fleet.DriftInput{
		Clusters: []fleet.ClusterSurface{{
			Name: "eu", Revision: newer, Git: rendered(inGit), Live: []unstructured.Unstructured{*live},
			Syncs: []v1alpha1.PoolSync{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "cloop-fleet", Name: "fleet"},
				Status:     v1alpha1.PoolSyncStatus{LastAppliedRevision: newer},
			}},
		}},
		Hub: &fleet.HubSurface{
			Revision: newer, Git: rendered(hub),
			Pools: []hubv1.Pool{{
				ID: "p1", Name: "gpu", State: hubv1.PoolActive, Source: &hubv1.Provenance{Sync: "fleet", Revision: newer},
				PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4, Labels: map[string]string{"gpu": "true"}, Harness: "command", DeletionPolicy: "Orphan"},
			}},
			Syncs: []hubv1.Sync{{Name: "fleet", State: hubv1.SyncReady, LastAppliedRevision: newer}},
		},
	}
}

func rendered(objects ...*unstructured.Unstructured) []fleet.Rendered {
	out := make([]fleet.Rendered, len(objects))
	for i, obj := range objects {
		out[i] = fleet.Rendered{Document: schemas.Document{Object: obj, File: "f.yaml", Line: 1}, SourcePath: "f.yaml"}
	}
	return out
}

// summary is the drift as "surface pool path git hub cluster cause".
func summary(report *fleet.DriftReport) []string {
	out := []string{}
	for _, p := range report.Pools {
		for _, f := range p.Fields {
			git, hub, cluster := f.Git, f.Hub, f.Cluster
			if f.Path == "" {
				git, hub, cluster = git != nil, hub != nil, cluster != nil
			}
			out = append(out, fmt.Sprintf("%s %s %s %v %v %v %s", f.Surface, p.Pool, f.Path, git, hub, cluster, f.Cause))
		}
	}
	return out
}

func set(t *testing.T, obj *unstructured.Unstructured, value any, fields ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(obj.Object, value, fields...); err != nil {
		t.Fatal(err)
	}
}

func TestDrift(t *testing.T) {
	tests := []struct {
		name   string
		change func(t *testing.T, in *fleet.DriftInput)
		want   []string
	}{
		{"nothing", func(*testing.T, *fleet.DriftInput) {}, nil},
		{"the cluster was edited", func(t *testing.T, in *fleet.DriftInput) {
			set(t, &in.Clusters[0].Live[0], int64(4), "spec", "maxRunners")
		}, []string{"git-cluster gpu /spec/maxRunners 3 <nil> 4 ClusterEdited"}},
		{"the sync is on its way", func(t *testing.T, in *fleet.DriftInput) {
			set(t, in.Clusters[0].Git[0].Object, int64(4), "spec", "maxRunners")
			in.Clusters[0].Syncs[0].Status.LastAppliedRevision = "main@sha1:" + older
		}, []string{"git-cluster gpu /spec/maxRunners 4 <nil> 3 Converging"}},
		{"the sync has written the branch with the commit", func(t *testing.T, in *fleet.DriftInput) {
			set(t, &in.Clusters[0].Live[0], int64(4), "spec", "maxRunners")
			in.Clusters[0].Syncs[0].Status.LastAppliedRevision = "main@sha1:" + newer
		}, []string{"git-cluster gpu /spec/maxRunners 3 <nil> 4 ClusterEdited"}},
		{"the sync failed", func(t *testing.T, in *fleet.DriftInput) {
			set(t, in.Clusters[0].Git[0].Object, int64(4), "spec", "maxRunners")
			status := &in.Clusters[0].Syncs[0].Status
			status.LastAppliedRevision = older
			status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse}}
		}, []string{"git-cluster gpu /spec/maxRunners 4 <nil> 3 CommitNotApplied"}},
		{"the sync ignores the field", func(t *testing.T, in *fleet.DriftInput) {
			set(t, &in.Clusters[0].Live[0], int64(4), "spec", "maxRunners")
			in.Clusters[0].Syncs[0].Spec.Drift.Ignore = []v1alpha1.IgnoreRule{{Paths: []string{"/spec/maxRunners"}, Target: &v1alpha1.IgnoreTarget{Name: "gpu"}}}
		}, nil},
		{"the pool is not in the cluster", func(_ *testing.T, in *fleet.DriftInput) { in.Clusters[0].Live = nil },
			[]string{"git-cluster gpu  true false false ClusterEdited"}},
		{"the pool is no more in Git", func(_ *testing.T, in *fleet.DriftInput) {
			in.Clusters[0].Git = []fleet.Rendered{}
			in.Clusters[0].Syncs[0].Status.LastAppliedRevision = older
		}, []string{"git-cluster gpu  false false true Converging"}},
		{"the pool is being deleted", func(_ *testing.T, in *fleet.DriftInput) {
			in.Clusters[0].Live[0].SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		}, []string{"git-cluster gpu  true false false BeingDeleted"}},
		{"the pool is being deleted because Git says so", func(_ *testing.T, in *fleet.DriftInput) {
			in.Clusters[0].Git = []fleet.Rendered{}
			in.Clusters[0].Live[0].SetDeletionTimestamp(&metav1.Time{Time: time.Now()})
		}, []string{"git-cluster gpu  false false true BeingDeleted"}},
		{"the hub was edited", func(_ *testing.T, in *fleet.DriftInput) { in.Hub.Pools[0].MaxRunners = 8 },
			[]string{"git-hub gpu /spec/maxRunners 4 8 <nil> HubEdited"}},
		{"the hub is on its way", func(_ *testing.T, in *fleet.DriftInput) {
			in.Hub.Pools[0].MaxRunners, in.Hub.Pools[0].Source.Revision, in.Hub.Syncs[0].LastAppliedRevision = 8, older, older
		}, []string{"git-hub gpu /spec/maxRunners 4 8 <nil> Converging"}},
		{"the hub's sync failed", func(_ *testing.T, in *fleet.DriftInput) {
			in.Hub.Pools[0].MaxRunners, in.Hub.Pools[0].Source.Revision = 8, older
			in.Hub.Syncs[0].State, in.Hub.Syncs[0].LastAppliedRevision = hubv1.SyncFailed, older
		}, []string{"git-hub gpu /spec/maxRunners 4 8 <nil> CommitNotApplied"}},
		{"the hub lacks the pool", func(_ *testing.T, in *fleet.DriftInput) { in.Hub.Pools, in.Hub.Syncs = nil, nil },
			[]string{"git-hub gpu  true false false CommitNotApplied", "hub-cluster gpu /spec/hubPool <nil> <nil> gpu RuleBroken"}},
		{"the hub's pool is no more in Git", func(_ *testing.T, in *fleet.DriftInput) {
			in.Hub.Git, in.Hub.Pools[0].Source.Revision, in.Hub.Syncs[0].LastAppliedRevision = []fleet.Rendered{}, older, older
		}, []string{"git-hub gpu  false true false Converging"}},
		{"Git cordons and the hub does not", func(t *testing.T, in *fleet.DriftInput) {
			set(t, in.Hub.Git[0].Object, "upgrade", "spec", "cordon", "reason")
		}, []string{"git-hub gpu /spec/cordon/reason upgrade <nil> <nil> HubEdited"}},
		{"an operator's cordon", func(_ *testing.T, in *fleet.DriftInput) { in.Hub.Pools[0].Cordon = &hubv1.Cordon{Reason: "x"} }, nil},
		{"Git itself breaks a rule", func(t *testing.T, in *fleet.DriftInput) {
			set(t, in.Clusters[0].Git[0].Object, int64(9), "spec", "maxRunners")
			set(t, &in.Clusters[0].Live[0], int64(9), "spec", "maxRunners")
		}, []string{"hub-cluster gpu /spec/maxRunners 9 4 9 RuleBroken"}},
		{"a rule is broken until the hub has the commit", func(t *testing.T, in *fleet.DriftInput) {
			set(t, in.Clusters[0].Git[0].Object, int64(9), "spec", "maxRunners")
			set(t, &in.Clusters[0].Live[0], int64(9), "spec", "maxRunners")
			set(t, in.Hub.Git[0].Object, int64(9), "spec", "maxRunners")
			in.Hub.Pools[0].Source.Revision, in.Hub.Syncs[0].LastAppliedRevision = older, older
		}, []string{"git-hub gpu /spec/maxRunners 9 4 <nil> Converging", "hub-cluster gpu /spec/maxRunners 9 4 9 Converging"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := agreeing(t)
			test.change(t, &in)
			report := fleet.Drift(in)
			if got := summary(report); !slices.Equal(got, test.want) {
				t.Errorf("drift is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if report.Any() != (len(test.want) > 0) {
				t.Errorf("Any is %t", report.Any())
			}
			if len(report.Notes) > 0 {
				t.Errorf("notes are %v", report.Notes)
			}
			if text := report.Text(); report.Any() == strings.HasPrefix(text, "No drift") {
				t.Errorf("text is %q", text)
			}
		})
	}
}

func TestDriftSaysWhoAndSinceWhen(t *testing.T) {
	in := agreeing(t)
	live := &in.Clusters[0].Live[0]
	set(t, live, int64(4), "spec", "maxRunners")
	written := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	live.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "kubectl-edit", Time: &metav1.Time{Time: written}, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:maxRunners":{}}}`)}})
	field := fleet.Drift(in).Pools[1].Fields[0]
	if field.Manager != "kubectl-edit" || field.Since == nil || !field.Since.Equal(written) {
		t.Errorf("by %q since %v", field.Manager, field.Since)
	}

	seen := metav1.NewTime(written.Add(time.Second))
	in.Clusters[0].Syncs[0].Status.Drift = []v1alpha1.DriftEntry{{Kind: "ExecutorPool", Namespace: "cloop-gpu", Name: "gpu", Path: "/spec/maxRunners", Since: seen}}
	report := fleet.Drift(in)
	if field := report.Pools[1].Fields[0]; !field.Since.Equal(seen.Time) {
		t.Errorf("since %v, want when the PoolSync saw it", field.Since)
	}
	text := report.Text()
	for _, word := range []string{"gpu (cluster eu)", "/spec/maxRunners  3    -    4        ClusterEdited  Waiting  kubectl-edit  2026-01-02T03:04:06Z", "ClusterEdited: commit the change"} {
		if !strings.Contains(text, word) {
			t.Errorf("text\n%s\nlacks %q", text, word)
		}
	}
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"surface":"git-cluster","kind":"ExecutorPool","namespace":"cloop-gpu","name":"gpu","path":"/spec/maxRunners","git":3,"hub":null,"cluster":4,"cause":"ClusterEdited","manager":"kubectl-edit","since":"2026-01-02T03:04:06Z","outcome":"Waiting","message":"the PoolSync has not put Git's value back yet"}`
	if !strings.Contains(string(data), want) {
		t.Errorf("JSON %s lacks %s", data, want)
	}
}

func TestDriftSaysWhatItCouldNotCompare(t *testing.T) {
	in := agreeing(t)
	in.Clusters[0].Git, in.Hub.Git = nil, nil
	report := fleet.Drift(in)
	if report.Any() || len(report.Notes) != 2 || !strings.Contains(report.Text(), "note: what Git wants of cluster eu is not known") {
		t.Errorf("report is %+v", report)
	}

	in = agreeing(t)
	in.Clusters[0].Git, in.Hub.Git = []fleet.Rendered{}, []fleet.Rendered{}
	in.Clusters[0].Live[0].SetLabels(nil)
	in.Hub.Pools[0].Source = nil
	report = fleet.Drift(in)
	if report.Any() || len(report.Notes) != 2 {
		t.Errorf("pools that Git never had are drift: %+v", report)
	}

	in = agreeing(t)
	in.Hub = nil
	if report = fleet.Drift(in); report.Any() || len(report.Notes) > 0 || len(report.Pools) != 1 {
		t.Errorf("without a hub the report is %+v", report)
	}
}

func TestEveryCauseHasARemedy(t *testing.T) {
	for _, cause := range []string{v1alpha1.DriftCommitNotApplied, v1alpha1.DriftClusterEdited, v1alpha1.DriftHubEdited, v1alpha1.DriftBothEdited, v1alpha1.DriftConverging, v1alpha1.DriftRuleBroken, fleet.CauseBeingDeleted, fleet.CauseNotPushed, fleet.CauseCloneBehind} {
		if fleet.CauseRemedy(cause) == "" {
			t.Errorf("%s has no remedy", cause)
		}
	}
}

// What the hub says of its own is taken from it: who set aside what Git says, and
// since when.
func TestAnOverrideIsNobodysEdit(t *testing.T) {
	in := agreeing(t)
	since := time.Unix(1_800_000_000, 0).UTC()
	have := &in.Hub.Pools[0]
	git := have.PoolDefinition
	have.MaxRunners = 2
	have.Override = &hubv1.Override{Reason: "fire", By: "user:ann", Since: since, Git: git}
	have.Drift = fleet.HubDrift(git, have.PoolDefinition)
	if len(have.Drift) != 1 || have.Drift[0].Path != "/spec/maxRunners" || have.Drift[0].Git != "4" || have.Drift[0].Hub != "2" {
		t.Fatalf("the hub has %+v", have.Drift)
	}
	have.Drift[0].Cause, have.Drift[0].By, have.Drift[0].Since = hubv1.CauseBreakGlass, "user:ann", since
	var found []fleet.FieldDrift
	report := fleet.Drift(in)
	for _, pool := range report.Pools {
		for _, field := range pool.Fields {
			if field.Surface == fleet.SurfaceGitHub {
				found = append(found, field)
			}
		}
	}
	if len(found) != 1 || found[0].Cause != hubv1.CauseBreakGlass || found[0].Manager != "user:ann" || found[0].Since == nil || !found[0].Since.Equal(since) {
		t.Errorf("found %+v", found)
	}
	if text := report.Text(); !strings.Contains(text, "end-override") {
		t.Errorf("it does not say what to do: %s", text)
	}

	// A pool that a cluster defines is in no half that the hub reads.
	have.Name, have.Source = "theirs", &hubv1.Provenance{Sync: hubv1.ClusterOwner("eu", "fleet", "theirs")}
	for _, pool := range fleet.Drift(in).Pools {
		if pool.Pool != "theirs" {
			continue
		}
		if len(pool.Fields) != 1 || pool.Fields[0].Cause != hubv1.CauseBreakGlass || pool.Fields[0].Namespace != "fleet" || fmt.Sprint(pool.Fields[0].Git) != "4" {
			t.Errorf("of a cluster it is %+v", pool.Fields)
		}
		have = nil
	}
	if have != nil {
		t.Error("it was not compared")
	}
}
