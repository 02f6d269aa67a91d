//go:build flux

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/flux"
	"cloop.dev/cloop/internal/dev"
)

// besideFlux is a system whose cluster half Flux applies, from examples/flux.
type besideFlux struct {
	t      *testing.T
	system *dev.System
	fleet  *dev.Repository
}

// TestFlux has Flux's own controllers apply examples/flux to a whole system: the hub
// serves what Flux applies, and cloop says what Flux has applied and who changed it.
// `make flux` runs it: it needs Flux's programs.
func TestFlux(t *testing.T) {
	programs, err := flux.Find(t.Context(), "..", os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	system := up(t)
	fleet, err := system.Fleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := &besideFlux{t: t, system: system, fleet: fleet}
	s.install(programs)
	s.commitExample()
	first := s.push()
	s.kubectl("apply", "-k", fleet.Dir+"/bootstrap/eu")
	running, err := programs.Start(t.TempDir(), system.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.stop(running) })

	s.until("Flux applies the pool", func(context.Context) error { return s.max(12) })
	// The Kustomization waits for its pool, and that for its credential.
	if err := system.HandCredential(t.Context(), "agents"); err != nil {
		t.Fatal(err)
	}
	s.applied(first)
	if said, code := s.cloop("fleet", "drift"); code != 0 || !strings.Contains(said, "No drift: 1 pool compared.") {
		t.Errorf("drift ends with %d: %s", code, said)
	}

	s.kubectl("patch", "xpool", "agents", "--namespace", dev.PoolNamespace, "--type=merge", "--field-manager=kubectl-edit", `--patch={"spec":{"maxRunners":13}}`)
	s.until("the pool's own status says that it may start more than the hub lets it", func(ctx context.Context) error {
		pool := &v1alpha1.ExecutorPool{}
		err := system.Cluster.Get(ctx, client.ObjectKey{Namespace: dev.PoolNamespace, Name: "agents"}, pool)
		if err == nil && len(pool.Status.Drift) == 0 {
			err = fmt.Errorf("it is %+v", pool.Status)
		}
		return err
	})
	said, code := s.cloop("fleet", "drift")
	for _, want := range []string{"Kustomization flux-system/fleet at main@sha1:" + first, "ClusterEdited", "kubectl-edit", "RuleBroken"} {
		if code != 1 || !strings.Contains(said, want) {
			t.Errorf("drift ends with %d, without %q: %s", code, want, said)
		}
	}

	if err := fleet.Replace("clusters/eu/agents.yaml", "maxRunners: 12", "maxRunners: 9"); err != nil {
		t.Fatal(err)
	}
	second := s.push()
	// Flux looks at the source and applies it, whatever its interval is.
	if said, code := s.cloop("fleet", "reconcile", "--wait"); code != 0 || !strings.Contains(said, "main@sha1:"+second[:12]) {
		t.Errorf("reconcile ends with %d: %s", code, said)
	}
	s.applied(second)
	s.until("Flux puts its value in the place of the edited one", func(context.Context) error { return s.max(9) })
	s.until("nothing differs any more", func(context.Context) error {
		if said, code := s.cloop("fleet", "drift"); code != 0 {
			return fmt.Errorf("drift ends with %d: %s", code, said)
		}
		return nil
	})
}

// install puts Flux's definitions into the cluster, and takes the PoolSync out.
func (s *besideFlux) install(programs *flux.Flux) {
	s.t.Helper()
	ctx, cluster := s.t.Context(), s.system.Cluster
	sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: dev.FleetNamespace, Name: dev.SyncName}}
	if err := cluster.Delete(ctx, sync); err != nil {
		s.t.Fatal(err)
	}
	files, err := programs.Definitions(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, file := range files {
		s.kubectl("apply", "--server-side", "--filename", file)
	}
	s.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
	authority, err := os.ReadFile(s.system.CAFile)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: flux.Namespace}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: flux.Namespace, Name: "fleet-git"}, Data: map[string][]byte{"ca.crt": authority}},
	} {
		if err := cluster.Create(ctx, object); err != nil {
			s.t.Fatal(err)
		}
	}
}

