package diff_test

import (
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/schemas"
)

// leaves are the fields of a definition as the table of classes spells them.
func leaves(name string, s *apiextensionsv1.JSONSchemaProps) []string {
	switch {
	case s.Items != nil && s.Items.Schema != nil:
		inner := leaves(name+"[]", s.Items.Schema)
		if !slices.Contains(inner, name+"[]") {
			inner = append(inner, name+"[]")
		}
		return inner
	case s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil:
		return leaves(name+"{}", s.AdditionalProperties.Schema)
	case len(s.Properties) == 0:
		return []string{name}
	}
	var all []string
	for property := range s.Properties {
		child := s.Properties[property]
		all = append(all, leaves(name+"."+property, &child)...)
	}
	return all
}

// A field that a definition has and the table of classes does not, or the
// reverse, fails here: add it to judges.
func TestEveryFieldHasAClass(t *testing.T) {
	t.Parallel()
	definitions, err := schemas.CRDs()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		for _, version := range definition.Spec.Versions {
			fields := version.Schema.OpenAPIV3Schema.Properties["spec"]
			want, got := leaves("spec", &fields), diff.FieldNames(definition.Spec.Names.Kind)
			slices.Sort(want)
			slices.Sort(got)
			for _, name := range want {
				if !slices.Contains(got, name) {
					t.Errorf("%s %s: %s has no class", definition.Spec.Names.Kind, version.Name, name)
				}
			}
			for _, name := range got {
				if !slices.Contains(want, name) {
					t.Errorf("%s %s: there is no field %s", definition.Spec.Names.Kind, version.Name, name)
				}
			}
		}
	}
}

// foreign is a document of what applies pools in place of a PoolSync.
func foreign(t testing.TB, version, kind, spec string) *unstructured.Unstructured {
	o := document(t, kind, spec)
	o.SetAPIVersion(version)
	return o
}

func finalized(o *unstructured.Unstructured) *unstructured.Unstructured {
	o.SetFinalizers([]string{"resources-finalizer.argocd.argoproj.io"})
	return o
}

func document(t testing.TB, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	text := "apiVersion: cloop.dev/v1alpha1\nkind: " + kind + "\nmetadata: {name: gpu, namespace: pools}\n" + spec
	o := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(text))
	if err == nil {
		err = o.UnmarshalJSON(data)
	}
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return o
}

// classes of one change: path → class.
func classes(o diff.Object) map[string]diff.Class {
	all := map[string]diff.Class{}
	for _, field := range o.Fields {
		all[field.Path] = field.Class
	}
	return all
}

// spec of one field, or of several in braces.
func spec(fields string) string {
	if !strings.HasPrefix(fields, "{") {
		fields = "{" + fields + "}"
	}
	return "spec: " + fields
}

