package pool_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/pool"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// given builds a snapshot of a pool with a maximum of 4 here and at the hub.
type given struct{ pool.Snapshot }

func aPool(change ...func(*given)) pool.Snapshot {
	g := &given{pool.Snapshot{
		Now:  noon,
		Pool: pool.Pool{UID: "uid-1", MaxRunners: 4, ScaleDownDelay: 5 * time.Minute, Finalizer: true},
		Link: pool.Link{State: pool.LinkUp},
		Hub: &hubv1.PoolSnapshot{
			Revision: 7, Features: []string{hubv1.FeatureRunnerStates},
			Pool: hubv1.Pool{ID: "p1", Name: "gpu", State: hubv1.PoolActive, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4}},
		},
		AnchorUID: "anchor",
		Memory:    pool.Memory{OrphanGrace: 30 * time.Second},
	}}
	for _, c := range change {
		c(g)
	}
	return g.Snapshot
}

// with adds a runner that enrolled the given time ago, with its Pod and Secret.
func with(name string, state hubv1.RunnerState, ago time.Duration) func(*given) {
	return func(g *given) {
		key := pool.KeyPrefix("uid-1") + name
		r := hubv1.PoolRunner{ID: name, Key: key, State: state, CreatedAt: noon.Add(-ago - time.Minute)}
		phase := pool.PodPending
		if state != hubv1.RunnerStarting {
			r.EnrolledAt, phase = new(noon.Add(-ago)), pool.PodRunning
		}
		g.Hub.Runners = append(g.Hub.Runners, r)
		g.Pods = append(g.Pods, pool.Pod{Name: "pod-" + name, Key: key, RunnerID: name, Phase: phase, Anchored: true})
		g.Secrets = append(g.Secrets, pool.Secret{Name: "secret-" + name, Key: key, RunnerID: name, Owned: true})
	}
}

// withoutPod adds a runner that has neither Pod nor Secret.
func withoutPod(name string, state hubv1.RunnerState) func(*given) {
	return func(g *given) {
		g.Hub.Runners = append(g.Hub.Runners, hubv1.PoolRunner{
			ID: name, Key: pool.KeyPrefix("uid-1") + name, State: state, CreatedAt: noon.Add(-time.Hour),
		})
	}
}

func queued(n int32) func(*given)     { return func(g *given) { g.Hub.Queued = n } }
func minRunners(n int32) func(*given) { return func(g *given) { g.Pool.MinRunners = n } }
func deleting(g *given)               { g.Pool.Deleting = true }
func cordoned(g *given)               { g.Hub.Pool.Cordon = &hubv1.Cordon{Reason: "upgrade"} }
func absentLong(what string) func(*given) {
	return func(g *given) { g.Memory.Absent = map[string]time.Time{what: noon.Add(-time.Minute)} }
}
func refused(g *given) {
	g.Link = pool.Link{State: pool.LinkRefused, Reason: v1alpha1.ReasonHubRefused, Message: "revoked"}
}
func hubDown(g *given) {
	g.Link = pool.Link{State: pool.LinkDown, Reason: v1alpha1.ReasonHubUnavailable, Message: "no route", Since: noon.Add(-time.Minute)}
}
func hubAway(g *given) {
	hubDown(g)
	g.Link.Since = noon.Add(-pool.StartGrace)
}

func key(name string) string { return pool.KeyPrefix("uid-1") + name }

