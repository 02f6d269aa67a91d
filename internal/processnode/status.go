package processnode

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of Pods and containers, as people see them in their status.
const (
	// ReasonRefused is on a Pod that this node cannot or may not run: Failed where it
	// is a runner, Pending where it is somebody else's.
	ReasonRefused = "ProcessNodeRefused"
	// ReasonRestarted is on a Pod whose processes an earlier run of the node
	// had started: they were killed.
	ReasonRestarted = "ProcessNodeRestarted"
	// ReasonStopped is on a Pod that ended because the node stopped.
	ReasonStopped = "ProcessNodeStopped"
	// ReasonDeleted is on a Pod that was deleted before it could run.
	ReasonDeleted = "PodDeleted"
	// ReasonDeadline is on a Pod that ran into its activeDeadlineSeconds.
	ReasonDeadline = "DeadlineExceeded"

	// The rest are Kubernetes' own.
	reasonCompleted      = "Completed"
	reasonError          = "Error"
	reasonCreating       = "ContainerCreating"
	reasonInitializing   = "PodInitializing"
	reasonConfig         = "CreateContainerConfigError"
	reasonCannotRun      = "StartError"
	reasonPodDone        = "PodCompleted"
	reasonPodFailed      = "PodFailed"
	reasonNotReady       = "ContainersNotReady"
	reasonNotInitialized = "ContainersNotInitialized"
)

// Exit codes that no process gave: 128 and the signal's number for one that a
// signal ended, as shells and kubelets have it, and 128 for one that did not
// start, as containerd has it.
const (
	exitSignalled = 128
	exitCannotRun = 128
	exitKilled    = exitSignalled + 9
)

// containerState is how far one container is.
type containerState struct {
	Name  string
	Image string
	// ID is empty until the container's process was started.
	ID string
	// Started is zero while the container waits, Finished until it ended.
	Started, Finished time.Time
	// Ended says that ExitCode is known.
	Ended    bool
	ExitCode int32
	// Reason and Message belong to the state that it is in.
	Reason, Message string
}

func (c containerState) running() bool { return !c.Started.IsZero() && !c.Ended }

func (c containerState) failed() bool { return c.Ended && c.ExitCode != 0 }

func (c containerState) status(executable string, init bool) corev1.ContainerStatus {
	ready := c.running()
	if init {
		ready = c.Ended && c.ExitCode == 0
	}
	started := c.running()
	status := corev1.ContainerStatus{
		Name: c.Name, Image: c.Image, ImageID: "process://" + executable, ContainerID: c.ID, Ready: ready, Started: &started,
	}
	switch {
	case c.Ended:
		status.State.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message, ContainerID: c.ID,
			StartedAt: metav1.NewTime(c.Started), FinishedAt: metav1.NewTime(c.Finished),
		}
	case c.running():
		status.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.Started)}
	default:
		status.State.Waiting = &corev1.ContainerStateWaiting{Reason: c.Reason, Message: c.Message}
	}
	return status
}

// podState is how far a Pod is: everything that its status says.
type podState struct {
	Executable string
	Generation int64
	Started    time.Time
	Inits      []containerState
	Mains      []containerState
	// Reason and Message are why the Pod failed as a whole, beyond what its
	// containers say. A Reason makes it Failed once nothing runs any more.
	Reason, Message string
	// Waits has a Pod with a Reason stay Pending.
	Waits bool
}

// newPodState is a Pod of which nothing runs yet.
func newPodState(pod *corev1.Pod, executable string, now time.Time) podState {
	state := podState{Executable: executable, Generation: pod.Generation, Started: now}
	waiting := func(containers []corev1.Container, reason string) []containerState {
		states := make([]containerState, 0, len(containers))
		for _, container := range containers {
			states = append(states, containerState{Name: container.Name, Image: container.Image, Reason: reason})
		}
		return states
	}
	reason := reasonCreating
	if len(pod.Spec.InitContainers) > 0 {
		reason = reasonInitializing
	}
	state.Inits = waiting(pod.Spec.InitContainers, reasonInitializing)
	state.Mains = waiting(pod.Spec.Containers, reason)
	return state
}

