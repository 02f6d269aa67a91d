package pool_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/pool"
)

// world is a hub, a cluster and a controller, small enough to take every turn
// at random. What the controller sees are copies that may be old.
type world struct {
	t   fataler
	now time.Time

	// The hub.
	revision int64
	max      int32
	queued   int32
	cordoned bool
	runners  map[string]*simRunner // id → runner
	minted   int

	// The cluster.
	pods    map[string]*simPod    // name → Pod
	secrets map[string]*simSecret // name → Secret
	anchor  bool
	created int

	// The pool and its controller.
	loseMint    bool // the next mint's answer is lost
	spec        pool.Pool
	gone        bool // the finalizer is off
	link        pool.LinkState
	memory      pool.Memory
	seenHub     *hubv1.PoolSnapshot
	seenPods    []pool.Pod
	seenSecrets []pool.Secret
}

type fataler interface {
	Fatalf(format string, args ...any)
	Helper()
}

type simRunner struct {
	hubv1.PoolRunner
	token int
}

type simPod struct {
	pool.Pod
}

type simSecret struct {
	pool.Secret
	token int
}

const (
	simTokenTTL   = 10 * time.Minute
	simIdleRetire = 15 * time.Minute
	simGrace      = 30 * time.Second
)

func newWorld(t fataler, minRunners, maxRunners, hubMax int32) *world {
	w := &world{
		t: t, now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC),
		revision: 1, max: hubMax, runners: map[string]*simRunner{},
		pods: map[string]*simPod{}, secrets: map[string]*simSecret{}, link: pool.LinkUp,
		spec: pool.Pool{UID: "uid-1", MinRunners: minRunners, MaxRunners: maxRunners, ScaleDownDelay: time.Minute, Finalizer: true},
	}
	w.restart()
	return w
}

// restart is a new controller process: it remembers nothing and lists all.
func (w *world) restart() {
	w.memory = pool.Memory{
		Started: map[string]pool.Started{}, Absent: map[string]time.Time{},
		Burnt: map[string]bool{}, Ends: map[string]pool.End{}, OrphanGrace: simGrace,
	}
	w.refresh()
}

func (w *world) refresh() {
	w.refreshHub()
	w.refreshPods()
	w.refreshSecrets()
}

func (w *world) refreshHub() {
	s := &hubv1.PoolSnapshot{
		Revision: w.revision, Features: []string{hubv1.FeatureRunnerStates}, Queued: w.queued,
		Pool: hubv1.Pool{ID: "p1", Name: "gpu", State: hubv1.PoolActive, PoolDefinition: hubv1.PoolDefinition{MaxRunners: w.max}},
	}
	if w.cordoned {
		s.Pool.Cordon = &hubv1.Cordon{Reason: "upgrade"}
	}
	for _, id := range slices.Sorted(maps.Keys(w.runners)) {
		if r := w.runners[id]; r.State != hubv1.RunnerRetired {
			s.Runners = append(s.Runners, r.PoolRunner)
		}
	}
	w.seenHub = s
}

func (w *world) refreshPods() {
	w.seenPods = nil
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		w.seenPods = append(w.seenPods, w.pods[name].Pod)
	}
}

func (w *world) refreshSecrets() {
	w.seenSecrets = nil
	for _, name := range slices.Sorted(maps.Keys(w.secrets)) {
		w.seenSecrets = append(w.seenSecrets, w.secrets[name].Secret)
	}
}

func (w *world) snapshot() pool.Snapshot {
	s := pool.Snapshot{
		Now: w.now, Pool: w.spec, Link: pool.Link{State: w.link}, Hub: w.seenHub,
		Pods: w.seenPods, Secrets: w.seenSecrets, Memory: w.memory,
	}
	if w.link == pool.LinkDown {
		s.Link.Reason, s.Link.Since = v1alpha1.ReasonHubUnavailable, w.now
	}
	if w.link == pool.LinkRefused {
		s.Link.Reason = v1alpha1.ReasonHubRefused
	}
	if w.anchor {
		s.AnchorUID = "anchor"
	}
	return s
}

func (w *world) changed() { w.revision++ }

func (w *world) active() (n int32) {
	for _, r := range w.runners {
		if r.State != hubv1.RunnerRetired {
			n++
		}
	}
	return n
}

func (w *world) byKey(key string) *simRunner {
	for _, r := range w.runners {
		if r.Key == key {
			return r
		}
	}
	return nil
}