func TestDecide(t *testing.T) {
	ended := func(g *given) {
		code := int32(137)
		pod := &g.Pods[len(g.Pods)-1]
		pod.Phase, pod.End = pool.PodEnded, pool.End{Reason: "OOMKilled", ExitCode: &code}
	}
	for name, c := range map[string]struct {
		given pool.Snapshot
		want  string // what the plan's text contains
		not   string // what it does not
	}{
		"nothing waits":                           {aPool(), "nothing to do", ""},
		"a run waits":                             {aPool(queued(1)), "start [{Key:" + key("7-0"), ""},
		"an idle runner takes the run":            {aPool(queued(1), with("a", hubv1.RunnerIdle, time.Hour)), "nothing to do", ""},
		"runners of other clusters take it":       {aPool(queued(1), func(g *given) { g.Hub.OthersAvailable = 1 }), "nothing to do", ""},
		"an idle runner is kept beyond demand":    {aPool(minRunners(1), with("a", hubv1.RunnerBusy, time.Hour)), "start", ""},
		"the maximum holds":                       {aPool(queued(9), with("a", hubv1.RunnerBusy, 0), with("b", hubv1.RunnerBusy, 0), with("c", hubv1.RunnerBusy, 0), with("d", hubv1.RunnerBusy, 0)), "nothing to do", ""},
		"the hub's lower maximum holds":           {aPool(queued(9), func(g *given) { g.Hub.Pool.MaxRunners = 0 }), "nothing to do", ""},
		"other clusters' runners take room":       {aPool(queued(9), func(g *given) { g.Hub.Pool.Runners.Busy = 4 }), "nothing to do", ""},
		"idle for the delay":                      {aPool(with("a", hubv1.RunnerIdle, 5*time.Minute)), "retire [{RunnerID:a", ""},
		"idle for less":                           {aPool(with("a", hubv1.RunnerIdle, 4*time.Minute)), "nothing to do", ""},
		"busy ones are left":                      {aPool(cordoned, with("a", hubv1.RunnerBusy, time.Hour)), "nothing to do", ""},
		"cordoned: nothing starts":                {aPool(cordoned, queued(3), minRunners(2)), "nothing to do", ""},
		"cordoned: idle ones go":                  {aPool(cordoned, minRunners(1), with("a", hubv1.RunnerIdle, time.Hour)), "retire [{RunnerID:a", ""},
		"hub pool draining: nothing starts":       {aPool(queued(1), func(g *given) { g.Hub.Pool.State = hubv1.PoolDraining }), "nothing to do", ""},
		"minted, crashed, still wanted":           {aPool(queued(1), withoutPod("a", hubv1.RunnerStarting)), "start [{Key:" + key("a") + " Again:true", "7-0"},
		"minted, crashed, not wanted":             {aPool(withoutPod("a", hubv1.RunnerStarting)), "Why:never-started", "start ["},
		"just started, not in the cache":          {aPool(queued(1), withoutPod("a", hubv1.RunnerStarting), justStarted("a")), "nothing to do", ""},
		"just started, not at the hub":            {aPool(queued(1), justStarted("a")), "nothing to do", ""},
		"busy, its Pod gone":                      {aPool(queued(0), withoutPod("a", hubv1.RunnerBusy)), "missing [{RunnerID:a", "retire"},
		"enrolled, its Pod gone before it showed": {aPool(withoutPod("a", hubv1.RunnerBusy), justStarted("a")), "missing [{RunnerID:a", "retire"},
		"another cluster's, its Pod not here":     {aPool(func(g *given) { withoutPod("a", hubv1.RunnerBusy)(g); g.Hub.Runners[0].Key = "other-key" }), "nothing to do", ""},
		"ended":                                   {aPool(with("a", hubv1.RunnerBusy, 0), ended), "ended [{RunnerID:a", "start"},
		"ended, hub down":                         {aPool(hubDown, with("a", hubv1.RunnerBusy, 0), ended), "Tell:false", "retire"},
		"hub down: nothing else":                  {aPool(hubDown, queued(1), with("a", hubv1.RunnerIdle, time.Hour)), "nothing to do", ""},
		"invalid: nothing starts":                 {aPool(queued(1), func(g *given) { g.Problems = []string{"bad"} }), "nothing to do", ""},
		"duplicate: nothing starts":               {aPool(queued(1), func(g *given) { g.Duplicate = "other" }), "nothing to do", ""},
		"hub too old: nothing starts":             {aPool(queued(1), func(g *given) { g.Hub.Features = nil }), "nothing to do", ""},
		"retired at the hub, Pod exits soon":      {aPool(with("a", hubv1.RunnerRetired, 0)), "nothing to do", ""},
		"retired at the hub, Pod stays":           {aPool(with("a", hubv1.RunnerRetired, 0), absentLong("pod/"+key("a"))), "release [{RunnerID:a", ""},
		"a Secret without a Pod, young":           {aPool(aSecret("a")), "nothing to do", ""},
		"a Secret without a Pod":                  {aPool(aSecret("a"), absentLong("secret/"+key("a"))), "delete secrets [{Name:secret-a", ""},
		"a Secret that its Pod does not own":      {aPool(with("a", hubv1.RunnerBusy, 0), func(g *given) { g.Secrets[0].Owned = false }), "own [{Secret:secret-a Pod:pod-a", ""},
		"a Pod that the anchor does not own":      {aPool(with("a", hubv1.RunnerBusy, 0), func(g *given) { g.Pods[0].Anchored = false; g.AnchorUID = "" }), "ensure anchor; adopt [pod-a]", ""},
		"a starting Pod whose Secret is lost":     {aPool(queued(1), with("a", hubv1.RunnerStarting, 0), func(g *given) { g.Secrets = nil }, absentLong("secret-of/"+key("a"))), "SecretOnly:true", ""},
		"deleted: idle ones at once":              {aPool(deleting, with("a", hubv1.RunnerIdle, 0)), "Why:draining", "finish"},
		"deleted: busy ones finish":               {aPool(deleting, with("a", hubv1.RunnerBusy, 0)), "nothing to do", ""},
		"deleted: nothing left":                   {aPool(deleting), "finish", ""},
		"deleted by force":                        {aPool(deleting, func(g *given) { g.Pool.ForceDelete = true }, with("a", hubv1.RunnerBusy, 0)), "delete pods [{Name:pod-a", "finish"},
		"force without deletion":                  {aPool(func(g *given) { g.Pool.ForceDelete = true }, with("a", hubv1.RunnerBusy, 0)), "nothing to do", ""},
		"deleted, hub refuses: runs finish":       {aPool(deleting, refused, with("a", hubv1.RunnerBusy, 0)), "nothing to do", ""},
		"deleted, hub refuses: pending ones go":   {aPool(deleting, refused, with("a", hubv1.RunnerStarting, 0)), "OnlyPending:true", "finish"},
		"deleted, hub refuses: nothing left":      {aPool(deleting, refused), "finish", ""},
		"deleted, hub down: pending ones wait":    {aPool(deleting, hubDown, with("a", hubv1.RunnerStarting, 0)), "nothing to do", ""},
		"deleted, hub stays away: they go":        {aPool(deleting, hubAway, with("a", hubv1.RunnerStarting, 0)), "OnlyPending:true", "finish"},
		"deleted, hub stays away: runs finish":    {aPool(deleting, hubAway, with("a", hubv1.RunnerBusy, 0)), "nothing to do", ""},
		"deleted, hub stays away: nothing left":   {aPool(deleting, hubAway), "finish", ""},
		"deleted, hub not asked yet":              {aPool(deleting, func(g *given) { g.Link = pool.Link{State: pool.LinkConnecting}; g.Hub = nil }), "nothing to do", ""},
		"deleted, a minted runner without a Pod":  {aPool(deleting, withoutPod("a", hubv1.RunnerStarting)), "Why:never-started", "finish"},
	} {
		t.Run(name, func(t *testing.T) {
			got := pool.Decide(c.given).String()
			if !strings.Contains(got, c.want) || c.not != "" && strings.Contains(got, c.not) {
				t.Errorf("plan is %q, want %q and not %q", got, c.want, c.not)
			}
		})
	}
}

