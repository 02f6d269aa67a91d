package fleet_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

const kustomizationOfFlux = `{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization,
metadata: {namespace: flux-system, name: fleet, generation: 2},
spec: {path: ./clusters/eu/, sourceRef: {kind: GitRepository, name: fleet}, postBuild: {substitute: {REGION: eu}, substituteFrom: [{kind: ConfigMap, name: more, optional: true}]}},
status: {lastAppliedRevision: "main@sha1:` + newer + `", conditions: [{type: Ready, status: "True", reason: ReconciliationSucceeded, message: applied, observedGeneration: 2}]}}`

func TestWhatAppliesInPlaceOfAPoolSyncIsRead(t *testing.T) {
	flux := fleet.ForeignSyncOf(object(t, kustomizationOfFlux))
	if flux.String() != "Kustomization flux-system/fleet" || flux.Path != "clusters/eu" || flux.Repository != "GitRepository flux-system/fleet" ||
		flux.LastAppliedRevision != "main@sha1:"+newer || flux.Ready != metav1.ConditionTrue || flux.Message != "applied" || len(flux.Unrendered) > 0 {
		t.Errorf("read %+v", flux)
	}
	if s := flux.Substitute; s == nil || s.Vars["REGION"] != "eu" || len(s.From) != 1 || !s.From[0].Optional {
		t.Errorf("it replaces by %+v", s)
	}
	for from, to := range map[string]string{
		"observedGeneration: 2": "observedGeneration: 1", "path: ./clusters/eu/": "path: ./clusters/eu/, kubeConfig: {secretRef: {name: us}}",
		"kind: ConfigMap": "kind: Secret", "lastApplied": "lastAttempted",
	} {
		changed := fleet.ForeignSyncOf(object(t, strings.Replace(kustomizationOfFlux, from, to, 1)))
		if changed.Ready == flux.Ready && slices.Equal(changed.Unrendered, flux.Unrendered) && changed.LastAppliedRevision == flux.LastAppliedRevision {
			t.Errorf("%s makes no difference", to)
		}
	}
	for status, want := range map[string]string{
		`{sync: {status: Synced, revision: abc}, health: {status: Healthy}}`:                                                                     "True Synced abc ",
		`{sync: {status: OutOfSync, revision: abc}, health: {status: Healthy}}`:                                                                  "Unknown OutOfSync  ",
		`{sync: {status: Synced, revision: abc}, health: {status: Degraded, message: no credential}}`:                                            "False Degraded abc no credential",
		`{sync: {status: OutOfSync}, health: {status: Healthy}, operationState: {phase: Failed, message: refused, syncResult: {revision: abc}}}`: "False Failed  refused",
		`{}`: "Unknown   ",
	} {
		argo := fleet.ForeignSyncOf(object(t, `{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {namespace: argocd, name: fleet-eu},
spec: {source: {repoURL: "https://git.example.com/fleet.git", path: clusters/eu}}, status: `+status+`}`))
		if got := string(argo.Ready) + " " + argo.Reason + " " + argo.LastAppliedRevision + " " + argo.Message; got != want || argo.Path != "clusters/eu" {
			t.Errorf("%s is %q, not %q", status, got, want)
		}
	}
}

func TestWhoAppliesAPool(t *testing.T) {
	for labels, want := range map[string]string{
		`labels: {kustomize.toolkit.fluxcd.io/name: fleet, kustomize.toolkit.fluxcd.io/namespace: flux-system}`: "Kustomization flux-system/fleet",
		`annotations: {argocd.argoproj.io/tracking-id: "fleet-eu:cloop.dev/ExecutorPool:pools/gpu"}`:            "Application argocd/fleet-eu",
		`annotations: {argocd.argoproj.io/tracking-id: "team_fleet:cloop.dev/ExecutorPool:pools/gpu"}`:          "Application team/fleet",
		`labels: {kustomize.toolkit.fluxcd.io/name: fleet, poolsync.cloop.dev/name: fleet}`:                     "",
		`labels: {}`: "",
	} {
		by, foreign := fleet.AppliedBy(object(t, "{apiVersion: cloop.dev/v1alpha1, kind: ExecutorPool, metadata: {name: gpu, "+labels+"}}"))
		if foreign != (want != "") || foreign && by.String() != want {
			t.Errorf("%s is applied by %q", labels, by)
		}
	}
}

