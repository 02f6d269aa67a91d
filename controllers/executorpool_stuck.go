package controllers

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/pool"
)

// stuckPods says what keeps runners' Pods that were created from coming up, for
// the runs that wait for them; empty where nothing does. Of several it is the
// first by name, so that it does not change from pass to pass.
func stuckPods(pods map[string]*corev1.Pod) string {
	first, more := "", 0
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		why := stuck(pods[name])
		switch {
		case why == "":
		case first == "":
			first = why
		default:
			more++
		}
	}
	if more > 0 {
		first += fmt.Sprintf(" (and %d more)", more)
	}
	return first
}

// stuck says what keeps a Pod from coming up. Words that change with every try
// are left to the Pod's Events: each change would be a message to the hub.
func stuck(pod *corev1.Pod) string {
	if pod.Status.Phase != corev1.PodPending || pod.DeletionTimestamp != nil {
		return ""
	}
	for i := range pod.Status.Conditions {
		if condition := &pod.Status.Conditions[i]; unschedulable(condition) {
			return fmt.Sprintf("no node takes Pod %s: %s", pod.Name, condition.Message)
		}
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name != podspec.ContainerName || status.State.Waiting == nil {
			continue
		}
		switch reason := status.State.Waiting.Reason; reason {
		case "ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull":
			return fmt.Sprintf("the image %s of Pod %s cannot be pulled: its Events say why (kubectl describe pod)", status.Image, pod.Name)
		case "CreateContainerConfigError", "CreateContainerError", "RunContainerError":
			return fmt.Sprintf("the container of Pod %s cannot be made (%s): its Events say why (kubectl describe pod)", pod.Name, reason)
		}
	}
	return ""
}

// endOf is how a Pod ended whose container did. Where the container only knows
// that it was killed, the Pod may know by whom.
func endOf(pod *corev1.Pod, ended *corev1.ContainerStateTerminated) pool.End {
	end := pool.End{Reason: ended.Reason, Message: ended.Message, ExitCode: &ended.ExitCode}
	if ended.ExitCode == 0 || ended.Reason != "Error" && ended.Reason != "ContainerStatusUnknown" && ended.Reason != "" {
		return end
	}
	reason, message := whyPodEnded(pod)
	if reason == "" {
		return end
	}
	end.Reason = reason
	switch {
	case end.Message == "":
		end.Message = message
	case message != "":
		end.Message = message + "; " + end.Message
	}
	return end
}

// whyPodEnded is who ended the Pod, and how they put it; empty where the Pod does
// not know.
func whyPodEnded(pod *corev1.Pod) (reason, message string) {
	if pod.Status.Reason != "" {
		return pod.Status.Reason, pod.Status.Message
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; disrupted(c) {
			return c.Reason, c.Message
		}
	}
	return "", pod.Status.Message
}

// The conditions that decisions read; the cache keeps no other.

// unschedulable says that no node takes the Pod.
func unschedulable(c *corev1.PodCondition) bool {
	return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable
}

// disrupted says that somebody in the cluster ended the Pod.
func disrupted(c *corev1.PodCondition) bool {
	return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue
}