func justStarted(name string) func(*given) {
	return func(g *given) {
		g.Memory.Started = map[string]pool.Started{key(name): {RunnerID: name, At: noon.Add(-time.Second)}}
	}
}

func aSecret(name string) func(*given) {
	return func(g *given) {
		g.Secrets = append(g.Secrets, pool.Secret{Name: "secret-" + name, Key: key(name), RunnerID: name})
	}
}

func TestAtMostTenStartsAPass(t *testing.T) {
	s := aPool(queued(25), func(g *given) { g.Pool.MaxRunners, g.Hub.Pool.MaxRunners = 100, 100 })
	plan := pool.Decide(s)
	if len(plan.Start) != pool.MaxStarts || !plan.Wake.Equal(noon) {
		t.Errorf("%d starts, wake %v", len(plan.Start), plan.Wake)
	}
}

func TestARefusedPodHoldsStartsBack(t *testing.T) {
	refusal := &pool.Refusal{Message: "exceeded quota", RetryAt: noon.Add(10 * time.Second)}
	s := aPool(queued(4), func(g *given) { g.Memory.PodRefused = refusal })
	if plan := pool.Decide(s); len(plan.Start) != 0 || !plan.Wake.Equal(refusal.RetryAt) {
		t.Errorf("before its time: %d starts, wake %v", len(plan.Start), plan.Wake)
	}
	s.Now = refusal.RetryAt
	plan := pool.Decide(s)
	if len(plan.Start) != 1 {
		t.Errorf("after its time: %d starts, want one to try", len(plan.Start))
	}
	if c := plan.Conditions[1]; c.Reason != v1alpha1.ReasonPodRefused || !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("Degraded is %+v", c)
	}
}

