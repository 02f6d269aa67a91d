package pool_test

import (
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/pool"
)

func outdated(g *given) {
	for i := range g.Pods {
		g.Pods[i].Outdated = true
	}
}

func TestOnlyPodsThatNeverRanAreReplacedWhenTheTemplateChanges(t *testing.T) {
	all := []func(*given){with("a", hubv1.RunnerStarting, 0), with("b", hubv1.RunnerIdle, 0), with("c", hubv1.RunnerBusy, 0), queued(1), outdated}
	plan := pool.Decide(aPool(all...))
	if len(plan.Retire) != 1 || plan.Retire[0].RunnerID != "a" || plan.Retire[0].Why != pool.WhyOutdated {
		t.Errorf("retires %+v", plan.Retire)
	}
	for what, change := range map[string]func(*given){
		"whose Pod has begun to run": func(g *given) { g.Pods[0].Phase = pool.PodRunning },
		"while Pods are refused":     func(g *given) { g.Memory.PodRefused = &pool.Refusal{Message: "quota", RetryAt: noon.Add(time.Hour)} },
		"while the spec is invalid":  func(g *given) { g.Problems = []string{"no"} },
		"of a cordoned pool":         cordoned,
		"of the same template":       func(g *given) { g.Pods[0].Outdated = false },
	} {
		if plan := pool.Decide(aPool(append(all, change)...)); len(plan.Retire) != 0 {
			t.Errorf("%s: retires %+v", what, plan.Retire)
		}
	}
}

func TestAPodThatDoesNotComeUpIsSaid(t *testing.T) {
	waits := func(ago time.Duration) pool.Snapshot {
		return aPool(with("a", hubv1.RunnerStarting, 0), queued(1), func(g *given) {
			g.Pods[0].Stuck, g.Pods[0].Created = "no node takes Pod a", noon.Add(-ago)
		})
	}
	plan := pool.Decide(waits(time.Minute))
	if plan.Stuck != "" || !plan.Wake.Equal(noon.Add(pool.StuckGrace-time.Minute)) || plan.Conditions[0].Status != "True" {
		t.Errorf("at first: %q, wake %s, %+v", plan.Stuck, plan.Wake, plan.Conditions[0])
	}
	plan = pool.Decide(waits(pool.StuckGrace))
	for _, c := range plan.Conditions[:2] {
		if c.Reason != v1alpha1.ReasonPodStuck || !strings.Contains(c.Message, "no node takes Pod a") {
			t.Errorf("after its time: %+v", c)
		}
	}
	if plan.Stuck == "" {
		t.Error("nothing to say in an Event")
	}
}