func TestClassesOfFields(t *testing.T) {
	t.Parallel()
	const (
		pool = "ExecutorPool"
		hub  = "HubPool"
		sync = "PoolSync"
	)
	for _, test := range []struct {
		name, kind, from, to, path string
		want                       diff.Class
	}{
		{"more runners", pool, "maxRunners: 2", "maxRunners: 4", "/spec/maxRunners", diff.Raise},
		{"fewer runners", pool, "maxRunners: 4", "maxRunners: 2", "/spec/maxRunners", diff.Lower},
		{"fewer runners and so volumes", pool, "{maxRunners: 4, persistence: {enabled: true, size: 1Gi}}", "{maxRunners: 2, persistence: {enabled: true, size: 1Gi}}", "/spec/maxRunners", diff.Destructive},
		{"fewer runners with as many volumes", pool, "{maxRunners: 4, persistence: {enabled: true, size: 1Gi, maxClaims: 4}}", "{maxRunners: 2, persistence: {enabled: true, size: 1Gi, maxClaims: 4}}", "/spec/maxRunners", diff.Lower},
		{"fewer runners, volumes retained", pool, "{maxRunners: 4, persistence: {enabled: true, size: 1Gi, reclaimPolicy: Retain}}", "{maxRunners: 2, persistence: {enabled: true, size: 1Gi, reclaimPolicy: Retain}}", "/spec/maxRunners", diff.Lower},
		{"fewer volumes", pool, "{maxRunners: 2, persistence: {enabled: true, size: 1Gi, maxClaims: 8}}", "{maxRunners: 2, persistence: {enabled: true, size: 1Gi, maxClaims: 4}}", "/spec/persistence/maxClaims", diff.Destructive},
		{"a bound on volumes goes", pool, "{maxRunners: 2, persistence: {enabled: true, size: 1Gi, maxClaims: 8}}", "{maxRunners: 2, persistence: {enabled: true, size: 1Gi}}", "/spec/persistence/maxClaims", diff.Destructive},
		{"more volumes", pool, "{maxRunners: 2, persistence: {enabled: true, size: 1Gi}}", "{maxRunners: 2, persistence: {enabled: true, size: 1Gi, maxClaims: 8}}", "/spec/persistence/maxClaims", diff.Raise},
		{"kept idle", pool, "maxRunners: 4", "{maxRunners: 4, minRunners: 1}", "/spec/minRunners", diff.Raise},
		{"longer idle", pool, "scaleDownDelay: 5m", "scaleDownDelay: 1h", "/spec/scaleDownDelay", diff.Raise},
		{"shorter idle", pool, "{}", "scaleDownDelay: 60s", "/spec/scaleDownDelay", diff.Lower},
		{"another hub", pool, "hubURL: https://a", "hubURL: https://b", "/spec/hubURL", diff.Destructive},
		{"a hub at all", pool, "{}", "hubURL: https://b", "/spec/hubURL", diff.Neutral},
		{"another credential", pool, "poolCredentialSecretRef: {name: a}", "poolCredentialSecretRef: {name: b}", "/spec/poolCredentialSecretRef/name", diff.Destructive},
		{"another key", pool, "poolCredentialSecretRef: {name: a}", "poolCredentialSecretRef: {name: a, key: k}", "/spec/poolCredentialSecretRef/key", diff.Destructive},
		{"another pin", pool, "hubCAPin: sha256:a", "hubCAPin: sha256:b", "/spec/hubCAPin", diff.Raise},
		{"a pin", pool, "{}", "hubCAPin: sha256:b", "/spec/hubCAPin", diff.Lower},
		{"no pin", pool, "hubCAPin: sha256:a", "{}", "/spec/hubCAPin", diff.Raise},
		{"the same hub with a slash", pool, "hubURL: https://h", "hubURL: https://H:443/", "/spec/hubURL", diff.Neutral},
		{"a number for an amount", pool, "maxRunners: 4", "maxRunners: many", "/spec/maxRunners", diff.Neutral},
		{"a text for a number", pool, "maxRunners: 4", "maxRunners: '2'", "/spec/maxRunners", diff.Neutral},
		{"a variable for a number", pool, "maxRunners: 4", "maxRunners: '${MAX:=4}'", "/spec/maxRunners", diff.Neutral},
		{"a text for a switch", pool, "persistence: {enabled: true}", "persistence: {enabled: 'no'}", "/spec/persistence/enabled", diff.Neutral},
		{"a text for a duration", pool, "scaleDownDelay: 1h", "scaleDownDelay: soon", "/spec/scaleDownDelay", diff.Neutral},
		{"a number for a hub", pool, "hubURL: https://h", "hubURL: 4", "/spec/hubURL", diff.Neutral},
		{"a text for a limit", pool, "template: {resources: {limits: {memory: 1Gi}}}", "template: {resources: {limits: {memory: lots}}}", "/spec/template/resources/limits/memory", diff.Neutral},
		{"no runtime class", pool, "template: {runtimeClassName: gvisor}", "{}", "/spec/template/runtimeClassName", diff.Raise},
		{"a runtime class", pool, "{}", "template: {runtimeClassName: gvisor}", "/spec/template/runtimeClassName", diff.Lower},
		{"another runtime class", pool, "template: {runtimeClassName: gvisor}", "template: {runtimeClassName: runc}", "/spec/template/runtimeClassName", diff.Raise},
		{"an account for runs", pool, "{}", "template: {serviceAccountName: a}", "/spec/template/serviceAccountName", diff.Raise},
		{"no account for runs", pool, "template: {serviceAccountName: a}", "{}", "/spec/template/serviceAccountName", diff.Lower},
		{"a secret for runs", pool, "{}", "template: {env: [{name: A, secretKeyRef: {name: s, key: k}}]}", "/spec/template/env", diff.Raise},
		{"another secret for runs", pool, "template: {env: [{name: A, secretKeyRef: {name: s, key: k}}]}", "template: {env: [{name: A, secretKeyRef: {name: t, key: k}}]}", "/spec/template/env/0/secretKeyRef/name", diff.Raise},
		{"a taint more", pool, "{}", "template: {tolerations: [{key: a, operator: Exists}]}", "/spec/template/tolerations", diff.Raise},
		{"a taint less", pool, "template: {tolerations: [{key: a, operator: Exists}]}", "{}", "/spec/template/tolerations", diff.Lower},
		{"volumes off, and kept", pool, "persistence: {enabled: true, size: 1Gi, reclaimPolicy: Retain}", "persistence: {enabled: false, size: 1Gi, reclaimPolicy: Retain}", "/spec/persistence/enabled", diff.Lower},
		{"volumes and their policy gone", pool, "persistence: {enabled: true, size: 1Gi, reclaimPolicy: Retain}", "{}", "/spec/persistence/enabled", diff.Destructive},
		{"a size of nothing goes", pool, "persistence: {size: 1Gi}", "{}", "/spec/persistence/size", diff.Neutral},
		{"a bound on nothing goes", pool, "persistence: {maxClaims: 9}", "{}", "/spec/persistence/maxClaims", diff.Neutral},
		{"a mount of nothing goes", pool, "persistence: {mounts: [workspace, gitCache]}", "persistence: {mounts: [workspace]}", "/spec/persistence/mounts", diff.Neutral},
		{"authority given", pool, "{}", "template: {automountServiceAccountToken: true}", "/spec/template/automountServiceAccountToken", diff.Raise},
		{"authority taken", pool, "template: {automountServiceAccountToken: true}", "{}", "/spec/template/automountServiceAccountToken", diff.Lower},
		{"a limit comes", pool, "{}", "template: {resources: {limits: {memory: 1Gi}}}", "/spec/template/resources/limits/memory", diff.Lower},
		{"a limit grows", pool, "template: {resources: {limits: {memory: 1Gi}}}", "template: {resources: {limits: {memory: 2Gi}}}", "/spec/template/resources/limits/memory", diff.Raise},
		{"a limit goes", pool, "template: {resources: {limits: {memory: 1Gi}}}", "{}", "/spec/template/resources/limits/memory", diff.Raise},
		{"a request shrinks", pool, "template: {resources: {requests: {nvidia.com/gpu: 2}}}", "template: {resources: {requests: {nvidia.com/gpu: 1}}}", "/spec/template/resources/requests/nvidia.com~1gpu", diff.Lower},
		{"another image", pool, "template: {image: a}", "template: {image: b}", "/spec/template/image", diff.Neutral},
		{"volumes on", pool, "{}", "persistence: {enabled: true, size: 1Gi}", "/spec/persistence/enabled", diff.Raise},
		{"volumes off", pool, "persistence: {enabled: true, size: 1Gi}", "persistence: {enabled: false, size: 1Gi}", "/spec/persistence/enabled", diff.Destructive},
		{"volumes gone", pool, "persistence: {enabled: true, size: 1Gi}", "{}", "/spec/persistence/enabled", diff.Destructive},
		{"nothing to turn off", pool, "persistence: {}", "{}", "/spec/persistence/enabled", diff.Neutral},
		{"volumes no longer retained", pool, "persistence: {enabled: true, reclaimPolicy: Retain}", "persistence: {enabled: true}", "/spec/persistence/reclaimPolicy", diff.Destructive},
		{"volumes retained", pool, "persistence: {enabled: true}", "persistence: {enabled: true, reclaimPolicy: Retain}", "/spec/persistence/reclaimPolicy", diff.Neutral},
		{"a mount goes", pool, "persistence: {enabled: true, mounts: [workspace, gitCache]}", "persistence: {enabled: true, mounts: [workspace]}", "/spec/persistence/mounts", diff.Lower},
		{"a mount comes", pool, "persistence: {enabled: true, mounts: [workspace]}", "persistence: {enabled: true, mounts: [workspace, gitCache]}", "/spec/persistence/mounts", diff.Raise},
		{"another mount", pool, "persistence: {enabled: true, mounts: [workspace]}", "persistence: {enabled: true, mounts: [gitCache]}", "/spec/persistence/mounts", diff.Raise},

		{"the hub's maximum", hub, "maxRunners: 4", "maxRunners: 2", "/spec/maxRunners", diff.Lower},
		{"a label comes", hub, "{}", "labels: {gpu: x}", "/spec/labels/gpu", diff.Raise},
		{"a label changes", hub, "labels: {gpu: x}", "labels: {gpu: z}", "/spec/labels/gpu", diff.Raise},
		{"a label goes", hub, "labels: {gpu: x}", "{}", "/spec/labels/gpu", diff.Lower},
		{"somebody more", hub, "audience: ['user:a']", "audience: ['user:a', 'user:b']", "/spec/audience", diff.Raise},
		{"somebody less", hub, "audience: ['user:a', 'user:b']", "audience: ['user:b']", "/spec/audience", diff.Lower},
		{"somebody else", hub, "audience: ['group:a']", "audience: ['group:b']", "/spec/audience", diff.Raise},
		{"another owner", hub, "owner: 'user:a'", "owner: 'user:b'", "/spec/owner", diff.Raise},
		{"everybody", hub, "audience: ['user:a']", "audience: []", "/spec/audience", diff.Raise},
		{"not everybody any more", hub, "{}", "audience: ['user:a']", "/spec/audience", diff.Lower},
		{"an owner", hub, "{}", "owner: 'user:a'", "/spec/owner", diff.Lower},
		{"no owner", hub, "owner: 'user:a'", "{}", "/spec/owner", diff.Raise},
		{"a capability", hub, "{}", "capabilities: {kernelIsolated: true}", "/spec/capabilities/kernelIsolated", diff.Raise},
		{"a capability less", hub, "capabilities: {kernelIsolated: true}", "capabilities: {kernelIsolated: false}", "/spec/capabilities/kernelIsolated", diff.Lower},
		{"a cordon", hub, "{}", "cordon: {reason: upgrade}", "/spec/cordon/reason", diff.Lower},
		{"no cordon", hub, "cordon: {reason: upgrade}", "{}", "/spec/cordon/reason", diff.Raise},
		{"another reason", hub, "cordon: {reason: upgrade}", "cordon: {reason: repair}", "/spec/cordon/reason", diff.Neutral},
		{"revoked once it goes", hub, "{}", "deletionPolicy: Revoke", "/spec/deletionPolicy", diff.Destructive},
		{"kept once it goes", hub, "deletionPolicy: Revoke", "{}", "/spec/deletionPolicy", diff.Neutral},
		{"another authority", hub, "hub: {caBundle: a}", "hub: {caBundle: b}", "/spec/hub/caBundle", diff.Raise},
		{"the same hub with a port", hub, "hub: {url: 'https://a'}", "hub: {url: 'https://a:443'}", "/spec/hub/url", diff.Neutral},
		{"the hub it is at", hub, "hub: {url: 'https://a'}", "hub: {url: 'https://b'}", "/spec/hub/url", diff.Destructive},
		{"where the credential goes", hub, "credential: {secretRef: {name: a}}", "credential: {secretRef: {name: b}}", "/spec/credential/secretRef/name", diff.Destructive},
		{"its age", hub, "credential: {rotateEvery: 1h}", "credential: {rotateEvery: 2h}", "/spec/credential/rotateEvery", diff.Neutral},

		{"prune on", sync, "prune: false", "prune: true", "/spec/prune", diff.Destructive},
		{"prune off", sync, "{}", "prune: false", "/spec/prune", diff.Neutral},
		{"more pruned at once", sync, "pruneLimit: {count: 5}", "pruneLimit: {count: 9}", "/spec/pruneLimit/count", diff.Raise},
		{"no share", sync, "pruneLimit: {percent: 20}", "pruneLimit: {percent: 0}", "/spec/pruneLimit/percent", diff.Raise},
		{"a smaller share", sync, "pruneLimit: {percent: 20}", "pruneLimit: {percent: 5}", "/spec/pruneLimit/percent", diff.Lower},
		{"another repository", sync, "source: {git: {url: 'https://a'}}", "source: {git: {url: 'https://b'}}", "/spec/source/git/url", diff.Destructive},
		{"another path", sync, "path: ./a", "path: ./b", "/spec/path", diff.Destructive},
		{"the same path", sync, "path: ./a", "path: a/", "/spec/path", diff.Neutral},
		{"another path, nothing pruned", sync, "{path: ./a, prune: false}", "{path: ./b, prune: false}", "/spec/path", diff.Raise},
		{"the same repository", sync, "source: {git: {url: 'https://a/f.git'}}", "source: {git: {url: 'https://A:443/f/'}}", "/spec/source/git/url", diff.Neutral},
		{"the same repository over ssh", sync, "source: {git: {url: 'https://a/f.git'}}", "source: {git: {url: 'ssh://git@a/f.git'}}", "/spec/source/git/url", diff.Neutral},
		{"another branch", sync, "source: {git: {url: 'https://a', ref: {branch: main}}}", "source: {git: {url: 'https://a', ref: {branch: prod}}}", "/spec/source/git/ref/branch", diff.Destructive},
		{"the branch that it is by default", sync, "source: {git: {url: 'https://a'}}", "source: {git: {url: 'https://a', ref: {branch: main}}}", "/spec/source/git/ref/branch", diff.Neutral},
		{"a branch that a tag hides", sync, "source: {git: {url: 'https://a', ref: {tag: v1, branch: main}}}", "source: {git: {url: 'https://a', ref: {tag: v1, branch: prod}}}", "/spec/source/git/ref/branch", diff.Neutral},
		{"a tag for a branch", sync, "source: {git: {url: 'https://a', ref: {branch: main}}}", "source: {git: {url: 'https://a', ref: {tag: v1}}}", "/spec/source/git/ref/tag", diff.Destructive},
		{"other versions", sync, "source: {git: {url: 'https://a', ref: {semver: 1.x}}}", "source: {git: {url: 'https://a', ref: {semver: 2.x}}}", "/spec/source/git/ref/semver", diff.Destructive},
		{"another commit", sync, "source: {git: {url: 'https://a', ref: {commit: a}}}", "source: {git: {url: 'https://a', ref: {commit: b}}}", "/spec/source/git/ref/commit", diff.Destructive},
		{"another commit, nothing pruned", sync, "{prune: false, source: {git: {url: 'https://a', ref: {commit: a}}}}", "{prune: false, source: {git: {url: 'https://a', ref: {commit: b}}}}", "/spec/source/git/ref/commit", diff.Raise},
		{"another source", sync, "sourceRef: {kind: GitRepository, name: a}", "sourceRef: {kind: GitRepository, name: b}", "/spec/sourceRef/name", diff.Destructive},
		{"its own namespace", sync, "sourceRef: {kind: GitRepository, name: a}", "sourceRef: {kind: GitRepository, name: a, namespace: pools}", "/spec/sourceRef/namespace", diff.Neutral},
		{"the tag unsigned", sync, "source: {git: {verify: {mode: TagAndHEAD}}}", "source: {git: {verify: {mode: HEAD}}}", "/spec/source/git/verify/mode", diff.Raise},
		{"the commit unsigned", sync, "source: {git: {verify: {mode: HEAD}}}", "source: {git: {verify: {mode: Tag}}}", "/spec/source/git/verify/mode", diff.Raise},
		{"both signed", sync, "source: {git: {verify: {mode: HEAD}}}", "source: {git: {verify: {mode: TagAndHEAD}}}", "/spec/source/git/verify/mode", diff.Lower},
		{"others may sign", sync, "source: {git: {verify: {mode: HEAD, secretRef: {name: a}}}}", "source: {git: {verify: {mode: HEAD, secretRef: {name: b}}}}", "/spec/source/git/verify/secretRef/name", diff.Raise},
		{"the controller's own rights", sync, "serviceAccountName: a", "{}", "/spec/serviceAccountName", diff.Raise},
		{"an account's rights", sync, "{}", "serviceAccountName: a", "/spec/serviceAccountName", diff.Lower},
		{"edits stay", sync, "{}", "drift: {mode: Report}", "/spec/drift/mode", diff.Lower},
		{"edits are taken back", sync, "drift: {mode: Report}", "{}", "/spec/drift/mode", diff.Raise},
		{"a field left alone", sync, "{}", "drift: {ignore: [{paths: [/spec/maxRunners]}]}", "/spec/drift/ignore", diff.Lower},
		{"a text for prune", sync, "prune: false", "prune: 'yes'", "/spec/prune", diff.Neutral},
		{"suspended", sync, "{}", "suspend: true", "/spec/suspend", diff.Lower},
		{"resumed", sync, "suspend: true", "{}", "/spec/suspend", diff.Raise},
		{"unsigned", sync, "source: {git: {verify: {mode: HEAD}}}", "{}", "/spec/source/git/verify/mode", diff.Raise},
		{"signed", sync, "{}", "source: {git: {verify: {mode: HEAD}}}", "/spec/source/git/verify/mode", diff.Lower},
		{"a variable", sync, "substitute: {vars: {A: x}}", "substitute: {vars: {A: y}}", "/spec/substitute/vars/A", diff.Neutral},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, differs := diff.CompareObjects(document(t, test.kind, spec(test.from)), document(t, test.kind, spec(test.to)))
			if got, ok := classes(o)[test.path]; !differs || !ok || got != test.want {
				t.Errorf("the class of %s is %q, want %q; all fields: %v", test.path, got, test.want, classes(o))
			}
		})
	}
}

