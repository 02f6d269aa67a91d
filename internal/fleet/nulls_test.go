package fleet_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// nullPool has nulls of each kind: of an object, a list, a text, an entry and, where they
// mean the default, a number.
const nullPool = `apiVersion: cloop.dev/v1alpha1
kind: ExecutorPool
metadata:
  name: gpu
  namespace: runners
spec:
  hubURL: https://hub.example.com
  poolCredentialSecretRef:
    name: gpu-pool-credential
  maxRunners: 4
  minRunners: null
  hubPool: null
  runnerLabels: {a: null, b: c}
  template:
    nodeSelector: null
    tolerations:
    - {key: null, operator: Exists}
    image: ${IMAGE:=}
`

// What a path renders has no null that an API server would drop from what is created.
func TestNullsAreNotHandedOut(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"plain":           {"clusters/eu/gpu.yaml": nullPool},
		"a kustomization": {"clusters/eu/kustomization.yaml": "resources: [gpu.yaml]\n", "clusters/eu/gpu.yaml": nullPool},
	} {
		t.Run(name, func(t *testing.T) {
			none, err := fleet.NewVariables()
			if err != nil {
				t.Fatal(err)
			}
			dir := repo(t, files)
			rendered, report, err := fleet.BuildChecked(t.Context(), validator(t), dir, "clusters/eu", none)
			if err != nil || report.Failed() || len(rendered) != 1 {
				t.Fatalf("%d objects, %v, %v", len(rendered), err, report)
			}
			spec, _ := rendered[0].Object.Object["spec"].(map[string]any)
			if got := slices.Sorted(maps.Keys(spec)); !slices.Equal(got, []string{"hubURL", "maxRunners", "minRunners", "poolCredentialSecretRef", "runnerLabels", "template"}) {
				t.Errorf("the spec has %v", got)
			}
			template, _ := spec["template"].(map[string]any)
			if got := slices.Collect(maps.Keys(template)); !slices.Equal(got, []string{"tolerations"}) {
				t.Errorf("the template has %v", got)
			}
		})
	}
}

// A label that is null is an empty text to an API server, and hides none of the others.
func TestNullLabelsHideNoOthers(t *testing.T) {
	pool := strings.Replace(basePool, "metadata:\n", "metadata:\n  labels: {a: null, b: c}\n  annotations: {note: \"${NOTE:=}\", cloop.dev/observe: \"true\"}\n", 1)
	none, err := fleet.NewVariables()
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string]string{
		"plain":           {"clusters/eu/gpu.yaml": pool},
		"a kustomization": {"clusters/eu/kustomization.yaml": "resources: [gpu.yaml]\n", "clusters/eu/gpu.yaml": pool},
	} {
		t.Run(name, func(t *testing.T) {
			rendered, err := fleet.BuildWith(t.Context(), repo(t, files), "clusters/eu", none)
			if err != nil || len(rendered) != 1 {
				t.Fatalf("%d objects, %v", len(rendered), err)
			}
			object := rendered[0].Object
			if got := object.GetLabels(); !maps.Equal(got, map[string]string{"a": "", "b": "c"}) || !fleet.Observed(object) {
				t.Errorf("labels %v, observed %t", got, fleet.Observed(object))
			}
		})
	}
}

