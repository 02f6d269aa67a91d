package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"cloop.dev/cloop/internal/dev"
)

// finalState is what hub and cluster hold once the story has been told, however
// often a part was killed on the way.
const finalState = `hub pool agents active from "hub/agents.yaml" cordon false queued 0 idle 1 busy 0 starting 0 retiring 0: {"maxRunners":4,"labels":{"team":"platform"},"harness":"command","deletionPolicy":"Orphan"}
hub project app at PROJECT bound to a pool that is gone
hub sync fleet ready, up to date true, pools [agents]
hub run ["./check"] succeeded exit code 0
hub run ["./check"] succeeded exit code 0
hub run ["./check" "0" "3"] failed exit code 3
hub run ["./check" "4"] succeeded exit code 0
cluster pool cloop-pools/agents ready true runners 1 idle 1 busy 0: {"hubURL":"HUB","hubCAPin":"PIN","poolCredentialSecretRef":{"name":"agents-pool-credential","key":"credential"},"minRunners":1,"maxRunners":4,"scaleDownDelay":"1m0s"}
cluster pool cloop-pools/agents has 1 in its *v1.PodList
cluster pool cloop-pools/agents has 1 in its *v1.SecretList
cluster pool cloop-pools/agents has 1 in its *v1.ConfigMapList
cluster runner Pods 1
cluster sync cloop-fleet/fleet ready true, up to date true
cluster sync cloop-fleet/fleet applied ExecutorPool cloop-pools/agents
cluster sync cloop-fleet/fleet applied ResourceQuota cloop-pools/runners
`

func TestStory(t *testing.T) {
	system := up(t)
	story := dev.Story{System: system, Done: log(t)}
	if err := story.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectFinalState(t, system)
	// A second up finds everything running and changes nothing.
	before, err := dev.Status(system.Dir)
	if err != nil {
		t.Fatal(err)
	}
	executable, _ := binary()
	if _, err := dev.Up(t.Context(), dev.Options{Dir: system.Dir, Executable: executable, Progress: testWriter{t}}); err != nil {
		t.Fatalf("a second up: %v", err)
	}
	after, err := dev.Status(system.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(before) != fmt.Sprint(after) {
		t.Errorf("a second up changed the processes:\n%v\n%v", before, after)
	}
	expectFinalState(t, system)
	expectNoCredentials(t, system)
}

// TestStoryWithCrashes kills a part at a random moment of every step, and
// starts it again. CLOOP_SEED replays one sequence.
func TestStoryWithCrashes(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if given := os.Getenv("CLOOP_SEED"); given != "" {
		var err error
		if seed, err = strconv.ParseUint(given, 10, 64); err != nil {
			t.Fatalf("CLOOP_SEED: %v", err)
		}
	}
	t.Logf("replay with CLOOP_SEED=%d", seed)
	system := up(t)
	crashes := newCrashes(t, system, seed)
	story := dev.Story{System: system, Begin: crashes.begin, Done: log(t), StepTimeout: 3 * time.Minute}
	err := story.Run(t.Context())
	crashes.wait()
	if err != nil {
		t.Fatalf("with CLOOP_SEED=%d: %v", seed, err)
	}
	if crashes.happened == 0 {
		t.Error("no crash happened")
	}
	expectFinalState(t, system)
}

// expectFinalState waits for quiet, since a part that was killed may still be
// catching up.
func expectFinalState(t *testing.T, system *dev.System) {
	t.Helper()
	var dump string
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 90*time.Second, true, func(ctx context.Context) (bool, error) {
		got, err := system.Dump(ctx)
		if err == nil {
			dump = got
		}
		return dump == finalState, nil
	})
	if err != nil {
		t.Errorf("the final state is\n%s\nwant\n%s", dump, finalState)
	}
}

// runnerVictim stands for a runner among the victims.
const runnerVictim = "a runner"

// crashes decides from a seed which part dies when.
type crashes struct {
	t        *testing.T
	system   *dev.System
	random   *rand.Rand
	pending  sync.WaitGroup
	mu       sync.Mutex // guards happened, and orders the crashes
	happened int
}

func newCrashes(t *testing.T, system *dev.System, seed uint64) *crashes {
	return &crashes{t: t, system: system, random: rand.New(rand.NewPCG(seed, 0))}
}

func (c *crashes) begin(step string) {
	victims := dev.Crashable()
	// A runner that dies after its pool was removed takes the run with it: no
	// pool is left to start it again. That is the one step that spares it.
	if steps := dev.Steps(); step != steps[len(steps)-1] {
		victims = append(slices.Clone(victims), runnerVictim)
	}
	victim := victims[c.random.IntN(len(victims))]
	after := time.Duration(c.random.IntN(2000)) * time.Millisecond
	back := time.Duration(c.random.IntN(1000)) * time.Millisecond
	c.t.Logf("step %q: %s dies after %v", step, victim, after)
	c.pending.Go(func() {
		timer := time.NewTimer(after)
		defer timer.Stop()
		select {
		case <-c.t.Context().Done():
			return
		case <-timer.C:
		}
		if err := c.crash(victim, back); err != nil {
			c.t.Errorf("crash %s: %v", victim, err)
		}
	})
}

// crash kills the victim and has it back a while later. A runner is brought
// back by the controller. Crashes of two steps that meet happen one after the
// other, so that the victim is there to be killed.
func (c *crashes) crash(victim string, back time.Duration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	died := true
	var err error
	if victim == runnerVictim {
		died, err = c.system.KillRunner()
	} else if err = c.system.Kill(victim); err == nil {
		timer := time.NewTimer(back)
		defer timer.Stop()
		<-timer.C
		err = c.system.Start(victim)
	}
	if died && err == nil {
		c.happened++
	}
	return err
}

func (c *crashes) wait() { c.pending.Wait() }
