package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/e2e/flux"
)

// The sides of the comparison.
const (
	cloopSide = "cloop"
	fluxSide  = "Flux"
)

// cloopApplier is cloop's fleet controller with a PoolSync.
type cloopApplier struct{}

func (*cloopApplier) name() string { return cloopSide }

func (*cloopApplier) start(f *manyPools, dir, kubeconfig string) (processes map[string]int, metrics map[string]string, stop func()) {
	f.b.Helper()
	name, err := binary()
	if err != nil {
		f.b.Fatal(err)
	}
	ports, err := cluster.PickPorts(2)
	if err != nil {
		f.b.Fatal(err)
	}
	log, err := os.Create(filepath.Join(dir, "controller.log"))
	if err != nil {
		f.b.Fatal(err)
	}
	command := exec.Command(name, "executor", "controller", "run", "--controllers", "poolsync", "--namespace", f.namespace,
		"--kubeconfig", kubeconfig, "--cache-dir", filepath.Join(dir, "cache"),
		"--metrics-addr", fmt.Sprintf("127.0.0.1:%d", ports[0]), "--health-addr", fmt.Sprintf("127.0.0.1:%d", ports[1]))
	command.Stdout, command.Stderr = log, log
	if err := command.Start(); err != nil {
		f.b.Fatal(err)
	}
	stop = func() {
		_ = command.Process.Signal(os.Interrupt)
		_ = command.Wait()
		_ = log.Close()
	}
	const controller = "the fleet controller"
	return map[string]int{controller: command.Process.Pid}, map[string]string{controller: fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[0])}, stop
}

func (*cloopApplier) create(f *manyPools) {
	f.b.Helper()
	f.asked = ""
	f.ground.create(&v1alpha1.PoolSync{
		ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "fleet"},
		Spec: v1alpha1.PoolSyncSpec{
			Interval: metav1.Duration{Duration: time.Hour}, Timeout: metav1.Duration{Duration: 5 * time.Minute},
			Source: v1alpha1.PoolSyncSource{Git: v1alpha1.GitSource{URL: f.git.URL(f.namespace), SecretRef: &v1alpha1.LocalObjectReference{Name: "fleet-git"}}},
			Path:   "./clusters/dev", Prune: true, PruneLimit: v1alpha1.PruneLimit{Count: 5, Percent: 20},
			Drift: v1alpha1.DriftPolicy{Mode: v1alpha1.DriftCorrect},
		},
	})
}

// ask needs no request for what was edited.
func (*cloopApplier) ask(f *manyPools, edited bool) {
	f.b.Helper()
	if !edited {
		f.annotate(&v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace, Name: "fleet"}})
	}
}

func (*cloopApplier) applied(f *manyPools) {
	f.b.Helper()
	f.follow(&v1alpha1.PoolSyncList{}, func(object client.Object) bool {
		sync, ok := object.(*v1alpha1.PoolSync)
		return ok && sync.Status.LastHandledReconcileAt == f.asked && meta.IsStatusConditionTrue(sync.Status.Conditions, v1alpha1.ConditionReady)
	})
}

func (*cloopApplier) refused(f *manyPools) {
	f.b.Helper()
	f.have(8, f.n-1)
}

// fluxApplier is Flux's two controllers, with a GitRepository and a Kustomization.
type fluxApplier struct{}

func (*fluxApplier) name() string { return fluxSide }

func (*fluxApplier) start(f *manyPools, dir, kubeconfig string) (processes map[string]int, metrics map[string]string, stop func()) {
	f.b.Helper()
	programs, err := flux.Find(f.b.Context(), "..", os.Stderr)
	if err != nil {
		f.b.Fatal(err)
	}
	files, err := programs.Definitions(f.b.Context())
	if err != nil {
		f.b.Fatal(err)
	}
	f.ground.create(fluxDefinitions(f.b, files)...)
	eventually(f.b, func(ctx context.Context) bool {
		var all apiextensionsv1.CustomResourceDefinitionList
		return f.cluster.List(ctx, &all) == nil && !slices.ContainsFunc(all.Items, func(each apiextensionsv1.CustomResourceDefinition) bool {
			return !slices.ContainsFunc(each.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			})
		})
	})
	running, err := programs.Start(dir, kubeconfig)
	if err != nil {
		f.b.Fatal(err)
	}
	return running.Processes, running.Metrics, running.Stop
}

// fluxObject is an object of Flux's; the spec is YAML.
func fluxObject(b interface{ Fatal(args ...any) }, group, kind, namespace, spec string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if err := yaml.Unmarshal([]byte("spec: "+spec), &object.Object); err != nil {
		b.Fatal(err)
	}
	object.SetAPIVersion(group + "/v1")
	object.SetKind(kind)
	object.SetNamespace(namespace)
	object.SetName("fleet")
	return object
}

const (
	fluxSources        = "source.toolkit.fluxcd.io"
	fluxKustomizations = "kustomize.toolkit.fluxcd.io"
)

func (*fluxApplier) create(f *manyPools) {
	f.b.Helper()
	f.ground.create(
		fluxObject(f.b, fluxSources, "GitRepository", f.namespace,
			fmt.Sprintf("{interval: 1h, url: %q, ref: {branch: main}, secretRef: {name: fleet-git}}", f.git.URL(f.namespace))),
		fluxObject(f.b, fluxKustomizations, "Kustomization", f.namespace,
			"{interval: 1h, timeout: 5m, sourceRef: {kind: GitRepository, name: fleet}, path: ./clusters/dev, prune: true}"),
	)
}

// ask has the source looked at: the Kustomization follows it.
func (*fluxApplier) ask(f *manyPools, edited bool) {
	f.b.Helper()
	if edited {
		f.annotate(fluxObject(f.b, fluxKustomizations, "Kustomization", f.namespace, "{}"))
		return
	}
	f.annotate(fluxObject(f.b, fluxSources, "GitRepository", f.namespace, "{}"))
}

func (*fluxApplier) applied(f *manyPools) {
	f.b.Helper()
	f.kustomization("lastAppliedRevision", "True")
}

// refused: none of it lands.
func (*fluxApplier) refused(f *manyPools) {
	f.b.Helper()
	f.kustomization("lastAttemptedRevision", "False")
}

// kustomization waits until the newest commit has come so far.
func (f *manyPools) kustomization(revision, ready string) {
	f.b.Helper()
	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(fluxKustomizations + "/v1")
	list.SetKind("KustomizationList")
	f.follow(list, func(object client.Object) bool {
		kustomization, ok := object.(*unstructured.Unstructured)
		if !ok {
			return false
		}
		at, _, _ := unstructured.NestedString(kustomization.Object, "status", revision)
		return strings.HasSuffix(at, f.commit) && conditionOf(kustomization, "Ready") == ready
	})
}

// conditionOf is the status of a condition; empty where it is not there.
func conditionOf(object *unstructured.Unstructured, name string) string {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, each := range conditions {
		if condition, ok := each.(map[string]any); ok && condition["type"] == name {
			status, _ := condition["status"].(string)
			return status
		}
	}
	return ""
}

// fluxDefinitions are the CustomResourceDefinitions of Flux's in files.
func fluxDefinitions(b interface{ Fatal(args ...any) }, files []string) (definitions []client.Object) {
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, definition); err != nil {
			b.Fatal(err)
		}
		definitions = append(definitions, definition)
	}
	return definitions
}
