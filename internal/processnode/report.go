package processnode

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

// Backoff of requests that fail while the API server is away.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// reporter writes one Pod's status. The newest state wins: while a request is
// on its way or the API is away, states in between are left out. It owns one
// goroutine, from newReporter until close returns.
type reporter struct {
	client kubernetes.Interface
	pod    *corev1.Pod
	clock  clock.Clock
	log    *slog.Logger

	wake     chan struct{} // holds at most one wake-up; closed by nobody
	closing  chan struct{} // closed by close
	finished chan struct{} // closed by the goroutine

	mu   sync.Mutex // guards next
	next *podState
}

func newReporter(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, clk clock.Clock, log *slog.Logger) *reporter {
	r := &reporter{
		client: client, pod: pod, clock: clk, log: log,
		wake: make(chan struct{}, 1), closing: make(chan struct{}), finished: make(chan struct{}),
	}
	go r.run(ctx)
	return r
}

// set hands over a state, which the caller must not change afterwards.
func (r *reporter) set(state podState) {
	r.mu.Lock()
	r.next = &state
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// close returns when the last state is written, or cannot be.
func (r *reporter) close() {
	close(r.closing)
	<-r.finished
}

func (r *reporter) take() *podState {
	r.mu.Lock()
	defer r.mu.Unlock()
	state := r.next
	r.next = nil
	return state
}

func (r *reporter) run(ctx context.Context) {
	defer close(r.finished)
	conditions := r.pod.Status.Conditions
	var written []byte
	for closing := false; !closing; {
		select {
		case <-r.wake:
		case <-r.closing:
			closing = true
		}
		if state := r.take(); state != nil {
			status := state.status(conditions, r.clock.Now())
			conditions = status.Conditions
			written = r.write(ctx, status, written)
		}
	}
}

// write writes a status unless it is what was written before, and returns what
// the API has now.
func (r *reporter) write(ctx context.Context, status corev1.PodStatus, written []byte) []byte {
	patch, err := json.Marshal(map[string]any{
		// With the UID, a Pod of the same name that came later is safe.
		"metadata": map[string]any{"uid": r.pod.UID},
		"status":   status,
	})
	if err != nil {
		r.log.Error("cannot encode a Pod's status", "error", err)
		return written
	}
	if bytes.Equal(patch, written) {
		return written
	}
	err = retry(ctx, r.clock, func() error {
		_, err := r.client.CoreV1().Pods(r.pod.Namespace).Patch(ctx, r.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		return err
	})
	if err != nil && !gone(err) {
		r.log.Error("cannot write a Pod's status", "phase", status.Phase, "error", err)
		return nil
	}
	return patch
}

// remove takes a Pod that is being deleted out of the API, which tells its
// owner that nothing of it runs any more.
func remove(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, clk clock.Clock) error {
	err := retry(ctx, clk, func() error {
		return client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
		})
	})
	if err != nil && !gone(err) {
		return fmt.Errorf("remove the deleted Pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

// gone says that the Pod is not there any more, or another one of its name is.
func gone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// retry repeats a request while it may yet succeed.
func retry(ctx context.Context, clk clock.Clock, request func() error) error {
	for delay := firstRetry; ; delay = min(2*delay, lastRetry) {
		err := request()
		if err == nil || gone(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-clk.After(delay):
		}
	}
}
