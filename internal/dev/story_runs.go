package dev

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// coldRun: a run waits, a Pod is created for it, a runner enrolls, the run
// executes and succeeds, and Pod and Secret go.
func (st *Story) coldRun(ctx context.Context, r *record) error {
	s := st.System
	if err := s.Bind(ctx, batchPool); err != nil {
		return err
	}
	pods, err := s.WatchPods(ctx, batchPool)
	if err != nil {
		return err
	}
	defer pods.Stop()
	enrolled := s.watchEnrollment(ctx, batchPool)
	run, err := s.StartRun(ctx, "./check")
	if err != nil {
		return err
	}
	created, err := pods.First(ctx)
	if err != nil {
		return err
	}
	r.timed(created.Sub(run.QueuedAt), "its Pod was created")
	settled, err := s.Settled(ctx, run.ID)
	if err != nil {
		return err
	}
	if at := enrolled(); !at.IsZero() {
		r.timed(at.Sub(run.QueuedAt), "its runner enrolled")
	}
	if err := st.succeeded(ctx, settled, "checked"); err != nil {
		return err
	}
	r.timed(settled.StartedAt.Sub(run.QueuedAt), "its command started")
	r.timed(settled.FirstLogAt.Sub(run.QueuedAt), "the hub had its first log line")
	r.timed(settled.SettledAt.Sub(run.QueuedAt), "it had succeeded with exit code 0")
	if err := st.noRunners(ctx, batchPool); err != nil {
		return err
	}
	r.timed(time.Since(run.QueuedAt), "its Pod and Secret were gone")
	return nil
}

// warmRun: a run starts on a runner that waits, and a failing command's exit
// code reaches the person who waits for it.
func (st *Story) warmRun(ctx context.Context, r *record) error {
	s := st.System
	if err := s.Bind(ctx, agentsPool); err != nil {
		return err
	}
	run, err := s.StartRun(ctx, "./check")
	if err != nil {
		return err
	}
	settled, err := s.Settled(ctx, run.ID)
	if err != nil {
		return err
	}
	if err := st.succeeded(ctx, settled, "checked"); err != nil {
		return err
	}
	r.timed(settled.StartedAt.Sub(run.QueuedAt), "its command started")
	r.timed(settled.SettledAt.Sub(run.QueuedAt), "it had succeeded with exit code 0")
	// With a key, because the hub may die before it answers: the repetition must
	// not start a second run.
	output, code, err := s.cloop(ctx, "run", "start", "--project", ProjectName, "--idempotency-key", rand.Text(), "--wait", "--", "./check", "0", "3")
	if err != nil {
		return err
	}
	if code != 3 || !strings.Contains(output, "checked") {
		return fmt.Errorf("cloop run start --wait has exit code %d, want the run's own, 3: %s", code, output)
	}
	r.note("a failing run's exit code reached its shell: %d", code)
	return nil
}

// removePool: a commit removes a pool while a run is in progress; the run
// finishes first, then hub and cluster have nothing left of it.
func (st *Story) removePool(ctx context.Context, r *record) error {
	s := st.System
	if err := s.Bind(ctx, batchPool); err != nil {
		return err
	}
	run, err := s.StartRun(ctx, "./check", "4")
	if err != nil {
		return err
	}
	if err := until(ctx, "the run is in progress", func(ctx context.Context) error {
		now, err := s.Hub.GetRun(ctx, run.ID)
		if err == nil && now.State != hubv1.RunRunning {
			return fmt.Errorf("it is %s: %s", now.State, now.Reason)
		}
		return err
	}); err != nil {
		return err
	}
	pushed := time.Now()
	if err := st.WithdrawBatch(ctx); err != nil {
		return err
	}
	removed, err := st.fleet.Head(ctx)
	if err != nil {
		return err
	}
	if err := st.draining(ctx, r, pushed); err != nil {
		return err
	}
	settled, err := s.Settled(ctx, run.ID)
	if err != nil {
		return err
	}
	if err := st.succeeded(ctx, settled, "checked"); err != nil {
		return err
	}
	r.timed(time.Since(pushed), "the run had finished with exit code 0")
	if err := until(ctx, "the hub has nothing left of the pool", st.hubForgot(batchPool)); err != nil {
		return err
	}
	r.timed(time.Since(pushed), "the hub had nothing left of the pool")
	if err := st.clusterForgot(ctx, batchPool); err != nil {
		return err
	}
	r.timed(time.Since(pushed), "the cluster had nothing left of the pool")
	if err := st.applied(ctx, removed); err != nil {
		return err
	}
	st.good = removed
	return nil
}