func (s podState) phase() corev1.PodPhase {
	all := slices.Concat(s.Inits, s.Mains)
	running := slices.ContainsFunc(all, containerState.running)
	initFailed := slices.ContainsFunc(s.Inits, containerState.failed)
	mainsEnded := !slices.ContainsFunc(s.Mains, func(c containerState) bool { return !c.Ended })
	switch {
	case s.Waits:
		return corev1.PodPending
	case (s.Reason != "" || initFailed) && !running:
		return corev1.PodFailed
	case mainsEnded && slices.ContainsFunc(s.Mains, containerState.failed):
		return corev1.PodFailed
	case mainsEnded:
		return corev1.PodSucceeded
	case slices.ContainsFunc(s.Mains, func(c containerState) bool { return !c.Started.IsZero() }):
		return corev1.PodRunning
	default:
		return corev1.PodPending
	}
}

// clone shares nothing that changes.
func (s podState) clone() podState {
	s.Inits, s.Mains = slices.Clone(s.Inits), slices.Clone(s.Mains)
	return s
}

// untouched says that no container was started.
func (s podState) untouched() bool {
	return !slices.ContainsFunc(slices.Concat(s.Inits, s.Mains), func(c containerState) bool { return !c.Started.IsZero() })
}

func (s podState) terminal() bool {
	phase := s.phase()
	return phase == corev1.PodFailed || phase == corev1.PodSucceeded
}

// status is the Pod's status at a time. Conditions that do not differ from
// the previous ones keep the time of their last change.
func (s podState) status(previous []corev1.PodCondition, now time.Time) corev1.PodStatus {
	phase := s.phase()
	started := metav1.NewTime(s.Started)
	status := corev1.PodStatus{
		ObservedGeneration: s.Generation, Phase: phase, Reason: s.Reason, Message: s.Message, StartTime: &started,
		HostIP: nodeIP, HostIPs: []corev1.HostIP{{IP: nodeIP}}, PodIP: nodeIP, PodIPs: []corev1.PodIP{{IP: nodeIP}},
	}
	for _, container := range s.Inits {
		status.InitContainerStatuses = append(status.InitContainerStatuses, container.status(s.Executable, true))
	}
	for _, container := range s.Mains {
		status.ContainerStatuses = append(status.ContainerStatuses, container.status(s.Executable, false))
	}
	status.Conditions = s.conditions(phase, previous, now)
	return status
}

func (s podState) conditions(phase corev1.PodPhase, previous []corev1.PodCondition, now time.Time) []corev1.PodCondition {
	initialized := !slices.ContainsFunc(s.Inits, func(c containerState) bool { return !c.Ended || c.ExitCode != 0 })
	ready := !slices.ContainsFunc(s.Mains, func(c containerState) bool { return !c.running() })
	reason := reasonNotReady
	switch phase {
	case corev1.PodSucceeded:
		reason = reasonPodDone
	case corev1.PodFailed:
		reason = reasonPodFailed
	}
	condition := func(kind corev1.PodConditionType, holds bool, whyNot string) corev1.PodCondition {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(now), ObservedGeneration: s.Generation}
		if !holds {
			c.Status, c.Reason = corev1.ConditionFalse, whyNot
		}
		for _, before := range previous {
			if before.Type == kind && before.Status == c.Status {
				c.LastTransitionTime = before.LastTransitionTime
			}
		}
		return c
	}
	return []corev1.PodCondition{
		condition(corev1.PodInitialized, initialized, reasonNotInitialized),
		condition(corev1.ContainersReady, ready, reason),
		condition(corev1.PodReady, ready, reason),
	}
}

// cutShort marks what runs or waits as ended with the node's reason.
func (s *podState) cutShort(reason, message string, now time.Time) {
	s.Reason, s.Message = reason, message
	for _, list := range [][]containerState{s.Inits, s.Mains} {
		for i := range list {
			if c := &list[i]; c.running() {
				c.Ended, c.Finished, c.ExitCode, c.Reason, c.Message = true, now, exitKilled, reason, message
			}
		}
	}
}

// containerID names a container's process.
func containerID(pid int, start uint64) string { return fmt.Sprintf("process://%d-%d", pid, start) }