// mint is the hub's: within the maximum, idempotent by key.
func (w *world) mint(key string) (*simRunner, hubv1.Code) {
	if r := w.byKey(key); r != nil {
		switch r.State {
		case hubv1.RunnerStarting:
			r.token++
			w.changed()
			return r, ""
		case hubv1.RunnerRetired:
			return nil, hubv1.CodeRunnerRetired
		default:
			return nil, hubv1.CodeTokenRedeemed
		}
	}
	if w.cordoned {
		return nil, hubv1.CodePoolCordoned
	}
	if w.active() >= w.max {
		return nil, hubv1.CodePoolAtMaximum
	}
	w.minted++
	r := &simRunner{PoolRunner: hubv1.PoolRunner{
		ID: fmt.Sprintf("r%03d", w.minted), Key: key, State: hubv1.RunnerStarting, CreatedAt: w.now,
	}}
	w.runners[r.ID] = r
	w.changed()
	return r, ""
}

func (w *world) retire(id string) hubv1.RunnerState {
	r := w.runners[id]
	switch r.State {
	case hubv1.RunnerStarting:
		r.State = hubv1.RunnerRetired
	case hubv1.RunnerIdle:
		r.State = hubv1.RunnerRetiring
	}
	w.changed()
	return r.State
}

func (w *world) tellGone(id string) {
	r := w.runners[id]
	if r.State == hubv1.RunnerBusy {
		for _, p := range w.pods {
			if p.RunnerID == id && p.Phase == pool.PodRunning {
				w.t.Fatalf("told the hub that the busy runner %s is gone while its Pod runs", id)
			}
		}
		w.queued++ // failover
	}
	r.State = hubv1.RunnerRetired
	w.changed()
}

func (w *world) deletePod(name string) {
	p, ok := w.pods[name]
	if !ok {
		return
	}
	r := w.runners[p.RunnerID]
	forced := w.spec.Deleting && w.spec.ForceDelete
	if p.Phase == pool.PodRunning && r.State == hubv1.RunnerBusy && !forced {
		w.t.Fatalf("deleted the Pod of the busy runner %s", p.RunnerID)
	}
	delete(w.pods, name)
}

// reconcile decides and acts, and dies after some steps (negative: never).
func (w *world) reconcile(steps int) pool.Plan {
	if w.gone {
		return pool.Plan{}
	}
	plan := pool.Decide(w.snapshot())
	act := &simActor{w: w, steps: steps}
	act.carryOut(plan)
	if act.dead {
		w.restart()
		return plan
	}
	for _, key := range plan.Settled {
		delete(w.memory.Started, key)
	}
	for what := range w.memory.Absent {
		if !slices.Contains(plan.Absent, what) {
			delete(w.memory.Absent, what)
		}
	}
	for _, what := range plan.Absent {
		if _, seen := w.memory.Absent[what]; !seen {
			w.memory.Absent[what] = w.now
		}
	}
	return plan
}

// simActor carries out a plan as the controller does, one call at a time.
type simActor struct {
	w     *world
	steps int
	dead  bool
}

// step says whether the process is still alive for one more call.
func (a *simActor) step() bool {
	if a.steps == 0 {
		a.dead = true
	}
	a.steps--
	return !a.dead
}

func (a *simActor) carryOut(p pool.Plan) {
	w := a.w
	if p.EnsureAnchor && a.step() {
		w.anchor = true
	}
	for _, s := range p.Start {
		a.start(s)
	}
	for _, e := range p.Ended {
		if e.Tell && a.step() {
			w.tellGone(e.RunnerID)
		} else if !e.Tell {
			w.memory.Ends[e.RunnerID] = e.End
		}
		a.drop(e.Pod, e.Key)
	}
	for _, m := range p.Missing {
		if _, here := w.pods[podName(m.Key)]; !here && a.step() {
			w.tellGone(m.RunnerID)
		}
	}
	for _, r := range p.Retire {
		if a.step() && w.retire(r.RunnerID) == hubv1.RunnerRetired {
			a.drop(podName(r.Key), r.Key)
		}
	}
	for _, r := range p.Release {
		if a.step() && w.retire(r.RunnerID) == hubv1.RunnerRetired {
			a.drop(r.Pod, r.Key)
		}
	}
	for _, d := range p.DeletePods {
		if pod := w.pods[d.Name]; pod != nil && (!d.OnlyPending || pod.Phase == pool.PodPending) {
			a.drop(d.Name, d.Key)
		}
	}
	for _, d := range p.DeleteSecrets {
		if _, here := w.pods[podName(d.Key)]; !here && a.step() {
			delete(w.secrets, d.Name)
		}
	}
	for _, o := range p.Own {
		if s := w.secrets[o.Secret]; s != nil && a.step() {
			s.Owned = true
		}
	}
	for _, name := range p.Adopt {
		if pod := w.pods[name]; pod != nil && a.step() {
			pod.Anchored = true
		}
	}
	// Caches may be old, so the last step asks the API server itself.
	if p.Finish && len(w.pods)+len(w.secrets) == 0 && a.step() {
		w.anchor = false
		if a.step() {
			w.gone, w.spec.Finalizer = true, false
		}
	}
}

