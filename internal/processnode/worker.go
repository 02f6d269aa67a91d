package processnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// missingRetry is how often a Pod looks again for a Secret or a claim that is
// not there.
const missingRetry = 500 * time.Millisecond

// worker runs one Pod, from the bind to the end of its last process. Its
// goroutine is owned by the node; a goroutine for each container is its own.
type worker struct {
	client     kubernetes.Interface
	clock      clock.WithDelayedExecution
	log        *slog.Logger
	executable string
	claims     string
	dir        podDir
	pod        *corev1.Pod
	report     *reporter

	// ending is cancelled when the Pod's processes are asked to end, killing
	// when they must.
	ending, killing  context.Context
	endNow, killNow  context.CancelFunc
	mu               sync.Mutex // guards what follows
	state            podState
	cause, causeText string // why the node ends the Pod, if it does
	deleted          bool   // the object is to be removed in the end
	finished         bool   // the API knows how the Pod ended
	timers           []clock.Timer
}

// run runs the Pod and returns when nothing of it runs and the API knows.
func (w *worker) run(ctx context.Context) {
	defer w.endNow()
	defer w.killNow()
	w.mu.Lock()
	w.keep()
	w.mu.Unlock()
	if why := refusal(w.pod); why != "" {
		w.log.Warn("refuses a Pod", "why", why)
		w.fail(ReasonRefused, why)
	} else {
		w.armDeadline()
		w.execute(ctx)
	}
	w.finish(ctx)
}

func (w *worker) execute(ctx context.Context) {
	volumes, objects, err := w.prepare(ctx)
	if err != nil {
		return
	}
	for i := range w.pod.Spec.InitContainers {
		if w.ending.Err() != nil || !w.container(ctx, &w.pod.Spec.InitContainers[i], true, i, volumes, objects) {
			return
		}
	}
	var all sync.WaitGroup
	for i := range w.pod.Spec.Containers {
		if w.ending.Err() == nil {
			all.Go(func() { w.container(ctx, &w.pod.Spec.Containers[i], false, i, volumes, objects) })
		}
	}
	all.Wait()
}

// prepare makes the volumes, waiting for what is not there yet.
func (w *worker) prepare(ctx context.Context) (map[string]string, *objects, error) {
	for waited := false; ; waited = true {
		objects := newObjects(w.client, w.pod.Namespace)
		volumes, err := materialise(ctx, w.pod, w.dir, w.claims, objects)
		if err == nil {
			err = w.readEnvironment(ctx, objects)
		}
		if err == nil {
			if waited {
				w.waitsNoMore()
			}
			return volumes, objects, nil
		}
		if errors.Is(err, errNever) {
			w.fail(ReasonRefused, err.Error())
			return nil, nil, err
		}
		w.waitingFor(err)
		select {
		case <-w.ending.Done():
			return nil, nil, w.ending.Err()
		case <-w.clock.After(missingRetry):
		}
	}
}

// readEnvironment reads the Secrets that variables come from, so that a
// missing one shows before anything is started.
func (w *worker) readEnvironment(ctx context.Context, objects *objects) error {
	for _, container := range slices.Concat(w.pod.Spec.InitContainers, w.pod.Spec.Containers) {
		if _, _, err := variables(ctx, w.pod, &container, objects); err != nil {
			return err
		}
	}
	return nil
}

// waitingFor shows in the status what the Pod lacks, once for each lack.
func (w *worker) waitingFor(lack error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changed := false
	for _, list := range [][]containerState{w.state.Inits, w.state.Mains} {
		for i := range list {
			changed = changed || list[i].Message != lack.Error()
			list[i].Reason, list[i].Message = reasonConfig, lack.Error()
		}
	}
	if changed {
		w.log.Info("a Pod waits", "for", lack)
		w.report.set(w.state.clone())
	}
}

func (w *worker) waitsNoMore() {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh := newPodState(w.pod, w.executable, w.state.Started)
	w.state.Inits, w.state.Mains = fresh.Inits, fresh.Mains
}

// container runs one container to its end and says whether it succeeded.
func (w *worker) container(ctx context.Context, container *corev1.Container, init bool, index int, volumes map[string]string, objects *objects) bool {
	started, err := w.start(ctx, container, volumes, objects)
	if err != nil {
		w.log.Warn("cannot start a container", "container", container.Name, "error", err)
		w.update(init, index, func(c *containerState) {
			c.Started, c.Finished, c.Ended = w.clock.Now(), w.clock.Now(), true
			c.ExitCode, c.Reason, c.Message = exitCannotRun, reasonCannotRun, err.Error()
		})
		return false
	}
	w.update(init, index, func(c *containerState) {
		c.Started, c.Reason, c.Message = w.clock.Now(), "", ""
		c.ID = containerID(started.family.Root.PID, started.family.Root.Start)
	})
	w.await(started)
	// A container ends with its first process: nothing of it may go on.
	if err := started.family.Kill(); err != nil {
		w.log.Error("a container's processes do not end", "container", container.Name, "error", err)
	} else if err := w.dir.forgetProcess(container.Name); err != nil {
		w.log.Error("cannot forget a container's process", "container", container.Name, "error", err)
	}
	message, err := terminationMessage(w.dir, container, started.exit.code)
	if err != nil {
		w.log.Warn("a container's last words are lost", "container", container.Name, "error", err)
	}
	if message == "" {
		message = started.exit.message
	}
	w.update(init, index, func(c *containerState) {
		c.Ended, c.Finished, c.ExitCode = true, w.clock.Now(), started.exit.code
		c.Reason, c.Message = started.exit.reason, message
	})
	return started.exit.code == 0
}