// With Flux applying, a difference has the same causes as with a PoolSync, Flux is not
// taken for somebody who edited, and its revision is shown.
func TestDriftBesideFlux(t *testing.T) {
	for name, test := range map[string]struct {
		change func(in *fleet.DriftInput)
		want   string
	}{
		"agreeing": {func(*fleet.DriftInput) {}, ""},
		"an edit":  {func(in *fleet.DriftInput) { set(t, &in.Clusters[0].Live[0], int64(2), "spec", "maxRunners") }, v1alpha1.DriftClusterEdited},
		"under way": {func(in *fleet.DriftInput) {
			set(t, &in.Clusters[0].Live[0], int64(2), "spec", "maxRunners")
			in.Clusters[0].Foreign[0].LastAppliedRevision = "main@sha1:" + older
		}, v1alpha1.DriftConverging},
		"not applied": {func(in *fleet.DriftInput) {
			set(t, &in.Clusters[0].Live[0], int64(2), "spec", "maxRunners")
			in.Clusters[0].Foreign[0].LastAppliedRevision, in.Clusters[0].Foreign[0].Ready = "main@sha1:"+older, metav1.ConditionFalse
		}, v1alpha1.DriftCommitNotApplied},
		"not made yet": {func(in *fleet.DriftInput) {
			in.Clusters[0].Live, in.Clusters[0].Foreign[0].LastAppliedRevision = nil, "main@sha1:"+older
		}, v1alpha1.DriftConverging},
		"left behind": {func(in *fleet.DriftInput) { in.Clusters[0].Git = rendered() }, v1alpha1.DriftClusterEdited},
	} {
		in := agreeing(t)
		in.Clusters[0].Syncs, in.Hub = nil, nil
		in.Clusters[0].Foreign = []fleet.ForeignSync{fleet.ForeignSyncOf(object(t, kustomizationOfFlux))}
		in.Clusters[0].Live[0].SetLabels(map[string]string{"kustomize.toolkit.fluxcd.io/name": "fleet", "kustomize.toolkit.fluxcd.io/namespace": "flux-system"})
		in.Clusters[0].Live[0].SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: "kustomize-controller", Operation: "Apply", FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:maxRunners":{}}}`),
		}})
		test.change(&in)
		report := fleet.Drift(in)
		causes := []string{}
		for _, pool := range report.Pools {
			for _, field := range pool.Fields {
				causes = append(causes, field.Cause+field.Manager)
			}
			if len(in.Clusters[0].Live) > 0 && (pool.AppliedBy != "Kustomization flux-system/fleet" || !strings.HasPrefix(pool.Revision, "main@sha1:")) {
				t.Errorf("%s: applied by %q at %q", name, pool.AppliedBy, pool.Revision)
			}
		}
		if got := strings.Join(causes, " "); got != test.want {
			t.Errorf("%s: %q and not %q: %s", name, got, test.want, report.Text())
		}
		if test.want != "" && len(in.Clusters[0].Live) > 0 && !strings.Contains(report.Text(), "(cluster eu, Kustomization flux-system/fleet at main@sha1:") {
			t.Errorf("%s: %s", name, report.Text())
		}
	}
}

// What an object of the cluster changes by fields of its own is part of what Git wants.
func TestWhatElseAppliesIsBuiltAsItChangesIt(t *testing.T) {
	const patches = "[{target: {kind: ExecutorPool}, patch: '[{\"op\": \"replace\", \"path\": \"/spec/maxRunners\", \"value\": 7}]'}]"
	dir := repo(t, map[string]string{"eu/kustomization.yaml": "resources: [pool.yaml]\n", "eu/pool.yaml": basePool, "us/pool.yaml": basePool})
	for name, test := range map[string]struct {
		object string
		wants  int64
		err    error
	}{
		"Flux":                             {"{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: f}, spec: {path: eu, patches: " + patches + "}}", 7, nil},
		"Flux, without any":                {"{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: f}, spec: {path: eu}}", 4, nil},
		"Flux, of files":                   {"{apiVersion: kustomize.toolkit.fluxcd.io/v1, kind: Kustomization, metadata: {name: f}, spec: {path: us, patches: " + patches + "}}", 7, nil},
		"Argo CD":                          {"{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: a}, spec: {source: {path: eu, kustomize: {patches: " + patches + "}}}}", 7, nil},
		"Argo CD, which takes it for none": {"{apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: a}, spec: {source: {path: us, kustomize: {patches: " + patches + "}}}}", 0, fleet.ErrUnrendered},
	} {
		sync := fleet.ForeignSyncOf(object(t, test.object))
		built, err := sync.Build(t.Context(), dir, nil)
		if !errors.Is(err, test.err) || len(sync.Unrendered) > 0 {
			t.Errorf("%s: %v, %v", name, err, sync.Unrendered)
			continue
		}
		if test.err != nil {
			continue
		}
		if got, _, _ := unstructured.NestedInt64(built[0].Object.Object, "spec", "maxRunners"); len(built) != 1 || got != test.wants {
			t.Errorf("%s: %d objects, maxRunners is %d", name, len(built), got)
		}
	}
}