// commitExample writes examples/flux with this system's hub and Git server.
func (s *besideFlux) commitExample() {
	s.t.Helper()
	authority, err := os.ReadFile(s.system.CAFile)
	if err != nil {
		s.t.Fatal(err)
	}
	hub := "hubURL: " + s.system.HubURL + "\n  hubCAPin: " + s.system.HubPin + "\n  hubCABundle: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(string(authority)), "\n", "\n    ")
	example := os.DirFS("../examples/flux")
	files := map[string][]byte{}
	err = fs.WalkDir(example, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(example, name)
		for _, change := range [][2]string{
			{"hubURL: https://cloop.example.com:8443", hub},
			{"url: https://git.example.com/platform/fleet.git", "url: " + s.system.GitURL("fleet") + "\n  secretRef:\n    name: fleet-git"},
		} {
			data = bytes.ReplaceAll(data, []byte(change[0]), []byte(change[1]))
		}
		files[name] = data
		return err
	})
	if err == nil {
		err = s.fleet.Write(files)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// push commits what was written, and has the hub look.
func (s *besideFlux) push() (revision string) {
	s.t.Helper()
	ctx := s.t.Context()
	revision, err := s.fleet.Commit(ctx, "Change the fleet")
	if err == nil {
		err = s.fleet.Push(ctx)
	}
	if err == nil {
		_, err = s.system.Hub.ReconcileSync(ctx, dev.SyncName)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return revision
}

// applied waits until `fleet status` says that Flux has applied a revision, and the hub.
func (s *besideFlux) applied(revision string) {
	s.t.Helper()
	s.until("the status shows what Flux has applied", func(context.Context) error {
		said, code := s.cloop("fleet", "status", "--output", "json")
		var status struct {
			Items []struct{ Surface, Name, Ready, LastAppliedRevision, Path, Repository string }
		}
		if err := json.Unmarshal([]byte(said), &status); err != nil || len(status.Items) != 2 {
			return fmt.Errorf("it ends with %d: %s (%w)", code, said, err)
		}
		hub, flux := status.Items[0], status.Items[1]
		if code != 0 || hub.Surface != "hub" || hub.LastAppliedRevision != revision || flux.Name != "Kustomization flux-system/fleet" ||
			flux.LastAppliedRevision != "main@sha1:"+revision || flux.Ready != "True" || flux.Path != "clusters/eu" || flux.Repository != "GitRepository flux-system/fleet" {
			return fmt.Errorf("it ends with %d: %s", code, said)
		}
		return nil
	})
}

func (s *besideFlux) max(maxRunners int32) error {
	pool := &v1alpha1.ExecutorPool{}
	if err := s.system.Cluster.Get(s.t.Context(), client.ObjectKey{Namespace: dev.PoolNamespace, Name: "agents"}, pool); err != nil {
		return err
	}
	if pool.Spec.MaxRunners != maxRunners || pool.Spec.RunnerLabels["region"] != "eu-central-1" {
		return fmt.Errorf("it is %+v", pool.Spec)
	}
	return nil
}

func (s *besideFlux) until(what string, so func(context.Context) error) {
	s.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(s.t.Context(), 200*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) {
		last = so(ctx)
		return last == nil, nil
	})
	if err != nil {
		s.t.Fatalf("%s: %v: %v", what, err, last)
	}
}

func (s *besideFlux) kubectl(args ...string) {
	s.t.Helper()
	command := exec.CommandContext(s.t.Context(), s.system.Kubectl[0], append(s.system.Kubectl[1:], args...)...)
	command.Env = append(os.Environ(), s.system.Environment()...)
	if printed, err := command.CombinedOutput(); err != nil {
		s.t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, printed)
	}
}

// cloop runs a command in the fleet repository.
func (s *besideFlux) cloop(args ...string) (output string, code int) {
	s.t.Helper()
	name, err := binary()
	if err != nil {
		s.t.Fatal(err)
	}
	command := exec.CommandContext(s.t.Context(), name, args...)
	command.Dir = s.fleet.Dir
	command.Env = append(append(os.Environ(), s.system.Environment()...), "CLOOP_TOKEN=")
	printed, _ := command.CombinedOutput()
	return string(printed), command.ProcessState.ExitCode()
}

// stop ends the controllers and shows what they said if the test failed.
func (s *besideFlux) stop(running *flux.Running) {
	running.Stop()
	for name, file := range running.Logs {
		if content, err := os.ReadFile(file); err == nil && s.t.Failed() {
			s.t.Logf("the end of %s:\n%s", name, content[max(0, len(content)-6000):])
		}
	}
}