func TestScaleDownLooksAgainInTime(t *testing.T) {
	plan := pool.Decide(aPool(with("a", hubv1.RunnerIdle, 2*time.Minute)))
	if want := noon.Add(3 * time.Minute); !plan.Wake.Equal(want) {
		t.Errorf("wake %v, want %v", plan.Wake, want)
	}
}

func TestConditions(t *testing.T) {
	for name, c := range map[string]struct {
		given pool.Snapshot
		ready string
	}{
		"serving":       {aPool(), "True Serving"},
		"connecting":    {aPool(func(g *given) { g.Link.State, g.Hub = pool.LinkConnecting, nil }), "Unknown Connecting"},
		"hub down":      {aPool(hubDown), "False HubUnavailable"},
		"hub refuses":   {aPool(refused), "False HubRefused"},
		"drained":       {aPool(refused, ended(true)), "False PoolRevoked"},
		"revoked":       {aPool(refused, ended(false)), "False PoolRevoked"},
		"no Secret":     {aPool(refused, ended(true), func(g *given) { g.Link.State, g.Link.Reason = pool.LinkDown, v1alpha1.ReasonCredentialUnreadable }), "False PoolRevoked"},
		"no hub":        {aPool(hubDown, ended(true)), "False HubUnavailable"},
		"invalid":       {aPool(func(g *given) { g.Problems = []string{"spec.hubURL: must be an https URL"} }), "False InvalidSpec"},
		"duplicate":     {aPool(func(g *given) { g.Duplicate = "other" }), "False DuplicatePool"},
		"too old":       {aPool(func(g *given) { g.Hub.Features = nil }), "False HubTooOld"},
		"deleting":      {aPool(deleting), "False Draining"},
		"cordoned":      {aPool(cordoned), "True Serving"},
		"mint refused":  {aPool(queued(1), func(g *given) { g.Memory.MintRefused = &pool.Refusal{Message: "at maximum"} }), "False RunnersRefused"},
		"refused, none": {aPool(func(g *given) { g.Memory.MintRefused = &pool.Refusal{Message: "at maximum"} }), "True Serving"},
	} {
		t.Run(name, func(t *testing.T) {
			ready := pool.Decide(c.given).Conditions[0]
			if got := string(ready.Status) + " " + string(ready.Reason); got != c.ready {
				t.Errorf("Ready is %s (%s), want %s", got, ready.Message, c.ready)
			}
		})
	}
}

// ended has the hub have ended the pool.
func ended(drained bool) func(*given) {
	return func(g *given) {
		state := hubv1.Pool{Name: "gpu", State: hubv1.PoolRevoked, End: &hubv1.PoolEnd{By: "sync:fleet", Reason: "pool gpu was removed from Git", Drained: drained}}
		g.Memory.Closed = pool.ClosedAs(state, nil)
	}
}