// Who applies on the server's side has a null refused; a PoolSync and kubectl do not.
func TestNullsAreToldOfWhereTheyAreRefused(t *testing.T) {
	const (
		flux = "apiVersion: kustomize.toolkit.fluxcd.io/v1\nkind: Kustomization\nmetadata: {name: eu, namespace: flux-system}\nspec: {path: ./clusters/eu, prune: true, interval: 10m, sourceRef: {kind: GitRepository, name: fleet}, postBuild: {substitute: {A: a}}}\n"
		argo = "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: eu, namespace: argocd}\nspec: {source: {path: clusters/eu}, syncPolicy: {syncOptions: [CreateNamespace=true, ServerSideApply=true]}}\n"
	)
	eu := func(more ...string) map[string]string {
		files := map[string]string{"clusters/eu/kustomization.yaml": "resources: [gpu.yaml]\n", "clusters/eu/gpu.yaml": strings.ReplaceAll(nullPool, "${IMAGE:=}", "null")}
		for i := 0; i < len(more); i += 2 {
			files[more[i]] = more[i+1]
		}
		return files
	}
	const option = "metadata:\n  annotations: {argocd.argoproj.io/sync-options: \"Prune=false, ServerSideApply=%\"}\n"
	says := func(pool, value string) string {
		return strings.Replace(pool, "metadata:\n", strings.ReplaceAll(option, "%", value), 1)
	}
	refused := []string{"12:3 spec.hubPool", "13:18 spec.runnerLabels.a", "18:5 spec.template.image", "15:5 spec.template.nodeSelector", "17:8 spec.template.tolerations[0].key"}
	below := []string{"13:3 spec.hubPool", "14:18 spec.runnerLabels.a", "19:5 spec.template.image", "16:5 spec.template.nodeSelector", "18:8 spec.template.tolerations[0].key"}
	clean := strings.ReplaceAll(nullPool, "${IMAGE:=}", "null")
	for name, test := range map[string]struct {
		files map[string]string
		want  []string
	}{
		"nobody is known":                   {eu(), nil},
		"a PoolSync":                        {eu("syncs/eu.yaml", poolSync("eu", "clusters/eu", "")), nil},
		"Flux":                              {eu("flux/eu.yaml", flux), refused},
		"Flux, of a variable without text":  {eu("flux/eu.yaml", flux, "clusters/eu/gpu.yaml", nullPool), refused},
		"Flux and a PoolSync":               {eu("flux/eu.yaml", flux, "syncs/eu.yaml", poolSync("eu", "clusters/eu", "")), refused},
		"Flux elsewhere":                    {eu("flux/eu.yaml", strings.Replace(flux, "clusters/eu", "clusters/us", 1)), nil},
		"Argo CD on the server's side":      {eu("argo/eu.yaml", argo), refused},
		"Argo CD as kubectl does":           {eu("argo/eu.yaml", strings.Replace(argo, ", ServerSideApply=true", "", 1)), nil},
		"Argo CD, and the object says so":   {eu("argo/eu.yaml", strings.Replace(argo, ", ServerSideApply=true", "", 1), "clusters/eu/gpu.yaml", says(clean, "true")), below},
		"Argo CD, and the object says not":  {eu("argo/eu.yaml", argo, "clusters/eu/gpu.yaml", says(clean, "false")), nil},
		"a set of Argo CD's":                {eu("argo/eu.yaml", "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: eu}\nspec: {template: {spec: {source: {path: clusters/eu}, syncPolicy: {syncOptions: [ServerSideApply=true]}}}}\n"), refused},
		"of a kind with Go types, by Flux":  {eu("flux/eu.yaml", flux, "clusters/eu/gpu.yaml", "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a, labels: null}\nimagePullSecrets: null\n"), nil},
		"a default is meant, by Flux alone": {eu("flux/eu.yaml", flux, "clusters/eu/gpu.yaml", basePool+"  minRunners: null\nstatus: null\n"), nil},
	} {
		t.Run(name, func(t *testing.T) {
			report, err := fleet.Check(t.Context(), validator(t), repo(t, test.files))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, p := range report.Problems {
				if p.Rule == fleet.RuleNullApplied {
					got = append(got, strings.TrimPrefix(p.String(), "clusters/eu/gpu.yaml:"))
				}
			}
			slices.Sort(got)
			want := slices.Sorted(slices.Values(test.want))
			if len(got) != len(want) {
				t.Fatalf("it says %q, want %q; all: %v", got, want, report.Problems)
			}
			for i := range got {
				place, path, _ := strings.Cut(want[i], " ")
				if !strings.HasPrefix(got[i], place+": ") || !strings.Contains(got[i], ": "+path+": null is refused by the API server where ") {
					t.Errorf("it says %q, want %q", got[i], want[i])
				}
			}
		})
	}
}
