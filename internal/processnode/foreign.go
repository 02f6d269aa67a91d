package processnode

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// foreign says why a Pod is none of this node's and what to do about it, or nothing. Of
// a runner that the node cannot run, refusal tells instead: whoever made it counts its
// failures.
func foreign(pod *corev1.Pod) string {
	const advice = "delete what makes this Pod, or run it in another cluster; what cloop dev up starts, such as cloop's controllers, runs beside the cluster already"
	if pod.Labels[labelAppName] != runnerAppName {
		return "this node runs Pods with the label " + labelAppName + "=" + runnerAppName + " only, and those as processes: " + advice
	}
	if policy := pod.Spec.RestartPolicy; policy != corev1.RestartPolicyNever {
		return "this node restarts no container, so restartPolicy " + string(policy) + " is not supported: " + advice
	}
	return ""
}

// leave tells a foreign Pod why it is left alone, and lets it be deleted. It stays
// Pending: whoever makes Pods without end, as a ReplicaSet does, would make the next one
// at once where this one failed.
func (n *node) leave(pod *corev1.Pod, why string) {
	log := n.podLog(pod)
	if pod.DeletionTimestamp != nil {
		if err := remove(n.api, n.client, pod, n.Clock); err != nil {
			log.Error("a deleted Pod stays", "error", err)
		}
		return
	}
	if pod.Status.Reason == ReasonRefused {
		return
	}
	log.Warn("leaves a Pod alone", "why", why)
	if err := n.tellRefused(pod, why); err != nil {
		log.Warn("cannot write an Event of a Pod that is left alone", "error", err)
	}
	report := newReporter(n.api, n.client, pod, n.Clock, log)
	report.set(refusedState(newPodState(pod, n.Executable, n.Clock.Now()), why))
	report.close()
}

// refusedState is a Pod that waits for somebody to take it away.
func refusedState(state podState, why string) podState {
	state.Reason, state.Message, state.Waits = ReasonRefused, why, true
	for _, list := range [][]containerState{state.Inits, state.Mains} {
		for i := range list {
			list[i].Reason, list[i].Message = ReasonRefused, why
		}
	}
	return state
}

// tellRefused writes the Event that `kubectl describe` shows; one for each Pod, also
// where the node is started again before the Pod's status says it.
func (n *node) tellRefused(pod *corev1.Pod, why string) error {
	now := metav1.NewTime(n.Clock.Now())
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: fmt.Sprintf("%.200s.%s", pod.Name, pod.UID)},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
		},
		Type: corev1.EventTypeWarning, Reason: ReasonRefused, Message: why, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "cloop-process-node", Host: n.NodeName},
	}
	return retry(n.api, n.Clock, func() error {
		_, err := n.client.CoreV1().Events(pod.Namespace).Create(n.api, event, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}
