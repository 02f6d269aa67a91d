package diff

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/pool"
)

// atHub is where an impact is that is not in a cluster.
const atHub = "hub"

// Impact is what a change means for the runners, runs and volumes that there
// are at the moment of the snapshot.
type Impact struct {
	// Where is "hub", or the cluster's name.
	Where string `json:"where"`
	// Retires counts idle runners that the change retires; each goes once it has
	// been idle for the scale-down delay.
	Retires int `json:"retires"`
	// Busy counts the busy runners. No change touches them: they finish.
	Busy int `json:"busy"`
	// Waiting counts runs that wait and go on waiting, Starts those that get a
	// runner by the change, Cancels those that it cancels.
	Waiting int `json:"waiting"`
	Starts  int `json:"starts"`
	Cancels int `json:"cancels"`
	// Releases counts volumes that the pool gives up; Deletes says that they are
	// deleted.
	Releases int  `json:"releases"`
	Deletes  bool `json:"deletes"`
	// Estimate says that not all that counts could be read.
	Estimate bool `json:"estimate"`
}

// String is the impact in words.
func (i Impact) String() string {
	parts := []string{"retires " + count.Of(i.Retires, "idle runner"), fmt.Sprintf("touches 0 of %d busy", i.Busy)}
	if i.Busy == 0 {
		parts[1] = "touches 0 busy"
	}
	verb := func(n int) string {
		if n == 1 {
			return " keeps waiting"
		}
		return " keep waiting"
	}
	if i.Starts > 0 {
		parts = append(parts, "gives "+count.Of(i.Starts, "waiting run")+" a runner")
	}
	if i.Cancels > 0 {
		parts = append(parts, "cancels "+count.Of(i.Cancels, "waiting run"))
	}
	if i.Waiting > 0 {
		parts = append(parts, count.Of(i.Waiting, "waiting run")+verb(i.Waiting))
	}
	if i.Releases > 0 {
		became := " and keeps " + them(i.Releases)
		if i.Deletes {
			became = " and deletes " + them(i.Releases)
		}
		parts = append(parts, "releases "+count.Of(i.Releases, "volume")+became)
	}
	if i.Estimate {
		return "about: " + strings.Join(parts, ", ")
	}
	return strings.Join(parts, ", ")
}

func them(n int) string {
	if n == 1 {
		return "it"
	}
	return "them"
}

// Live is what was read of hub and clusters.
type Live struct {
	// Hub is nil where it was not read.
	Hub *LiveHub
	// Clusters that were read.
	Clusters []LiveCluster
	// Notes say what could not be read.
	Notes []string
	// Now is when that was.
	Now time.Time
}

// LiveHub is what the hub has.
type LiveHub struct{ Pools []hubv1.Pool }

// LiveCluster is what a cluster has.
type LiveCluster struct {
	Name  string
	Pools []v1alpha1.ExecutorPool
	// Syncs say which overlays the cluster applies; none where that is not known.
	Syncs []v1alpha1.PoolSync
}

func (h *LiveHub) find(name string) *hubv1.Pool {
	if h == nil {
		return nil
	}
	for i := range h.Pools {
		if h.Pools[i].Name == name {
			return &h.Pools[i]
		}
	}
	return nil
}

// scene is one ExecutorPool at one moment: what of a snapshot the decision of its
// controller depends on here.
type scene struct {
	// absent: there is no such pool.
	absent                     bool
	starting, idle, busy       int32
	minimum, maximum           int32
	queued, others, hubMaximum int32
	halted, deleting           bool
}

// active are the runners that are not on their way out.
func (s scene) active() int32 { return s.starting + s.idle + s.busy }

// outcome is what a controller would do about a scene: retire idle runners, and
// see to it that there are as many as desired.
type outcome struct{ retires, desired int32 }

// moment stands for now: nothing here depends on which one it is.
var moment = time.Unix(0, 0).UTC()

// maxCounted bounds the runners of one state: no pool has as many.
const maxCounted = 100_000

// decide asks the controller's own decision about runners that have all been
// idle for long enough.
func (s scene) decide() outcome {
	if s.absent {
		return outcome{}
	}
	hub := &hubv1.PoolSnapshot{
		Revision: 1, Features: []string{hubv1.FeatureRunnerStates},
		Queued: s.queued, OthersAvailable: s.others,
		Pool: hubv1.Pool{
			State: hubv1.PoolActive, PoolDefinition: hubv1.PoolDefinition{MaxRunners: s.hubMaximum},
			Runners: hubv1.RunnerCounts{Starting: s.starting + s.others, Idle: s.idle, Busy: s.busy},
		},
	}
	if s.halted {
		hub.Pool.Cordon = &hubv1.Cordon{}
	}
	snapshot := pool.Snapshot{
		Now: moment, Link: pool.Link{State: pool.LinkUp}, Hub: hub, AnchorUID: "anchor",
		Pool: pool.Pool{UID: "pool", MinRunners: s.minimum, MaxRunners: s.maximum, Deleting: s.deleting},
	}
	for state, n := range map[hubv1.RunnerState]int32{hubv1.RunnerStarting: s.starting, hubv1.RunnerIdle: s.idle, hubv1.RunnerBusy: s.busy} {
		for i := range min(n, maxCounted) {
			key := pool.KeyPrefix("pool") + string(state) + "-" + strconv.Itoa(int(i))
			hub.Runners = append(hub.Runners, hubv1.PoolRunner{ID: key, Key: key, State: state, CreatedAt: moment, EnrolledAt: &moment})
			snapshot.Pods = append(snapshot.Pods, pool.Pod{Name: key, Key: key, RunnerID: key, Phase: pool.PodRunning, Anchored: true})
			snapshot.Secrets = append(snapshot.Secrets, pool.Secret{Name: key, Key: key, RunnerID: key, Owned: true})
		}
	}
	plan := pool.Decide(snapshot)
	var out outcome
	for _, retire := range plan.Retire {
		// One that only starts has no run either, but is nobody's idle runner.
		if retire.Why == pool.WhyIdle || retire.Why == pool.WhyDraining && strings.Contains(retire.Key, string(hubv1.RunnerIdle)) {
			out.retires++
		}
	}
	if plan.Numbers != nil {
		out.desired = plan.Numbers.Desired
	}
	return out
}

// volumesReleased is how many volumes a pool no longer keeps. claims are bounds
// on how many it keeps; below nothing means that it keeps none at all.
func volumesReleased(volumes, before, after int32) int {
	beyond := func(claims int32) int32 { return max(0, volumes-max(0, claims)) }
	return int(max(0, beyond(after)-beyond(before)))
}