// What the definitions do not have gets no class by chance, and its value is not
// shown: nobody knows what it is.
func TestUnknownFieldsAreNeutralAndNotShown(t *testing.T) {
	t.Parallel()
	o, _ := diff.CompareObjects(
		document(t, "ExecutorPool", "spec: {template: {env: [{name: A, value: s3cr3t-one}]}, extra: {deep: s3cr3t-two}}"),
		document(t, "ExecutorPool", "spec: {template: {env: [{name: A, value: s3cr3t-three}]}, extra: {deep: s3cr3t-four}, maxRunners: {a: s3cr3t-five}}"))
	for _, field := range o.Fields {
		if field.Class != diff.Neutral && field.Path != "/spec/maxRunners" {
			t.Errorf("%s is %s", field.Path, field.Class)
		}
	}
	report := &diff.Report{Overlays: []diff.Overlay{{Path: "a", Objects: []diff.Object{o}}}}
	if got := everything(t, report); strings.Contains(got, "s3cr3t") {
		t.Errorf("a value is shown: %s", got)
	}
}

// What grants and takes at once is the graver of the two, of a field and of an
// object.
func TestTheGravestClassWins(t *testing.T) {
	t.Parallel()
	for want, change := range map[diff.Class][2]string{
		diff.Destructive: {"{maxRunners: 4, deletionPolicy: Orphan}", "{maxRunners: 8, deletionPolicy: Revoke}"},
		diff.Raise:       {"{maxRunners: 4, audience: ['user:a']}", "{maxRunners: 2, audience: ['user:a', 'user:b']}"},
		diff.Lower:       {"{maxRunners: 4, harness: a}", "{maxRunners: 2, harness: b}"},
		diff.Neutral:     {"{harness: a}", "{harness: b}"},
	} {
		o, _ := diff.CompareObjects(document(t, "HubPool", spec(change[0])), document(t, "HubPool", spec(change[1])))
		if o.Class != want {
			t.Errorf("%v is %s, want %s", change, o.Class, want)
		}
	}
}

