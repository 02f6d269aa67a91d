package cluster

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// options brings a control plane's options for a directory that is taken down
// whatever the test did.
func options(t *testing.T) Options {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane; not with -short")
	}
	binaries, err := FindBinaries(t.Context(), os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "cluster")
	t.Cleanup(func() {
		if err := Down(context.Background(), dir); err != nil {
			t.Error(err)
		}
	})
	return Options{Dir: dir, Binaries: binaries}
}

func TestUpIsIdempotentAndRepairs(t *testing.T) {
	options := options(t)
	cluster := up(t, options)
	before := status(t, options.Dir)
	if len(before) != 4 {
		t.Fatalf("%d processes, want 4: %+v", len(before), before)
	}
	if mode := fileMode(t, cluster.Kubeconfig); mode != 0o600 {
		t.Errorf("kubeconfig has mode %o", mode)
	}
	client := client(t, cluster)
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}

	up(t, options)
	for name, process := range status(t, options.Dir) {
		if process.ID != before[name].ID {
			t.Errorf("second Up started %s again", name)
		}
	}

	processes := layout{options.Dir}.processes()
	for _, name := range []string{"kube-scheduler", "etcd"} {
		if err := processes.Kill(name, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "both are dead", func() bool { return !processes.Alive("etcd") && !processes.Alive("kube-scheduler") })
	up(t, options)
	for name, process := range status(t, options.Dir) {
		killed := name == "etcd" || name == "kube-scheduler"
		if !process.Alive || (process.ID != before[name].ID) != killed {
			t.Errorf("after the repair %s: alive %t, started again %t", name, process.Alive, process.ID != before[name].ID)
		}
	}
	if _, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}); err != nil {
		t.Errorf("the data is lost: %v", err)
	}

	options.Parts = APIServerOnly
	up(t, options)
	if left := status(t, options.Dir); len(left) != 2 {
		t.Errorf("%d processes after leaving two out: %+v", len(left), left)
	}
}

func TestDownRemovesWhatUpMadeAndNothingElse(t *testing.T) {
	options := options(t)
	options.Parts = APIServerOnly
	up(t, options)
	processes := status(t, options.Dir)
	mine := filepath.Join(options.Dir, "mine")
	if err := os.WriteFile(mine, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	down(t, options.Dir)
	for name, process := range processes {
		if process.ID.Alive() {
			t.Errorf("%s is alive", name)
		}
	}
	entries, err := os.ReadDir(options.Dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left are %v (%v), want only what is not Up's", entries, err)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}

	up(t, options)
	down(t, options.Dir)
	if _, err := os.Stat(options.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there (%v)", err)
	}
	down(t, options.Dir)
}

func TestDownLeavesADirectoryOfSomebodyElse(t *testing.T) {
	dir := t.TempDir()
	logs := filepath.Join(dir, "logs")
	if err := os.Mkdir(logs, 0o700); err != nil {
		t.Fatal(err)
	}
	down(t, dir)
	if _, err := os.Stat(logs); err != nil {
		t.Error(err)
	}
}

func TestHalfAnUpIsCleanedUp(t *testing.T) {
	options := options(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	processes := layout{options.Dir}.processes()
	go func() {
		for !processes.Alive("etcd") && ctx.Err() == nil {
			time.Sleep(time.Millisecond)
		}
		cancel()
	}()
	if _, err := Up(ctx, options); err == nil {
		t.Fatal("Up succeeded before it could be interrupted")
	}
	started := status(t, options.Dir)
	if len(started) == 0 {
		t.Fatal("Up was interrupted before it started anything")
	}
	down(t, options.Dir)
	for name, process := range started {
		if left := process.family().Members(); len(left) != 0 {
			t.Errorf("%s is alive", name)
		}
	}
	if _, err := os.Stat(options.Dir); !os.IsNotExist(err) {
		t.Errorf("the directory is still there (%v)", err)
	}
}

func TestUpTellsWhyAPartDied(t *testing.T) {
	options := options(t)
	options.Parts = APIServerOnly
	options.Binaries.APIServer = []string{"/bin/sh", "-c", "echo no such flag >&2; exit 1"}
	_, err := Up(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver ended") || !strings.Contains(err.Error(), "no such flag") {
		t.Errorf("error is %v", err)
	}
}

func up(t *testing.T, options Options) *Cluster {
	t.Helper()
	cluster, err := Up(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	return cluster
}

func down(t *testing.T, dir string) {
	t.Helper()
	if err := Down(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
}

// status is name → process.
func status(t *testing.T, dir string) map[string]Process {
	t.Helper()
	list, err := Status(dir)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]Process{}
	for _, process := range list {
		byName[process.Name] = process
	}
	return byName
}

func client(t *testing.T, cluster *Cluster) *kubernetes.Clientset {
	t.Helper()
	config, err := cluster.RESTConfig()
	if err != nil {
		t.Fatal(err)
	}
	return kubernetes.NewForConfigOrDie(config)
}

func fileMode(t *testing.T, name string) os.FileMode {
	t.Helper()
	info, err := os.Stat(name)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}
