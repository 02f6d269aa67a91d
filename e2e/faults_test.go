package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/internal/dev"
)

// TestOutages takes away Git, the hub and the API server in turn. Each outage
// is said where people look, deletes nothing, and ends by itself.
func TestOutages(t *testing.T) {
	system := up(t)
	story := dev.Story{System: system, Done: log(t)}
	if err := story.RunUntil(t.Context(), dev.Steps()[0]); err != nil {
		t.Fatal(err)
	}
	before := runnerPods(t, system)

	t.Run("git", func(t *testing.T) {
		if err := system.Kill("git"); err != nil {
			t.Fatal(err)
		}
		expectClosed(t, system.GitURL("fleet"))
		if err := system.Poke(t.Context()); err != nil {
			t.Fatal(err)
		}
		expect(t, "the PoolSync says so", func(ctx context.Context) error {
			conditions, err := syncConditions(ctx, system)
			if err != nil {
				return err
			}
			return hasCondition(conditions, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonSourceUnavailable)
		})
		expect(t, "the hub says so", func(ctx context.Context) error {
			sync, err := system.Hub.GetSync(ctx, dev.SyncName)
			if err == nil && (sync.State != hubv1.SyncFailed || sync.Message == "") {
				return fmt.Errorf("the sync is %s: %s", sync.State, sync.Message)
			}
			return err
		})
		if printed, code := cloop(t, system, "fleet", "status"); code != 1 || !strings.Contains(printed, "refused") {
			t.Errorf("fleet status exits with %d: %s", code, printed)
		}
		expectPools(t, system)
		if err := system.Start("git"); err != nil {
			t.Fatal(err)
		}
		expect(t, "the PoolSync is Ready again", func(ctx context.Context) error {
			conditions, err := syncConditions(ctx, system)
			if err != nil {
				return err
			}
			return hasCondition(conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReconciliationSucceeded)
		})
	})

	t.Run("hub", func(t *testing.T) {
		if err := system.Kill("hub"); err != nil {
			t.Fatal(err)
		}
		expectClosed(t, system.HubURL)
		expect(t, "the ExecutorPool says so", func(ctx context.Context) error {
			conditions, err := poolConditions(ctx, system, "agents")
			if err != nil {
				return err
			}
			return hasCondition(conditions, v1alpha1.ConditionDegraded, metav1.ConditionTrue, v1alpha1.ReasonHubUnavailable)
		})
		if printed, code := cloop(t, system, "executor", "pool", "list"); code != 2 || !strings.Contains(printed, strings.TrimPrefix(system.HubURL, "https://")) {
			t.Errorf("executor pool list exits with %d: %s", code, printed)
		}
		expectPools(t, system)
		if after := runnerPods(t, system); after != before {
			t.Errorf("the runners' Pods were %s and are %s", before, after)
		}
		if err := system.Start("hub"); err != nil {
			t.Fatal(err)
		}
		expect(t, "the ExecutorPool serves again", func(ctx context.Context) error {
			conditions, err := poolConditions(ctx, system, "agents")
			if err != nil {
				return err
			}
			return hasCondition(conditions, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonServing)
		})
	})

	t.Run("API server", func(t *testing.T) {
		controlPlane := cluster.Processes{Dir: system.Dir + "/cluster"}
		if err := controlPlane.Kill("kube-apiserver", syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", system.Kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		expectClosed(t, config.Host)
		if printed, code := cloop(t, system, "fleet", "drift"); code != 2 || !strings.Contains(printed, "refused") {
			t.Errorf("fleet drift exits with %d: %s", code, printed)
		}
		// The warm runner needs the hub alone, so a run goes on all the same.
		if err := system.Bind(t.Context(), "agents"); err != nil {
			t.Fatal(err)
		}
		run, err := system.StartRun(t.Context(), "./check")
		if err != nil {
			t.Fatal(err)
		}
		if run, err = system.Settled(t.Context(), run.ID); err != nil || run.State != hubv1.RunSucceeded {
			t.Errorf("without an API server the run is %s: %s, %v", run.State, run.Reason, err)
		}
		executable, err := binary()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := dev.Up(t.Context(), dev.Options{Dir: system.Dir, Executable: executable, Progress: testWriter{t}}); err != nil {
			t.Fatal(err)
		}
		expectPools(t, system)
		expect(t, "the runner that ran is replaced", func(ctx context.Context) error {
			if now := runnerPods(t, system); now == before || strings.Count(now, ",") != 1 {
				return fmt.Errorf("the Pods were %s and are %s", before, now)
			}
			pool, err := system.Hub.GetPool(ctx, "agents")
			if err == nil && pool.Runners.Idle != 1 {
				return fmt.Errorf("the runners are %+v", pool.Runners)
			}
			return err
		})
	})
}

// TestARunnerDiesWhileItsPoolIsRemoved shows the one case in which a removed
// pool's run cannot finish: no pool is left to start it again. The run ends
// with a reason, and nothing is left over.
func TestARunnerDiesWhileItsPoolIsRemoved(t *testing.T) {
	system := up(t)
	story := dev.Story{System: system, Done: log(t)}
	if err := story.RunUntil(t.Context(), dev.Steps()[0]); err != nil {
		t.Fatal(err)
	}
	if err := system.Bind(t.Context(), "batch"); err != nil {
		t.Fatal(err)
	}
	run, err := system.StartRun(t.Context(), "./check", "600")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, "the run is in progress", func(ctx context.Context) error {
		now, err := system.Hub.GetRun(ctx, run.ID)
		if err == nil && now.State != hubv1.RunRunning {
			return fmt.Errorf("it is %s", now.State)
		}
		return err
	})
	if err := story.WithdrawBatch(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, "both sides drain", func(ctx context.Context) error {
		pool, err := system.Hub.GetPool(ctx, "batch")
		if err != nil {
			return err
		}
		var executorPool v1alpha1.ExecutorPool
		if err := system.Cluster.Get(ctx, client.ObjectKey{Namespace: dev.PoolNamespace, Name: "batch"}, &executorPool); err != nil {
			return err
		}
		if pool.State != hubv1.PoolDraining || executorPool.DeletionTimestamp == nil {
			return fmt.Errorf("the hub's pool is %s, the ExecutorPool was deleted at %v", pool.State, executorPool.DeletionTimestamp)
		}
		return nil
	})
	if killed, err := system.KillRunnerOf("batch"); err != nil || !killed {
		t.Fatalf("kill the runner: %v, %v", killed, err)
	}
	settled, err := system.Settled(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	if settled.State == hubv1.RunSucceeded || settled.Reason == "" {
		t.Errorf("the run is %s: %q", settled.State, settled.Reason)
	}
	t.Logf("the run is %s: %s", settled.State, settled.Reason)
	expect(t, "nothing is left of the pool", func(ctx context.Context) error {
		dump, err := system.Dump(ctx)
		if err == nil && (strings.Contains(dump, "hub pool batch") || strings.Contains(dump, "cluster pool "+dev.PoolNamespace+"/batch")) {
			return errors.New(dump)
		}
		return err
	})
}

// expect waits until a check passes.
func expect(t *testing.T, what string, check func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, 90*time.Second, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("%s: %v (last: %v)", what, err, last)
	}
}