// WithdrawBatch publishes a commit that removes the batch pool from both halves
// of the fleet.
func (st *Story) WithdrawBatch(ctx context.Context) error {
	for _, folder := range []string{"hub", "pools/base"} {
		if err := st.fleet.Replace(folder+"/kustomization.yaml", "  - batch.yaml\n", ""); err != nil {
			return err
		}
	}
	if err := st.fleet.Write(map[string][]byte{batchFile: nil, hubBatchFile: nil}); err != nil {
		return err
	}
	if _, err := st.fleet.Commit(ctx, "Remove the batch pool"); err != nil {
		return err
	}
	return st.publish(ctx)
}

// draining waits until both sides have seen that the pool goes.
func (st *Story) draining(ctx context.Context, r *record, pushed time.Time) error {
	err := until(ctx, "the hub drains the pool", func(ctx context.Context) error {
		pool, err := st.System.Hub.GetPool(ctx, batchPool)
		if gone(err) || err == nil && pool.State != hubv1.PoolActive {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is %s", pool.State)
	})
	if err != nil {
		return err
	}
	r.timed(time.Since(pushed), "the hub drained the pool")
	err = until(ctx, "the ExecutorPool is being deleted", func(ctx context.Context) error {
		pool, err := st.executorPool(ctx, batchPool)
		if gone(err) || err == nil && pool.DeletionTimestamp != nil {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("it is not")
	})
	r.timed(time.Since(pushed), "the cluster drained the ExecutorPool")
	return err
}

// hubForgot checks that a pool has no place in the hub's list and no runner.
func (st *Story) hubForgot(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		pools, err := st.System.Hub.ListPools(ctx)
		if err != nil {
			return err
		}
		for _, pool := range pools {
			if pool.Name == name {
				return fmt.Errorf("it is %s with runners %+v", pool.State, pool.Runners)
			}
		}
		return nil
	}
}

// clusterForgot waits until no object of a pool is left.
func (st *Story) clusterForgot(ctx context.Context, name string) error {
	return until(ctx, "the cluster has nothing left of the pool", func(ctx context.Context) error {
		switch _, err := st.executorPool(ctx, name); {
		case err == nil:
			return errors.New("the ExecutorPool is there")
		case !gone(err):
			return err
		}
		return st.System.noObjects(ctx, name, &corev1.PodList{}, &corev1.SecretList{}, &corev1.ConfigMapList{})
	})
}

// noRunners waits until a pool has no Pod and no Secret of one.
func (st *Story) noRunners(ctx context.Context, name string) error {
	return until(ctx, "the pool's Pods and Secrets are gone", func(ctx context.Context) error {
		return st.System.noObjects(ctx, name, &corev1.PodList{}, &corev1.SecretList{})
	})
}

func (s *System) noObjects(ctx context.Context, pool string, lists ...client.ObjectList) error {
	for _, list := range lists {
		if err := s.Cluster.List(ctx, list, client.InNamespace(PoolNamespace), client.MatchingLabels{v1alpha1.LabelExecutorPool: pool}); err != nil {
			return err
		}
		if n := lengthOf(list); n > 0 {
			return fmt.Errorf("there are %d in the %T", n, list)
		}
	}
	return nil
}

// succeeded checks how a run ended and what its log says.
func (st *Story) succeeded(ctx context.Context, run hubv1.Run, said string) error {
	if run.State != hubv1.RunSucceeded || run.ExitCode == nil || *run.ExitCode != 0 {
		return fmt.Errorf("run %s is %s: %s", run.ID, run.State, run.Reason)
	}
	if run.StartedAt == nil || run.SettledAt == nil {
		return fmt.Errorf("run %s has no times: %+v", run.ID, run)
	}
	return until(ctx, "read the run's log", func(ctx context.Context) error {
		stream, err := st.System.Hub.Logs(ctx, run.ID, 0, false)
		if err != nil {
			return unlessUnavailable(err)
		}
		defer func() { _ = stream.Close() }()
		log, err := io.ReadAll(stream)
		if err != nil {
			return err
		}
		if !strings.Contains(string(log), said) {
			return never("the log of run %s does not say %q: %q", run.ID, said, log)
		}
		return nil
	})
}

// Bind binds the project to a pool.
func (s *System) Bind(ctx context.Context, pool string) error {
	return until(ctx, "bind the project to pool "+pool, func(ctx context.Context) error {
		p, err := s.Hub.GetPool(ctx, pool)
		if err == nil {
			_, err = s.Hub.BindProject(ctx, ProjectName, "pool:"+p.ID)
		}
		return unlessUnavailable(err)
	})
}

// StartRun queues a run of the project. Trying again queues no second one.
func (s *System) StartRun(ctx context.Context, command ...string) (run hubv1.Run, err error) {
	key := rand.Text()
	err = until(ctx, "start a run", func(ctx context.Context) (err error) {
		run, err = s.Hub.StartRun(ctx, hubv1.StartRunRequest{Project: ProjectName, Command: command}, key)
		return unlessUnavailable(err)
	})
	return run, err
}

// Settled waits until a run has ended.
func (s *System) Settled(ctx context.Context, id string) (run hubv1.Run, err error) {
	err = until(ctx, "run "+id+" ends", func(ctx context.Context) error {
		for run, err = range s.Hub.WatchRun(ctx, id) {
			if err != nil {
				return err
			}
			if run.State.Terminal() {
				return nil
			}
		}
		return fmt.Errorf("it is %s: %s", run.State, run.Reason)
	})
	return run, err
}

// PodWatch sees the Pods of one pool as they appear.
type PodWatch struct {
	watch.Interface
}

// WatchPods begins to watch a pool's Pods; those that exist do not count.
func (s *System) WatchPods(ctx context.Context, pool string) (*PodWatch, error) {
	var pods corev1.PodList
	of := []client.ListOption{client.InNamespace(PoolNamespace), client.MatchingLabels{v1alpha1.LabelExecutorPool: pool}}
	if err := s.Cluster.List(ctx, &pods, of...); err != nil {
		return nil, err
	}
	watcher, err := s.Cluster.Watch(ctx, &pods, append(of, &client.ListOptions{Raw: resumeFrom(pods.ResourceVersion)})...)
	if err != nil {
		return nil, err
	}
	return &PodWatch{watcher}, nil
}

// First returns when the next Pod appeared.
func (w *PodWatch) First(ctx context.Context) (time.Time, error) {
	for {
		select {
		case <-ctx.Done():
			return time.Time{}, fmt.Errorf("wait for a Pod: %w", ctx.Err())
		case event, open := <-w.ResultChan():
			if !open {
				return time.Time{}, fmt.Errorf("wait for a Pod: the watch ended")
			}
			if event.Type == watch.Added {
				return time.Now(), nil
			}
		}
	}
}

// watchEnrollment looks for the first enrollment of a pool from now on. The
// function that it returns gives its time, zero when none was seen.
func (s *System) watchEnrollment(ctx context.Context, pool string) func() time.Time {
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	var first atomic.Pointer[time.Time]
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = until(ctx, "a runner enrolls", func(ctx context.Context) error {
			runners, err := s.Hub.ListPoolRunners(ctx, pool)
			if err != nil {
				return err
			}
			for _, runner := range runners {
				if runner.EnrolledAt != nil && runner.EnrolledAt.After(began) {
					first.Store(runner.EnrolledAt)
					return nil
				}
			}
			return fmt.Errorf("none has")
		})
	}()
	return func() time.Time {
		cancel()
		<-done
		if at := first.Load(); at != nil {
			return *at
		}
		return time.Time{}
	}
}

// KillRunner ends one runner with SIGKILL and says whether there was one.
func (s *System) KillRunner() (bool, error) { return s.KillRunnerOf("") }

// KillRunnerOf ends one runner of a pool with SIGKILL and says whether there
// was one.
func (s *System) KillRunnerOf(pool string) (bool, error) {
	pid, err := childOf(s.PID(nodePart), "executor runner", "CLOOP_RUNNER_NAME="+pool)
	if err != nil || pid == 0 {
		return false, err
	}
	return true, exec.Command("kill", "-KILL", fmt.Sprint(pid)).Run()
}
