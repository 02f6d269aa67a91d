package pool

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// StartGrace is how long a started runner may stay invisible, in the hub's
// snapshot or among the Pods, before its start no longer counts.
const StartGrace = 2 * time.Minute

// StuckGrace is how long a Pod may find no node, or not get its image, before the
// pool says that something is wrong: a cluster that adds nodes as they are needed
// takes minutes for one.
const StuckGrace = 3 * time.Minute

// Decide returns what the pool does next.
func Decide(s Snapshot) Plan {
	o := observe(s)
	var p Plan
	o.ended(&p)
	o.orphans(&p)
	if o.Pool.Deleting {
		o.drain(&p)
	} else {
		o.scale(&p)
	}
	o.stuck(&p)
	o.owners(&p)
	o.marks(&p)
	o.settle(&p)
	p.Numbers = o.numbers()
	p.Conditions = Conditions(s, p)
	return p
}

// observed is a Snapshot with what is looked up often.
type observed struct {
	Snapshot
	runners map[string]hubv1.PoolRunner // mint key → the hub's runner
	pods    map[string]Pod              // mint key → its Pod
	secrets map[string]Secret           // mint key → its Secret
	demand  demand
}

func observe(s Snapshot) *observed {
	o := &observed{
		Snapshot: s,
		runners:  map[string]hubv1.PoolRunner{},
		pods:     map[string]Pod{},
		secrets:  map[string]Secret{},
	}
	if s.Hub != nil {
		for _, r := range s.Hub.Runners {
			if r.State != hubv1.RunnerRetired {
				o.runners[r.Key] = r
			}
		}
	}
	for _, pod := range s.Pods {
		o.pods[pod.Key] = pod
	}
	for _, secret := range s.Secrets {
		o.secrets[secret.Key] = secret
	}
	o.demand = o.measure()
	return o
}

// up says whether the hub can be asked and its snapshot trusted. A hub that
// does not report states would make every runner look startable and idle.
func (o *observed) up() bool {
	return o.Link.State == LinkUp && o.Hub != nil && hasStates(o.Hub)
}

func hasStates(hub *hubv1.PoolSnapshot) bool {
	return slices.Contains(hub.Features, hubv1.FeatureRunnerStates)
}

// mine says whether the runner with this key is for this controller to judge:
// its Pod is here, or this very ExecutorPool minted it. The Pods of any other
// runner of the credential are in another cluster, and calling one gone would
// cut a run short.
func (o *observed) mine(key string) bool {
	_, here := o.pods[key]
	return here || strings.HasPrefix(key, KeyPrefix(o.Pool.UID))
}

// fresh says whether this process started the key so recently that caches may
// not show it.
func (o *observed) fresh(key string) bool {
	started, ok := o.Memory.Started[key]
	return ok && o.Now.Sub(started.At) < StartGrace
}

// podEnded says whether the key's Pod is here and has ended.
func (o *observed) podEnded(key string) bool {
	pod, ok := o.pods[key]
	return ok && pod.Phase == PodEnded
}

// ended plans what follows when a Pod has ended. It is the one thing that is
// done without the hub: an ended Pod can hold no run.
func (o *observed) ended(p *Plan) {
	for _, pod := range o.sortedPods() {
		if pod.Phase == PodEnded {
			p.Ended = append(p.Ended, Ended{
				RunnerID: pod.RunnerID, Key: pod.Key, Pod: pod.Name, End: pod.End, Tell: o.up() && pod.RunnerID != "",
			})
		}
	}
}

// orphans plans what follows when a runner, a Pod or a Secret is without its
// other half.
func (o *observed) orphans(p *Plan) {
	if o.up() {
		for _, r := range o.sortedRunners() {
			_, here := o.pods[r.Key]
			// One that enrolled had a Pod, however fresh: where the cache shows none
			// before it showed one, the API server is asked (see Missing).
			if !here && r.State != hubv1.RunnerStarting && o.mine(r.Key) {
				p.Missing = append(p.Missing, Missing{RunnerID: r.ID, Key: r.Key, End: o.lastEnd(r.ID)})
			}
		}
		for _, pod := range o.sortedPods() {
			if _, known := o.runners[pod.Key]; known || pod.Phase == PodEnded || pod.Deleting || o.fresh(pod.Key) {
				continue
			}
			if pod.RunnerID == "" && pod.Phase != PodPending {
				continue // the hub cannot be asked about it; it ends by itself
			}
			switch waited := o.waited(p, "pod/"+pod.Key); {
			case waited && pod.RunnerID == "":
				p.DeletePods = append(p.DeletePods, Deletion{Name: pod.Name, Key: pod.Key, OnlyPending: true})
			case waited:
				p.Release = append(p.Release, Release{
					RunnerID: pod.RunnerID, Key: pod.Key, Pod: pod.Name, Pending: pod.Phase == PodPending,
				})
			}
		}
	}
	if o.revoked() && !o.Pool.Deleting {
		// The hub has taken back every token: what never ran never will.
		o.dropPending(p)
	}
	if o.up() || o.Pool.Deleting || o.revoked() {
		o.orphanSecrets(p)
	}
}

