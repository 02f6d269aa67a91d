package cli_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/e2e/cluster/clustertest"
)

// rightsScheme has the kinds that the test below makes.
func rightsScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// liveCluster is a real API server that knows our kinds, a namespace of it, and who may
// do everything there.
func liveCluster(t *testing.T) (running *cluster.Cluster, namespace string, admin client.Client) {
	t.Helper()
	running = clustertest.Start(t, clustertest.WithAuditLog())
	config, err := running.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	clustertest.InstallCRDs(t, config)
	namespace = clustertest.Namespace(t, config)
	admin, err = client.New(config, client.Options{Scheme: rightsScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	return running, namespace, admin
}

// Commands that look at a cluster ask a real API server as accounts that may read
// more or less of it: what may not be read is said, the rest is compared, and
// nothing but reads is ever asked for.
func TestWhatAnAccountMayNotReadIsSaid(t *testing.T) {
	noHub(t)
	cluster, namespace, admin := liveCluster(t)
	create := func(object client.Object) {
		t.Helper()
		object.SetNamespace(namespace)
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	// Who may read, and what.
	resources := []string{"executorpools", "poolsyncs", "configmaps"}
	named := map[string][]string{"all": resources, "kinds": resources[:2], "pools": resources[:1]}
	for name, may := range named {
		rules := []rbacv1.PolicyRule{}
		for _, resource := range may {
			group := v1alpha1.Group
			if resource == "configmaps" {
				group = ""
			}
			rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{"get", "list"}})
		}
		create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})
		create(&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "reads-" + name}},
		})
	}
	kubeconfig := impersonating(t, cluster.Kubeconfig, named)

	// A pool whose maximum is a variable, which a ConfigMap has.
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.NewReplacer("maxRunners: 4", "maxRunners: ${MAX}", "namespace: cloop-pools", "namespace: "+namespace).Replace(executorPoolYAML))
	create(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "vars"}, Data: map[string]string{"MAX": "4"}})
	sync := poolSync(metav1.ConditionTrue, "applied")
	sync.Spec.Substitute = &v1alpha1.Substitution{From: []v1alpha1.SubstituteReference{{Kind: "ConfigMap", Name: "vars"}}}
	sync.Spec.Interval, sync.Spec.Timeout = metav1.Duration{Duration: time.Minute}, metav1.Duration{Duration: time.Minute}
	sync.Namespace, sync.Status = "", v1alpha1.PoolSyncStatus{}
	create(&sync)
	live := liveGPU(4)
	create(&live)

	drift := func(account string) result {
		t.Helper()
		return cloop(t, "fleet", "drift", "--kubeconfig", kubeconfig, "--cluster", account, "--namespace", namespace)
	}
	if got := drift("all"); got.code != 0 {
		t.Errorf("who may read all: exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	for account, want := range map[string]string{"kinds": `configmaps "vars" is forbidden`, "pools": "its PoolSyncs: poolsyncs.cloop.dev is forbidden"} {
		got := drift(account)
		if got.code != 2 || !strings.Contains(got.stdout, want) || !strings.Contains(got.stdout, "what Git wants of cluster "+account+" is not known") ||
			!strings.Contains(got.stderr, "not everything was compared") {
			t.Errorf("who may read %s: exit code %d\n%s%s", account, got.code, got.stdout, got.stderr)
		}
	}
	live.Spec.MaxRunners = 3
	if err := admin.Update(t.Context(), &live); err != nil {
		t.Fatal(err)
	}
	if got := drift("all"); got.code != 1 || !strings.Contains(got.stdout, "maxRunners") {
		t.Errorf("who may read all, with drift: exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}

	// The status is of PoolSyncs, so who may not read them has no answer.
	status := []string{"fleet", "status", "--kubeconfig", kubeconfig, "--namespace", namespace, "--cluster"}
	if got := cloop(t, append(status, "pools")...); got.code != 2 || !strings.Contains(got.stderr, "list the PoolSyncs of cluster pools") {
		t.Errorf("the status for who may read pools: exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	if got := cloop(t, append(status, "kinds")...); got.code == 2 || !strings.Contains(got.stdout, namespace+"/fleet") {
		t.Errorf("the status for who may read our kinds: exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	// A comparison of commits needs no variables of the cluster's.
	edit(t, "vars.yaml", "MAX: 5\n")
	got := cloop(t, "fleet", "diff", "--base", "HEAD", "--fail-on", "none", "--substitute", "vars.yaml", "--kubeconfig", kubeconfig, "--cluster", "pools", "--namespace", namespace)
	if got.code != 0 || !strings.Contains(got.stdout, "the PoolSyncs of cluster pools could not be listed") {
		t.Errorf("a comparison for who may read pools: exit code %d\n%s%s", got.code, got.stdout, got.stderr)
	}
	onlyRead(t, "reads-")
}

// impersonating is a kubeconfig with a context for each account.
func impersonating(t *testing.T, from string, accounts map[string][]string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(from)
	if err != nil {
		t.Fatal(err)
	}
	at := config.Contexts[config.CurrentContext]
	for name := range accounts {
		user := config.AuthInfos[at.AuthInfo].DeepCopy()
		user.Impersonate = "reads-" + name
		config.AuthInfos[name] = user
		config.Contexts[name] = &api.Context{Cluster: at.Cluster, AuthInfo: name}
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// onlyRead reads the API server's audit log: accounts whose names begin so have
// asked for something, and for nothing but reads.
func onlyRead(t *testing.T, prefix string) {
	t.Helper()
	data, err := os.ReadFile(clustertest.AuditLog(t))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range bytes.Lines(data) {
		var event struct {
			Verb             string
			ImpersonatedUser struct{ Username string }
		}
		if json.Unmarshal(line, &event) != nil || !strings.HasPrefix(event.ImpersonatedUser.Username, prefix) {
			continue
		}
		seen++
		if event.Verb != "get" && event.Verb != "list" {
			t.Errorf("%s asked to %s", event.ImpersonatedUser.Username, event.Verb)
		}
	}
	if seen == 0 {
		t.Error("the audit log has no request of theirs")
	}
}
