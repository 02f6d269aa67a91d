package install_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/internal/install"
)

func TestMain(m *testing.M) { clustertest.Main(m) }

// shell runs commands as somebody does who pastes them, with the cluster's
// kubectl.
type shell struct {
	t          *testing.T
	dir        string
	path       string
	kubeconfig string
	client     client.Client
}

func newShell(t *testing.T) *shell {
	c := clustertest.Start(t)
	s := &shell{t: t, dir: t.TempDir(), kubeconfig: c.Kubeconfig}
	words := make([]string, 0, len(c.Binaries.Kubectl))
	for _, word := range c.Binaries.Kubectl {
		words = append(words, install.Quote(word))
	}
	bin := t.TempDir()
	if err := os.WriteFile(bin+"/kubectl", []byte("#!/bin/sh\nexec "+strings.Join(words, " ")+` "$@"`+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	s.path = bin + ":" + os.Getenv("PATH")
	config, err := c.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	if s.client, err = client.New(config, client.Options{}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shell) try(command string) (string, error) {
	cmd := exec.CommandContext(s.t.Context(), "sh", "-ec", command)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "PATH="+s.path, "KUBECONFIG="+s.kubeconfig)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (s *shell) run(command string) {
	s.t.Helper()
	if out, err := s.try(command); err != nil {
		s.t.Fatalf("%s\n%v: %s", command, err, out)
	}
}

func (s *shell) get(object client.Object, namespace, name string) {
	s.t.Helper()
	if err := s.client.Get(s.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, object); err != nil {
		s.t.Fatal(err)
	}
}

func TestThePrintedCommandsDoWhatTheySay(t *testing.T) {
	s := newShell(t)
	place := install.At("printed", install.Place{}, nil)
	for range 2 { // both may be repeated
		s.run(place.NamespaceCommand())
		s.run(place.SecretCommand(install.Credential{Text: "cloop_pool1_first"}))
	}
	namespace := &corev1.Namespace{}
	s.get(namespace, "", "cloop-printed")
	if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "restricted" {
		t.Errorf("the namespace is held to %q", got)
	}
	wantCredential := func(want string) {
		t.Helper()
		secret := &corev1.Secret{}
		s.get(secret, "cloop-printed", "printed-pool-credential")
		if got := string(secret.Data["credential"]); got != want {
			t.Errorf("the Secret holds %q", got)
		}
		metadata, err := json.Marshal(secret.ObjectMeta)
		if err != nil || strings.Contains(string(metadata), want) {
			t.Errorf("the metadata hold the credential (%v): %s", err, metadata)
		}
	}
	wantCredential("cloop_pool1_first")
	// Whoever had it before, and from a file.
	s.run("kubectl -n cloop-printed create secret generic printed-pool-credential --from-literal=credential=x --dry-run=client -o yaml |" +
		" kubectl apply --server-side --force-conflicts --field-manager=somebody -f -")
	file := filepath.Join(s.dir, "it's a file")
	if err := os.WriteFile(file, []byte("cloop_pool1_second"), 0o600); err != nil {
		t.Fatal(err)
	}
	s.run(place.SecretCommand(install.Credential{File: file}))
	wantCredential("cloop_pool1_second")
	s.run(place.SecretCommand(install.Credential{Text: "cloop_pool1_third"}))
	wantCredential("cloop_pool1_third")

	// A namespace that another tool labels differently is not relabelled.
	s.run("kubectl create namespace cloop-taken && kubectl label --field-manager=somebody namespace cloop-taken pod-security.kubernetes.io/enforce=baseline")
	taken := install.At("taken", install.Place{}, nil)
	if out, err := s.try(taken.NamespaceCommand()); err == nil || !strings.Contains(out, "conflict") {
		t.Errorf("relabelled: %v %s", err, out)
	}
	s.get(namespace, "", "cloop-taken")
	if got := namespace.Labels["pod-security.kubernetes.io/enforce"]; got != "baseline" {
		t.Errorf("the other's namespace is held to %q", got)
	}
}

func TestTheControllerIsInstalledFromACheckout(t *testing.T) {
	s := newShell(t)
	if err := os.CopyFS(filepath.Join(s.dir, "kustomize"), os.DirFS("../../kustomize")); err != nil {
		t.Fatal(err)
	}
	place := install.At("fromsource", install.Place{}, nil)
	pool := fast()
	pool.Hints.MinRunners = 1
	command, err := place.KustomizeCommand(example(), pool, "")
	if err != nil {
		t.Fatal(err)
	}
	s.run(place.NamespaceCommand())
	s.run(command)
	object := func(kind, version, name string) *unstructured.Unstructured {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(version)
		o.SetKind(kind)
		s.get(o, "cloop-fromsource", name)
		return o
	}
	xpool := object(v1alpha1.ExecutorPoolKind, v1alpha1.GroupVersion.String(), "fromsource")
	size, _, _ := unstructured.NestedString(xpool.Object, "spec", "persistence", "size")
	secret, _, _ := unstructured.NestedString(xpool.Object, "spec", "poolCredentialSecretRef", "name")
	if size != "50Gi" || secret != "fromsource-pool-credential" {
		t.Errorf("the pool is %v", xpool.Object["spec"])
	}
	deployment := object("Deployment", "apps/v1", "cloop-executor-controller")
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	if image := containers[0].(map[string]any)["image"]; image != "registry.example.com/cloop:yours" {
		t.Errorf("the controller's image is %v", image)
	}
	binding := object("RoleBinding", "rbac.authorization.k8s.io/v1", "cloop-executor-controller")
	subjects, _, _ := unstructured.NestedSlice(binding.Object, "subjects")
	if got := subjects[0].(map[string]any)["namespace"]; got != "cloop-fromsource" {
		t.Errorf("the role is bound to an account of %v", got)
	}
}