func (o *observed) orphanSecrets(p *Plan) {
	for _, secret := range o.sortedSecrets() {
		if _, here := o.pods[secret.Key]; here || o.fresh(secret.Key) {
			continue
		}
		// A runner that is still to start gets its Secret again; one that is
		// given back loses it then.
		if r, known := o.runners[secret.Key]; known && r.State == hubv1.RunnerStarting && o.up() {
			continue
		}
		if o.waited(p, "secret/"+secret.Key) {
			p.DeleteSecrets = append(p.DeleteSecrets, Deletion{Name: secret.Name, Key: secret.Key})
		}
	}
}

// waited says whether what is named has missed its other half for the grace
// time, and plans to look again when it will have.
func (o *observed) waited(p *Plan, what string) bool {
	p.Absent = append(p.Absent, what)
	since, seen := o.Memory.Absent[what]
	if !seen {
		since = o.Now
	}
	due := since.Add(o.Memory.OrphanGrace)
	if o.Now.Before(due) {
		p.wakeAt(due)
		return false
	}
	// What is still there after its deletion is looked at again.
	p.wakeAt(o.Now.Add(o.Memory.OrphanGrace + time.Second))
	return true
}

// lastEnd is how the runner's Pod ended as far as this process knows.
func (o *observed) lastEnd(runnerID string) End {
	if end, ok := o.Memory.Ends[runnerID]; ok {
		return end
	}
	return End{Reason: "PodDeleted", Message: "the runner's Pod does not exist any more"}
}

// stuck says of the first Pod by key that does not come up why.
func (o *observed) stuck(p *Plan) {
	for _, pod := range o.sortedPods() {
		if pod.Stuck == "" || pod.Phase != PodPending || pod.Deleting {
			continue
		}
		if due := pod.Created.Add(StuckGrace); o.Now.Before(due) {
			p.wakeAt(due)
		} else if p.Stuck == "" {
			p.Stuck = pod.Stuck
		}
	}
}

// owners plans to complete ownership that a crash or a hand left incomplete.
func (o *observed) owners(p *Plan) {
	for _, secret := range o.sortedSecrets() {
		pod, here := o.pods[secret.Key]
		if here && !secret.Owned && pod.Phase != PodEnded && !pod.Deleting {
			p.Own = append(p.Own, Ownership{Secret: secret.Name, Pod: pod.Name})
		}
	}
	for _, pod := range o.sortedPods() {
		if !pod.Anchored && pod.Phase != PodEnded && !pod.Deleting {
			p.Adopt = append(p.Adopt, pod.Name)
		}
	}
	if o.AnchorUID == "" && len(p.Adopt)+len(p.Start) > 0 {
		p.EnsureAnchor = true
	}
}

// marks plans to put back what somebody took off objects that stay.
func (o *observed) marks(p *Plan) {
	for _, pod := range o.sortedPods() {
		if pod.Unmarked && pod.Phase != PodEnded && !pod.Deleting {
			p.Mark = append(p.Mark, Marking{Name: pod.Name, Key: pod.Key, RunnerID: pod.RunnerID})
		}
	}
	for _, secret := range o.sortedSecrets() {
		if _, here := o.pods[secret.Key]; here && secret.Unmarked && !o.podEnded(secret.Key) {
			p.Mark = append(p.Mark, Marking{Name: secret.Name, Secret: true, Key: secret.Key, RunnerID: secret.RunnerID})
		}
	}
}

// settle names the started runners that every cache shows, or that have had
// their time.
func (o *observed) settle(p *Plan) {
	for key, started := range o.Memory.Started {
		_, known := o.runners[key]
		_, here := o.pods[key]
		if known && here || o.podEnded(key) || !o.fresh(key) {
			p.Settled = append(p.Settled, key)
		} else {
			p.wakeAt(started.At.Add(StartGrace))
		}
	}
	slices.Sort(p.Settled)
	slices.Sort(p.Absent)
}

// wakeAt makes the plan's wake-up no later than at.
func (p *Plan) wakeAt(at time.Time) {
	if p.Wake.IsZero() || at.Before(p.Wake) {
		p.Wake = at
	}
}

func (o *observed) sortedPods() []Pod {
	return sorted(o.pods, func(a, b Pod) int { return cmp.Compare(a.Key, b.Key) })
}

func (o *observed) sortedSecrets() []Secret {
	return sorted(o.secrets, func(a, b Secret) int { return cmp.Compare(a.Key, b.Key) })
}

// sortedRunners is oldest first.
func (o *observed) sortedRunners() []hubv1.PoolRunner {
	return sorted(o.runners, func(a, b hubv1.PoolRunner) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Key, b.Key))
	})
}

func sorted[T any](m map[string]T, compare func(a, b T) int) []T {
	return slices.SortedFunc(maps.Values(m), compare)
}