func (a *simActor) drop(pod, key string) {
	if a.step() {
		a.w.deletePod(pod)
	}
	if a.step() {
		delete(a.w.secrets, secretName(key))
	}
}

func (a *simActor) start(s pool.Start) {
	w := a.w
	name := podName(s.Key)
	if _, here := w.pods[name]; s.Again && here != s.SecretOnly {
		return
	}
	if !a.step() {
		return
	}
	r, code := w.mint(s.Key)
	if w.loseMint {
		w.loseMint = false
		return
	}
	switch code {
	case "":
	case hubv1.CodeTokenRedeemed, hubv1.CodeRunnerRetired:
		w.memory.Burnt[s.Key] = true
		return
	default:
		w.memory.MintRefused = &pool.Refusal{RetryAt: w.now.Add(30 * time.Second), Revision: w.seenHub.Revision}
		return
	}
	w.memory.MintRefused = nil
	if !a.step() {
		return
	}
	w.secrets[secretName(s.Key)] = &simSecret{Secret: pool.Secret{Name: secretName(s.Key), Key: s.Key, RunnerID: r.ID, Owned: s.SecretOnly}, token: r.token}
	if !a.step() {
		return
	}
	if _, exists := w.pods[name]; !exists {
		w.created++
		w.pods[name] = &simPod{pool.Pod{Name: name, Key: s.Key, RunnerID: r.ID, Phase: pool.PodPending, Anchored: true}}
	}
	w.memory.Started[s.Key] = pool.Started{RunnerID: r.ID, At: w.now}
	if a.step() {
		w.secrets[secretName(s.Key)].Owned = true
	}
}

func podName(key string) string    { return "gpu-" + key }
func secretName(key string) string { return "token-" + key }

// run lets the Pod's containers start and its runner enroll.
func (w *world) run(p *simPod) {
	secret := w.secrets[secretName(p.Key)]
	if p.Phase != pool.PodPending || secret == nil {
		return
	}
	r := w.runners[p.RunnerID]
	if r.State != hubv1.RunnerStarting || r.token != secret.token {
		w.end(p, 1)
		return
	}
	p.Phase = pool.PodRunning
	r.State, r.EnrolledAt = hubv1.RunnerIdle, new(w.now)
	w.changed()
}

func (w *world) end(p *simPod, code int32) {
	p.Phase, p.End = pool.PodEnded, pool.End{Reason: "Error", ExitCode: &code}
}

func (w *world) handOff(r *simRunner) {
	if r.State == hubv1.RunnerIdle && w.queued > 0 && !w.cordoned {
		r.State = hubv1.RunnerBusy
		w.queued--
		w.changed()
	}
}

func (w *world) finish(r *simRunner) {
	if r.State == hubv1.RunnerBusy && w.pods[podName(r.Key)] != nil {
		r.State = hubv1.RunnerRetiring
		w.changed()
	}
}

// exit is a retiring runner's last act.
func (w *world) exit(r *simRunner) {
	p := w.pods[podName(r.Key)]
	if r.State == hubv1.RunnerRetiring && p != nil && p.Phase == pool.PodRunning {
		r.State = hubv1.RunnerRetired
		w.end(p, 0)
		w.changed()
	}
}

// tick lets time pass, and the hub's timers with it.
func (w *world) tick(d time.Duration) {
	w.now = w.now.Add(d)
	for _, r := range w.runners {
		switch {
		case r.State == hubv1.RunnerStarting && w.now.Sub(r.CreatedAt) > simTokenTTL:
			r.State = hubv1.RunnerRetired
			w.changed()
		case r.State == hubv1.RunnerIdle && w.now.Sub(*r.EnrolledAt) > simIdleRetire:
			r.State = hubv1.RunnerRetiring
			w.changed()
		case w.gone && w.pods[podName(r.Key)] == nil && r.State != hubv1.RunnerRetired:
			// Nobody is left to report it: its lease ends.
			r.State = hubv1.RunnerRetired
		}
	}
}

func (w *world) podsInOrder() []*simPod {
	var pods []*simPod
	for _, name := range slices.Sorted(maps.Keys(w.pods)) {
		pods = append(pods, w.pods[name])
	}
	return pods
}

func (w *world) runnersInOrder() []*simRunner {
	var runners []*simRunner
	for _, id := range slices.Sorted(maps.Keys(w.runners)) {
		runners = append(runners, w.runners[id])
	}
	return runners
}

// settle lets everything take its course without faults.
func (w *world) settle(rounds int) {
	w.link = pool.LinkUp
	for range rounds {
		for _, p := range w.podsInOrder() {
			w.run(p)
		}
		for _, r := range w.runnersInOrder() {
			w.handOff(r)
		}
		for _, r := range w.runnersInOrder() {
			w.finish(r)
			w.exit(r)
		}
		w.refresh()
		w.reconcile(-1)
		w.tick(5 * time.Second)
	}
}
