package controllers

import (
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/pool"
)

const (
	// eventPause is how long the same Event of the same pool is not recorded
	// again.
	eventPause = 10 * time.Minute
	// maxEventMessage is what the API server takes of an Event's message.
	maxEventMessage = 1024
)

// poolEvent is one Event on an ExecutorPool or a PoolSync.
type poolEvent struct {
	warning bool
	reason  v1alpha1.Reason
	message string
	// key tells Events of one reason apart; two with the same are the same.
	key string
	// revision that it is about; empty: the one that the object was applied from.
	revision string
	// statusOnly: nothing has changed but which commit all is well at.
	statusOnly bool
	// state: it says how the object is, all well or what is wrong. It is the same as an
	// earlier one only where nothing else was said of that since.
	state bool
}

func runnerFailed(runnerID string, end pool.End) poolEvent {
	message := fmt.Sprintf("runner %s ended: %s", runnerID, orElse(end.Reason, "unknown reason"))
	if end.ExitCode != nil {
		message += fmt.Sprintf(", exit code %d", *end.ExitCode)
	}
	if end.Message != "" {
		message += ": " + end.Message
	}
	return poolEvent{warning: true, reason: v1alpha1.ReasonRunnerFailed, message: message, key: end.Reason + "/" + end.Message}
}

func orphanCollected(what string) poolEvent {
	return poolEvent{reason: v1alpha1.ReasonOrphanCollected, message: what, key: what}
}

func runnersRefused(message string) poolEvent {
	return poolEvent{warning: true, reason: v1alpha1.ReasonRunnersRefused, message: message}
}

func podRefused(message string) poolEvent {
	return poolEvent{warning: true, reason: v1alpha1.ReasonPodRefused, message: message}
}

func replaced() poolEvent {
	return poolEvent{reason: v1alpha1.ReasonScaledDown, key: "outdated",
		message: "gave back a runner that had not started, because the template has been changed since: another is started where it is wanted"}
}

func podStuck(message string) poolEvent {
	return poolEvent{warning: true, reason: v1alpha1.ReasonPodStuck, message: message}
}

// announce records what a pass did to the number of runners.
func (a *actor) announce(plan pool.Plan) {
	want := int32(0)
	if plan.Numbers != nil {
		want = plan.Numbers.Desired
	}
	if a.started > 0 {
		a.events.record(a.o.xpool, poolEvent{
			reason: v1alpha1.ReasonScaledUp, message: fmt.Sprintf("started %s; the pool wants %d", count.Of(a.started, "runner"), want),
		})
	}
	if a.retired > 0 {
		a.events.record(a.o.xpool, poolEvent{
			reason: v1alpha1.ReasonScaledDown, message: fmt.Sprintf("retired %s; the pool wants %d", count.Of(a.retired, "runner"), want),
		})
	}
	if a.kept > 0 {
		a.events.record(a.o.xpool, poolEvent{
			reason: v1alpha1.ReasonRetireRefused, message: fmt.Sprintf("the hub did not retire %s that had been given work meanwhile", count.Of(a.kept, "runner")),
		})
	}
}

// poolEvents records Events, each at most once in eventPause.
type poolEvents struct {
	recorder *eventRecorder
	clock    clock.PassiveClock

	mu     sync.Mutex                                    // guards last and states
	last   map[types.NamespacedName]map[string]time.Time // object → reason and key → when recorded
	states map[types.NamespacedName]string               // object → reason and key of the last state
}

func newPoolEvents(recorder *eventRecorder, c clock.PassiveClock) *poolEvents {
	return &poolEvents{recorder: recorder, clock: c, last: map[types.NamespacedName]map[string]time.Time{}, states: map[types.NamespacedName]string{}}
}

// record records the Event unless the same one was recorded lately. Nothing
// that looks like a credential gets through.
func (e *poolEvents) record(object client.Object, event poolEvent) {
	name, key := client.ObjectKeyFromObject(object), string(event.reason)+"/"+event.key
	if event.state {
		e.turn(name, key)
	}
	if !e.due(name, key) {
		return
	}
	e.recorder.record(object, event)
}

// turn notes the state of an object. Where it has come back to one from another, whoever
// was told of that one last has to hear it, however short ago it was told before.
func (e *poolEvents) turn(name types.NamespacedName, key string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.states[name] != key {
		delete(e.last[name], key)
		e.states[name] = key
	}
}

func (e *poolEvents) due(name types.NamespacedName, key string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now, recorded := e.clock.Now(), e.last[name]
	if recorded == nil {
		recorded = map[string]time.Time{}
		e.last[name] = recorded
	}
	if at, ok := recorded[key]; ok && now.Sub(at) < eventPause {
		return false
	}
	for old, at := range recorded {
		if now.Sub(at) >= eventPause {
			delete(recorded, old)
		}
	}
	recorded[key] = now
	return true
}

// forget drops what is remembered of an object.
func (e *poolEvents) forget(name types.NamespacedName) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.last, name)
	delete(e.states, name)
}
