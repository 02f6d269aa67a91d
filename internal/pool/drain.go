package pool

import "cloop.dev/cloop/apis/hubv1"

// drain plans the end of a pool that is being deleted: idle runners at once,
// busy ones when they finish, the anchor and the finalizer last.
func (o *observed) drain(p *Plan) {
	if o.Pool.ForceDelete {
		o.force(p)
	}
	if o.up() {
		for _, r := range o.sortedRunners() {
			o.drainRunner(p, r)
		}
	} else {
		o.dropPending(p)
	}
	p.Finish = o.Pool.Finalizer && o.drained()
}

// drainRunner plans to retire a runner that holds no run.
func (o *observed) drainRunner(p *Plan, r hubv1.PoolRunner) {
	if !o.mine(r.Key) || o.podEnded(r.Key) {
		return
	}
	_, here := o.pods[r.Key]
	switch {
	case r.State == hubv1.RunnerStarting && !here && !o.fresh(r.Key):
		p.Retire = append(p.Retire, Retire{RunnerID: r.ID, Key: r.Key, Why: WhyNeverStarted})
	case r.State == hubv1.RunnerStarting, r.State == hubv1.RunnerIdle && here:
		p.Retire = append(p.Retire, Retire{RunnerID: r.ID, Key: r.Key, Why: WhyDraining})
	}
}

// dropPending plans to delete Pods that never ran when the hub cannot be asked
// to retire their runners: they hold no run, and with nobody to schedule them
// they might never end. A hub that does not answer now may be asked a little later,
// so it is given StartGrace; what it has minted for them expires there.
func (o *observed) dropPending(p *Plan) {
	switch {
	case o.Link.State == LinkConnecting, o.Link.Reason == "":
		return
	case !o.Link.hopeless():
		if due := o.Link.Since.Add(StartGrace); o.Now.Before(due) {
			p.wakeAt(due)
			return
		}
	}
	for _, pod := range o.sortedPods() {
		if pod.Phase == PodPending && !pod.Deleting {
			p.DeletePods = append(p.DeletePods, Deletion{Name: pod.Name, Key: pod.Key, OnlyPending: true})
		}
	}
}

// force plans to delete every Pod, busy or not.
func (o *observed) force(p *Plan) {
	for _, pod := range o.sortedPods() {
		if pod.Phase != PodEnded && !pod.Deleting {
			p.DeletePods = append(p.DeletePods, Deletion{Name: pod.Name, Key: pod.Key})
		}
	}
}

// drained says whether nothing of the pool is left here, and nothing at the
// hub as far as it can be asked. Without the hub nothing more can be learnt:
// what it still has has no Pod and expires there.
func (o *observed) drained() bool {
	if len(o.pods) > 0 || len(o.secrets) > 0 || o.Link.State == LinkConnecting {
		return false
	}
	if !o.up() {
		return true
	}
	if o.demand.unseen > 0 {
		return false
	}
	for key := range o.runners {
		if o.mine(key) {
			return false
		}
	}
	return true
}