func TestMeaningOfWholeObjects(t *testing.T) {
	t.Parallel()
	persistent := "spec: {persistence: {enabled: true, size: 1Gi, reclaimPolicy: %s}}"
	for _, test := range []struct {
		name     string
		was, now *unstructured.Unstructured
		class    diff.Class
		says     string
	}{
		{"a pool comes", nil, document(t, "ExecutorPool", "spec: {maxRunners: 1}"), diff.Raise, "starts runners for hub pool gpu"},
		{"a pool goes", document(t, "ExecutorPool", "spec: {}"), nil, diff.Destructive, "retires its idle runners, waits for the busy ones and starts no more;"},
		{"a pool goes with its volumes", document(t, "ExecutorPool", strings.Replace(persistent, "%s", "Delete", 1)), nil, diff.Destructive, "its volumes are deleted"},
		{"a pool goes without its volumes", document(t, "ExecutorPool", strings.Replace(persistent, "%s", "Retain", 1)), nil, diff.Destructive, "its volumes are kept"},
		{"a hub pool goes", document(t, "HubPool", "spec: {}"), nil, diff.Neutral, "deletionPolicy is Orphan: the pool stays"},
		{"a hub pool is revoked", document(t, "HubPool", "spec: {deletionPolicy: Revoke}"), nil, diff.Destructive, "deletionPolicy is Revoke"},
		{"a sync goes", document(t, "PoolSync", "spec: {}"), nil, diff.Destructive, "is pruned"},
		{"a Kustomization goes", foreign(t, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", "spec: {prune: true}"), nil, diff.Destructive, "goes with it"},
		{"a Kustomization that prunes nothing goes", foreign(t, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", "spec: {prune: false}"), nil, diff.Neutral, ""},
		{"an Application goes", finalized(foreign(t, "argoproj.io/v1alpha1", "Application", "spec: {}")), nil, diff.Destructive, "goes with it"},
		{"an Application that leaves all goes", foreign(t, "argoproj.io/v1alpha1", "Application", "spec: {}"), nil, diff.Neutral, ""},
		{"a Kustomization goes that orphans all", foreign(t, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", "spec: {prune: true, deletionPolicy: Orphan}"), nil, diff.Neutral, ""},
		{"a Kustomization goes that deletes all", foreign(t, "kustomize.toolkit.fluxcd.io/v1", "Kustomization", "spec: {prune: false, deletionPolicy: Delete}"), nil, diff.Destructive, "goes with it"},
		{"an ApplicationSet goes", foreign(t, "argoproj.io/v1alpha1", "ApplicationSet", "spec: {}"), nil, diff.Destructive, "goes with it"},
		{"an ApplicationSet that preserves all goes", foreign(t, "argoproj.io/v1alpha1", "ApplicationSet", "spec: {syncPolicy: {preserveResourcesOnDeletion: true}}"), nil, diff.Neutral, ""},
		{"an ApplicationSet with finalizers of its own goes", foreign(t, "argoproj.io/v1alpha1", "ApplicationSet", "spec: {template: {metadata: {finalizers: [a.example.com/b]}}}"), nil, diff.Neutral, ""},
		{"a pool is compared alone", nil, observed(document(t, "ExecutorPool", "spec: {maxRunners: 1}")), diff.Neutral, "only compared"},
		{"a pool is observed", document(t, "ExecutorPool", "spec: {maxRunners: 1}"), observed(document(t, "ExecutorPool", "spec: {maxRunners: 2}")), diff.Lower, "what the cluster has stays as it was applied last"},
		{"an observed pool changes", observed(document(t, "ExecutorPool", "spec: {maxRunners: 1}")), observed(document(t, "ExecutorPool", "spec: {maxRunners: 2}")), diff.Neutral, "nothing happens to what the cluster has"},
		{"an observed pool goes", observed(document(t, "ExecutorPool", "spec: {maxRunners: 1}")), nil, diff.Neutral, "nothing happens to what the cluster has"},
		{"an observed pool is adopted", observed(document(t, "ExecutorPool", "spec: {maxRunners: 1}")), document(t, "ExecutorPool", "spec: {maxRunners: 1}"), diff.Raise, "what the cluster has becomes what the document says"},
		{"an observed hub pool is adopted", observed(document(t, "HubPool", "spec: {}")), document(t, "HubPool", "spec: {}"), diff.Raise, "what the hub has becomes"},
		{"a sync that keeps goes", document(t, "PoolSync", "spec: {prune: false}"), nil, diff.Neutral, "stays"},
	} {
		t.Run(test.name, func(t *testing.T) {
			o, differs := diff.CompareObjects(test.was, test.now)
			if !differs || o.Class != test.class || !strings.Contains(o.Meaning, test.says) {
				t.Errorf("class %s, meaning %q", o.Class, o.Meaning)
			}
		})
	}
}

// observed is a document that is only compared.
func observed(document *unstructured.Unstructured) *unstructured.Unstructured {
	document.SetAnnotations(map[string]string{"cloop.dev/observe": "true"})
	return document
}