func (w *worker) start(ctx context.Context, container *corev1.Container, volumes map[string]string, objects *objects) (*child, error) {
	values, secret, err := variables(ctx, w.pod, container, objects)
	if err != nil {
		return nil, err
	}
	mounts, err := containerMounts(container, volumes, values, w.dir.termination(container.Name))
	if err != nil {
		return nil, err
	}
	call := invoke(container, w.executable, values, secret, mounts, w.dir.container(container.Name))
	// An image would bring its working directory along.
	if err := os.MkdirAll(call.dir, 0o700); err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	}
	return spawn(w.dir, container.Name, call)
}

// await returns when the container's first process has ended, by itself or
// because the Pod ends. As in a container only that process is asked; the
// others end with it.
func (w *worker) await(started *child) {
	select {
	case <-started.done:
		return
	case <-w.ending.Done():
	}
	if err := started.family.Root.Signal(syscall.SIGTERM); err != nil {
		w.log.Debug("the process ended before it was asked to", "error", err)
	}
	select {
	case <-started.done:
		return
	case <-w.killing.Done():
	}
	if err := started.family.Kill(); err != nil {
		w.log.Error("a container's processes do not end", "error", err)
	}
	<-started.done
}

// update changes a container's state, keeps it and reports it, unless it is
// the last: that is for finish, which knows why.
func (w *worker) update(init bool, index int, change func(*containerState)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	list := w.state.Mains
	if init {
		list = w.state.Inits
	}
	change(&list[index])
	w.keep()
	if !w.state.terminal() {
		w.report.set(w.state.clone())
	}
}

// keep stores the state for a node that starts again; the caller holds the
// lock.
func (w *worker) keep() {
	if err := w.dir.keepState(w.pod.UID, w.state); err != nil {
		w.log.Error("cannot keep a Pod's state", "error", err)
	}
}

// fail ends a Pod of which nothing runs.
func (w *worker) fail(reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state.Reason, w.state.Message = reason, message
	w.keep()
}

// finish settles the Pod: whatever was cut short has failed, the API hears the
// last word, and what was on disk for it is removed. Secrets go before anybody
// hears that the Pod has ended, the rest, which may take long, after.
func (w *worker) finish(ctx context.Context) {
	w.mu.Lock()
	for _, timer := range w.timers {
		timer.Stop()
	}
	switch {
	case w.cause == ReasonDeadline, w.cause != "" && w.state.phase() != corev1.PodSucceeded:
		w.state.Reason, w.state.Message = w.cause, w.causeText
	case !w.state.terminal():
		w.state.Reason, w.state.Message = ReasonDeleted, "the Pod was deleted before its containers had run"
	}
	w.keep()
	last := w.state.clone()
	w.mu.Unlock()
	if err := w.dir.removeSecrets(w.pod); err != nil {
		w.log.Error("a Pod's Secrets stay on the disk", "error", err)
	}
	w.report.set(last)
	w.report.close()
	w.log.Info("a Pod ended", "phase", last.phase())
	if err := w.dir.removeVolumes(); err != nil {
		w.log.Error("cannot remove a Pod's volumes", "error", err)
	}
	w.mu.Lock()
	w.finished = true
	deleted := w.deleted
	w.mu.Unlock()
	if deleted {
		w.remove(ctx)
	}
}

func (w *worker) remove(ctx context.Context) {
	if err := remove(ctx, w.client, w.pod, w.clock); err != nil {
		w.log.Error("a deleted Pod stays", "error", err)
	}
}

// end asks the Pod's processes to end and kills them after the grace period.
// The first cause counts, and the shortest period.
func (w *worker) end(grace time.Duration, cause, text string) {
	w.mu.Lock()
	if w.cause == "" && w.ending.Err() == nil {
		w.cause, w.causeText = cause, text
	}
	w.mu.Unlock()
	w.endNow()
	if grace <= 0 {
		w.killNow()
		return
	}
	w.arm(grace, w.killNow)
}

func (w *worker) arm(after time.Duration, act func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timers = append(w.timers, w.clock.AfterFunc(after, act))
}

// updated hears of every change of the Pod's object. It says whether the
// object should be removed by the caller, because the worker is through.
func (w *worker) updated(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp == nil {
		return false
	}
	w.mu.Lock()
	w.deleted = true
	finished := w.finished
	w.mu.Unlock()
	if !finished {
		w.end(gracePeriod(pod), "", "")
	}
	return finished
}

// through says that the worker has nothing left to do.
func (w *worker) through() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.finished
}

// removed hears that the object is gone: nobody waits for the Pod any more.
func (w *worker) removed() { w.end(0, "", "") }

// defaultGrace is Kubernetes' own.
const defaultGrace = 30 * time.Second

func gracePeriod(pod *corev1.Pod) time.Duration {
	for _, seconds := range []*int64{pod.DeletionGracePeriodSeconds, pod.Spec.TerminationGracePeriodSeconds} {
		if seconds != nil {
			return time.Duration(*seconds) * time.Second
		}
	}
	return defaultGrace
}

func (w *worker) armDeadline() {
	if seconds := w.pod.Spec.ActiveDeadlineSeconds; seconds != nil {
		w.arm(time.Duration(*seconds)*time.Second, func() {
			w.end(gracePeriod(w.pod), ReasonDeadline, "the Pod ran longer than its activeDeadlineSeconds")
		})
	}
}