// A pool that was to go and has gone is nothing wrong, other than one whose runs
// somebody has stopped; what waits to run never will in either.
func TestARevokedPoolIsInTroubleOnlyWhereItWasNotDrained(t *testing.T) {
	for _, drained := range []bool{true, false} {
		plan := pool.Decide(aPool(refused, ended(drained), with("a", hubv1.RunnerStarting, 0), func(g *given) { g.Pods[0].Phase = pool.PodPending }))
		degraded := plan.Conditions[1]
		if got := degraded.Status == metav1.ConditionFalse; got != drained || !strings.Contains(degraded.Message, "the hub has revoked its pool gpu, because pool gpu was removed from Git: ") {
			t.Errorf("drained %v: Degraded is %+v", drained, degraded)
		}
		if len(plan.DeletePods) != 1 || !plan.DeletePods[0].OnlyPending {
			t.Errorf("drained %v: it deletes %+v", drained, plan.DeletePods)
		}
	}
	// A hub that does not say why is believed what it said before.
	said := pool.ClosedAs(hubv1.Pool{State: hubv1.PoolDraining}, nil)
	if end := pool.ClosedAs(hubv1.Pool{State: hubv1.PoolRevoked}, said); !end.Drained {
		t.Errorf("after it drained, it is %+v", end)
	}
	if end := pool.ClosedAs(hubv1.Pool{State: hubv1.PoolRevoked}, nil); end.Drained {
		t.Errorf("revoked at once, it is %+v", end)
	}
	if end := pool.ClosedAs(hubv1.Pool{State: hubv1.PoolActive}, said); end != nil {
		t.Errorf("made again, it is %+v", end)
	}
}

func TestNumbers(t *testing.T) {
	got := *pool.Decide(aPool(minRunners(1), queued(1),
		with("a", hubv1.RunnerBusy, 0), with("b", hubv1.RunnerIdle, 0), with("c", hubv1.RunnerRetiring, 0))).Numbers
	want := pool.Numbers{Desired: 3, Runners: 3, Busy: 1, Idle: 1, Queued: 1, Retiring: 1}
	if got != want {
		t.Errorf("numbers are %+v, want %+v", got, want)
	}
}

func unmarked(g *given) {
	for i := range g.Pods {
		g.Pods[i].Unmarked = true
	}
	for i := range g.Secrets {
		g.Secrets[i].Unmarked = true
	}
}

func TestMarksArePutBackOnWhatStays(t *testing.T) {
	for name, c := range map[string]struct {
		given pool.Snapshot
		want  int
	}{
		"busy":     {aPool(with("a", hubv1.RunnerBusy, 0), unmarked), 2},
		"starting": {aPool(with("a", hubv1.RunnerStarting, 0), unmarked), 2},
		"draining": {aPool(with("a", hubv1.RunnerBusy, 0), unmarked, deleting), 2},
		"ended":    {aPool(with("a", hubv1.RunnerBusy, 0), unmarked, func(g *given) { g.Pods[0].Phase = pool.PodEnded }), 0},
		"going":    {aPool(with("a", hubv1.RunnerRetiring, 0), unmarked, func(g *given) { g.Pods[0].Deleting = true }), 1},
		"orphan":   {aPool(with("a", hubv1.RunnerBusy, 0), unmarked, func(g *given) { g.Pods = nil }), 0},
		"all well": {aPool(with("a", hubv1.RunnerBusy, 0)), 0},
	} {
		if plan := pool.Decide(c.given); len(plan.Mark) != c.want || plan.Empty() && c.want > 0 {
			t.Errorf("%s: %s", name, plan)
		}
	}
}

// Somebody took every trace of its runner off a Pod, and off its Secret.
func TestAPodThatNobodyKnowsIsCleanedUp(t *testing.T) {
	unknown := func(phase pool.PodPhase) func(*given) {
		return func(g *given) {
			g.Pods = append(g.Pods, pool.Pod{Name: "x", Key: pool.Unknown("x"), Phase: phase, Anchored: true})
			g.Memory.Absent = map[string]time.Time{"pod/" + pool.Unknown("x"): noon.Add(-time.Hour)}
		}
	}
	if plan := pool.Decide(aPool(unknown(pool.PodEnded))); len(plan.Ended) != 1 || plan.Ended[0].Tell || plan.Ended[0].Pod != "x" {
		t.Errorf("ended: %s", plan)
	}
	if plan := pool.Decide(aPool(unknown(pool.PodPending))); len(plan.DeletePods) != 1 || !plan.DeletePods[0].OnlyPending {
		t.Errorf("pending: %s", plan)
	}
	if plan := pool.Decide(aPool(unknown(pool.PodRunning))); !plan.Empty() {
		t.Errorf("running: %s", plan)
	}
	if plan := pool.Decide(aPool(unknown(pool.PodRunning), deleting)); plan.Finish {
		t.Errorf("its pool goes: %s", plan)
	}
}
