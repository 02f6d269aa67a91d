package pool

import (
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// demand is how many runners there are and how many there should be.
type demand struct {
	starting, idle, busy, retiring int32
	// unseen are runners that this process started and the hub's snapshot
	// does not show yet; they count as starting.
	unseen int32
	// desired is how many should be starting, idle or busy.
	desired int32
	// room is how many more the two maxima allow.
	room int32
}

func (d demand) active() int32 { return d.starting + d.unseen + d.idle + d.busy }

// measure counts the runners of this controller's credential and works out how
// many there should be.
func (o *observed) measure() demand {
	var d demand
	if o.Hub == nil {
		return d
	}
	for key, r := range o.runners {
		if o.podEnded(key) {
			// Its place is free as soon as the hub hears of it.
			d.retiring++
			continue
		}
		switch r.State {
		case hubv1.RunnerStarting:
			d.starting++
		case hubv1.RunnerIdle:
			d.idle++
		case hubv1.RunnerBusy:
			d.busy++
		case hubv1.RunnerRetiring:
			d.retiring++
		case hubv1.RunnerRetired:
		}
	}
	for key := range o.Memory.Started {
		if _, known := o.runners[key]; !known && o.fresh(key) && !o.podEnded(key) {
			d.unseen++
		}
	}
	d.desired = o.desired(d.busy)
	d.room = o.room(d)
	return d
}

// desired is minRunners, the busy ones and one for each run that waits for a
// runner of this cluster, within the lower of the two maxima. While the pool
// hands out nothing, only the busy ones are wanted.
func (o *observed) desired(busy int32) int32 {
	if o.halted() {
		return busy
	}
	waiting := max(0, o.Hub.Queued-o.Hub.OthersAvailable)
	want := int64(o.Pool.MinRunners) + int64(busy) + int64(waiting)
	return int32(min(want, int64(min(o.Pool.MaxRunners, o.Hub.Pool.MaxRunners)))) //nolint:gosec // bounded by an int32
}

// halted says whether the pool is to take no more work.
func (o *observed) halted() bool {
	return o.Pool.Deleting || o.Hub.Pool.Cordon != nil || o.Hub.Pool.State != hubv1.PoolActive
}

// room is how many more runners the two maxima allow. The hub counts every
// runner that is not retired, those of other credentials too.
func (o *observed) room(d demand) int32 {
	own := d.active() + d.retiring
	counts := o.Hub.Pool.Runners
	others := max(0, counts.Starting+counts.Idle+counts.Busy+counts.Retiring-(own-d.unseen))
	return max(0, min(o.Pool.MaxRunners-own, o.Hub.Pool.MaxRunners-others-own))
}

// numbers are the counts for the status; nil before the first snapshot.
func (o *observed) numbers() *Numbers {
	if o.Hub == nil {
		return nil
	}
	d := o.demand
	return &Numbers{
		Desired:  d.desired,
		Runners:  d.active() + d.retiring,
		Busy:     d.busy,
		Idle:     d.idle,
		Queued:   o.Hub.Queued,
		Starting: d.starting + d.unseen,
		Retiring: d.retiring,
	}
}

// unstarted are the runners of this pool that were minted and have no Pod, or
// a Pod that waits for a Secret that is lost.
func (o *observed) unstarted(p *Plan) []Start {
	var starts []Start
	for _, r := range o.sortedRunners() {
		if r.State != hubv1.RunnerStarting || !o.mine(r.Key) || o.fresh(r.Key) || o.Memory.Burnt[r.Key] {
			continue
		}
		pod, here := o.pods[r.Key]
		if !here {
			starts = append(starts, Start{Key: r.Key, Again: true})
			continue
		}
		if _, has := o.secrets[r.Key]; !has && pod.Phase == PodPending && !pod.Deleting && !pod.Outdated &&
			o.waited(p, "secret-of/"+r.Key) {
			starts = append(starts, Start{Key: r.Key, Again: true, SecretOnly: true})
		}
	}
	return starts
}

// scale plans starts and retirements of a pool that is not being deleted.
func (o *observed) scale(p *Plan) {
	if !o.up() || o.Duplicate != "" {
		return
	}
	again := o.unstarted(p)
	if len(o.Problems) > 0 {
		// An invalid spec's numbers mean nothing: neither start nor retire.
		return
	}
	o.retireOutdated(p)
	missing := o.demand.desired - o.demand.active()
	p.Short = missing > 0 || len(again) > 0
	surplus := -missing
	for surplus > 0 && len(again) > 0 {
		// Newest first: nobody has been told to wait for them.
		last := again[len(again)-1]
		if last.SecretOnly {
			break
		}
		again = again[:len(again)-1]
		p.Retire = append(p.Retire, Retire{RunnerID: o.runners[last.Key].ID, Key: last.Key, Why: WhyNeverStarted})
		surplus--
	}
	if surplus > 0 {
		o.retireIdle(p, int(surplus))
	}
	o.start(p, again, max(0, min(missing, o.demand.room)))
}

// start plans the starts of this pass.
func (o *observed) start(p *Plan, again []Start, fresh int32) {
	limit := MaxStarts
	if refused := o.Memory.PodRefused; refused != nil {
		if o.Now.Before(refused.RetryAt) {
			p.wakeAt(refused.RetryAt)
			return
		}
		// One is enough to find out whether the API server relents.
		limit = 1
	}
	p.Start = append(p.Start, again[:min(len(again), limit)]...)
	if refused := o.Memory.MintRefused; refused != nil && fresh > 0 &&
		o.Now.Before(refused.RetryAt) && refused.Revision == o.Hub.Revision {
		p.wakeAt(refused.RetryAt)
		return
	}
	n := min(int(fresh), limit-len(p.Start))
	for _, key := range o.keys(n) {
		p.Start = append(p.Start, Start{Key: key})
	}
	if limit == MaxStarts && len(again)+int(fresh) > limit {
		p.wakeAt(o.Now)
	}
}

// retireOutdated plans to retire the runners that wait for a Pod which never ran and
// was made of another template: what was corrected may be what keeps it from coming
// up. Others are started in their place once the hub has retired them. While the API
// server refuses Pods, those that there are stay.
func (o *observed) retireOutdated(p *Plan) {
	if o.Memory.PodRefused != nil || o.halted() {
		return
	}
	for _, r := range o.sortedRunners() {
		pod, here := o.pods[r.Key]
		if here && pod.Outdated && pod.Phase == PodPending && !pod.Deleting && r.State == hubv1.RunnerStarting {
			p.Retire = append(p.Retire, Retire{RunnerID: r.ID, Key: r.Key, Why: WhyOutdated})
		}
	}
}

// retireIdle plans to retire up to n runners that have been idle for the
// scale-down delay, the longest idle first.
func (o *observed) retireIdle(p *Plan, n int) {
	for _, r := range o.sortedRunners() {
		if n == 0 {
			return
		}
		pod, here := o.pods[r.Key]
		if r.State != hubv1.RunnerIdle || !here || pod.Phase == PodEnded {
			continue
		}
		n--
		if due := idleSince(r).Add(o.Pool.ScaleDownDelay); o.Now.Before(due) {
			p.wakeAt(due)
			continue
		}
		p.Retire = append(p.Retire, Retire{RunnerID: r.ID, Key: r.Key, Why: WhyIdle})
	}
}

// idleSince is when the runner enrolled: it takes one run only, so an idle one
// has never had a run.
func idleSince(r hubv1.PoolRunner) time.Time {
	if r.EnrolledAt != nil {
		return *r.EnrolledAt
	}
	return r.CreatedAt
}
