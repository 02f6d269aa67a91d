package kustomize

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

func TestEveryFolderBuilds(t *testing.T) {
	for folder, want := range map[string]int{
		"crd": 3, "rbac": 12, "rbac/executor": 3, "rbac/fleet": 9,
		"controller": 3, "controller/executor": 1, "controller/fleet": 2, "default": 20,
	} {
		t.Run(folder, func(t *testing.T) {
			if got := build(t, folder).Size(); got != want {
				t.Errorf("%d objects, want %d", got, want)
			}
		})
	}
}

// What scrapes selects what the default installs, and everything finds its
// namespace there.
func TestMonitoringJoinsTheDefault(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "overlay")
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	if folder, err = filepath.EvalSymlinks(folder); err != nil {
		t.Fatal(err)
	}
	base, err := filepath.Rel(folder, here)
	if err != nil {
		t.Fatal(err)
	}
	text := "resources: [" + base + "/default]\ncomponents: [" + base + "/components/monitoring]\n"
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	labels, found := map[string]bool{}, 0
	objects := build(t, folder).Resources()
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			labels[object.GetNamespace()+" "+decode[appsv1.Deployment](t, object.MustYaml()).Spec.Template.Labels["app.kubernetes.io/name"]] = true
		}
	}
	for _, object := range objects {
		if object.GetGvk().Group != "monitoring.coreos.com" {
			continue
		}
		found++
		if object.GetKind() != "PodMonitor" {
			continue
		}
		monitor := decode[struct {
			Spec struct{ Selector metav1.LabelSelector }
		}](t, object.MustYaml())
		if name := monitor.Spec.Selector.MatchLabels["app.kubernetes.io/name"]; !labels[object.GetNamespace()+" "+name] {
			t.Errorf("%s selects nothing in %s", object.GetName(), object.GetNamespace())
		}
	}
	if found != 4 {
		t.Errorf("%d objects of the operator, want 4", found)
	}
}

// Everything that the default installs in a namespace finds its namespace, its
// account and its role there.
func TestDefaultIsComplete(t *testing.T) {
	names := map[string]bool{}
	objects := build(t, "default").Resources()
	for _, object := range objects {
		names[object.GetKind()+" "+object.GetNamespace()+"/"+object.GetName()] = true
	}
	need := func(name string) {
		t.Helper()
		if !names[name] {
			t.Errorf("there is no %s", name)
		}
	}
	for _, object := range objects {
		if namespace := object.GetNamespace(); namespace != "" {
			need("Namespace /" + namespace)
		}
		switch object.GetKind() {
		case "Deployment":
			deployment := decode[appsv1.Deployment](t, object.MustYaml())
			need("ServiceAccount " + deployment.Namespace + "/" + deployment.Spec.Template.Spec.ServiceAccountName)
		case "RoleBinding", "ClusterRoleBinding":
			binding := decode[rbacv1.RoleBinding](t, object.MustYaml())
			for _, subject := range binding.Subjects {
				need("ServiceAccount " + subject.Namespace + "/" + subject.Name)
			}
			namespace := binding.Namespace
			if binding.RoleRef.Kind == "ClusterRole" {
				namespace = ""
			}
			need(binding.RoleRef.Kind + " " + namespace + "/" + binding.RoleRef.Name)
		}
	}
}

// The controllers meet the profile that their namespaces enforce, and more.
func TestDeploymentsAreHardened(t *testing.T) {
	for _, object := range build(t, "controller").Resources() {
		if object.GetKind() != "Deployment" {
			continue
		}
		spec := decode[appsv1.Deployment](t, object.MustYaml()).Spec.Template.Spec
		context := spec.Containers[0].SecurityContext
		if !*spec.SecurityContext.RunAsNonRoot || spec.SecurityContext.SeccompProfile.Type != "RuntimeDefault" ||
			*context.AllowPrivilegeEscalation || !*context.ReadOnlyRootFilesystem || !slices.Equal(context.Capabilities.Drop, []corev1.Capability{"ALL"}) {
			t.Errorf("%s is not hardened", object.GetName())
		}
	}
}

// applicable are the kinds that Git sync applies; a Secret is never among them.
var applicable = []string{
	"cloop.dev/executorpools", "/resourcequotas", "/limitranges", "/serviceaccounts", "networking.k8s.io/networkpolicies",
}

// Rights are spelled out, and across namespaces they stay within what an overlay
// may bring.
func TestRolesStayApart(t *testing.T) {
	for _, object := range roles(t, Namespaces{}) {
		if !strings.HasSuffix(object.GetKind(), "Role") {
			continue
		}
		role := decodeObject[rbacv1.ClusterRole](t, object)
		for _, rule := range role.Rules {
			for _, list := range [][]string{rule.APIGroups, rule.Resources, rule.Verbs} {
				if slices.Contains(list, "*") {
					t.Errorf("%s grants everything of something: %v", role.Name, rule)
				}
			}
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					if group+"/"+resource == "/namespaces" && slices.Equal(rule.Verbs, []string{"get"}) {
						continue // to see which are being deleted
					}
					if object.GetName() == "cloop-fleet-credential-writer" && group+"/"+resource == "/secrets" {
						continue // of what the HubPool controller mints, never of what an overlay brings
					}
					if object.GetKind() == "ClusterRole" && !slices.Contains(applicable, group+"/"+resource) {
						t.Errorf("%s grants %s/%s, which no overlay may bring", role.Name, group, resource)
					}
				}
			}
		}
	}
}

func TestRolesMoveToOtherNamespaces(t *testing.T) {
	objects := roles(t, Namespaces{Executor: "gpu", Fleet: "git"})
	if len(objects) != 12 {
		t.Errorf("%d objects, want 12", len(objects))
	}
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		for _, old := range []string{defaultExecutorNamespace, defaultFleetNamespace} {
			if strings.Contains(string(text), "namespace: "+old) {
				t.Errorf("%s still speaks of %s:\n%s", object.GetName(), old, text)
			}
		}
	}
}

// What Roles returns is what kustomize builds.
func TestRolesAreTheManifests(t *testing.T) {
	built := map[string]string{}
	for _, object := range build(t, "rbac").Resources() {
		built[object.GetKind()+object.GetName()] = object.MustYaml()
	}
	for _, object := range roles(t, Namespaces{}) {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			t.Fatal(err)
		}
		want := decode[map[string]any](t, built[object.GetKind()+object.GetName()])
		got := decode[map[string]any](t, string(text))
		if !equal(t, got, want) {
			t.Errorf("%s %s is %v, kustomize builds %v", object.GetKind(), object.GetName(), got, want)
		}
	}
}

func build(t *testing.T, folder string) resmap.ResMap {
	t.Helper()
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		t.Fatal(err)
	}
	return built
}

func roles(t *testing.T, n Namespaces) []*unstructured.Unstructured {
	t.Helper()
	objects, err := Roles(n)
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

func decode[T any](t *testing.T, text string) T {
	t.Helper()
	var into T
	if err := yaml.Unmarshal([]byte(text), &into); err != nil {
		t.Fatal(err)
	}
	return into
}

func decodeObject[T any](t *testing.T, object *unstructured.Unstructured) T {
	t.Helper()
	var into T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &into); err != nil {
		t.Fatal(err)
	}
	return into
}

func equal(t *testing.T, a, b any) bool {
	t.Helper()
	one, err := yaml.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	other, err := yaml.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	return string(one) == string(other)
}