// expectClosed waits until nobody listens at a URL: until its threads have
// ended, a killed process has connections that are reset and not refused.
func expectClosed(t *testing.T, address string) {
	t.Helper()
	at, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, at.Host+" is closed", func(ctx context.Context) error {
		connection, err := new(net.Dialer).DialContext(ctx, "tcp", at.Host)
		switch {
		case err == nil:
			return errors.Join(errors.New("it is open"), connection.Close())
		case errors.Is(err, syscall.ECONNREFUSED):
			return nil
		}
		return err
	})
}

// cloop runs the binary with the system's environment.
func cloop(t *testing.T, system *dev.System, args ...string) (string, int) {
	t.Helper()
	executable, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), executable, args...)
	command.Dir = system.Dir + "/work/fleet"
	command.Env = append(os.Environ(), system.Environment()...)
	printed, err := command.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(printed), command.ProcessState.ExitCode()
}

// expectPools checks that nobody deleted a pool.
func expectPools(t *testing.T, system *dev.System) {
	t.Helper()
	expect(t, "both ExecutorPools are there", func(ctx context.Context) error {
		var pools v1alpha1.ExecutorPoolList
		if err := system.Cluster.List(ctx, &pools); err != nil {
			return err
		}
		for _, pool := range pools.Items {
			if pool.DeletionTimestamp != nil {
				t.Fatalf("ExecutorPool %s is being deleted", pool.Name)
			}
		}
		if len(pools.Items) != 2 {
			t.Fatalf("there are %d", len(pools.Items))
		}
		return nil
	})
}

// runnerPods lists the uids of the runners' Pods.
func runnerPods(t *testing.T, system *dev.System) string {
	t.Helper()
	var uids strings.Builder
	expect(t, "list the Pods", func(ctx context.Context) error {
		var pods corev1.PodList
		if err := system.Cluster.List(ctx, &pods, client.InNamespace(dev.PoolNamespace)); err != nil {
			return err
		}
		uids.Reset()
		for _, pod := range pods.Items {
			fmt.Fprintf(&uids, "%s,", pod.UID)
		}
		return nil
	})
	return uids.String()
}

func syncConditions(ctx context.Context, system *dev.System) ([]metav1.Condition, error) {
	var sync v1alpha1.PoolSync
	err := system.Cluster.Get(ctx, client.ObjectKey{Namespace: dev.FleetNamespace, Name: dev.SyncName}, &sync)
	return sync.Status.Conditions, err
}

func poolConditions(ctx context.Context, system *dev.System, name string) ([]metav1.Condition, error) {
	var pool v1alpha1.ExecutorPool
	err := system.Cluster.Get(ctx, client.ObjectKey{Namespace: dev.PoolNamespace, Name: name}, &pool)
	return pool.Status.Conditions, err
}

func hasCondition(conditions []metav1.Condition, kind string, status metav1.ConditionStatus, reason v1alpha1.Reason) error {
	condition := meta.FindStatusCondition(conditions, kind)
	if condition == nil || condition.Status != status || condition.Reason != string(reason) || condition.Message == "" {
		return fmt.Errorf("condition %s is %+v", kind, condition)
	}
	return nil
}
