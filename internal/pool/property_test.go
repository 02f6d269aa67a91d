package pool_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/pool"
)

// Invariants 5 and 7: whatever is lost, late or dies, no busy runner's Pod is
// deleted (the world fails the test if it is), the hub's maximum holds, and
// after quiet every Pod has its Secret and its runner, and nothing else is
// left.
func TestQuietLeavesNothingOver(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minRunners := rapid.Int32Range(0, 3).Draw(t, "min")
		w := newWorld(t, minRunners, minRunners+rapid.Int32Range(0, 6).Draw(t, "above"), rapid.Int32Range(0, 8).Draw(t, "hub max"))
		t.Repeat(faults(w))
		w.cordoned = false
		// The hub drops what it knows of lost runners in its own time.
		w.settle(400)
		checkNothingOver(t, w)
		if w.spec.Deleting && !w.gone {
			t.Fatalf("the pool is not drained: %s", pool.Decide(w.snapshot()))
		}
		if !w.spec.Deleting && w.queued > 0 && min(w.max, w.spec.MaxRunners) > 0 {
			t.Fatalf("%d runs still wait", w.queued)
		}
	})
}

// No over-creation: N runs, however slow the caches and whenever the process
// dies, get exactly N runners and N Pods.
func TestEveryRunGetsOneRunner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int32Range(1, 25).Draw(t, "runs")
		w := newWorld(t, 0, 100, 100)
		w.queued = n
		w.changed()
		t.Repeat(map[string]func(*rapid.T){
			"see hub":     func(*rapid.T) { w.refreshHub() },
			"see pods":    func(*rapid.T) { w.refreshPods() },
			"see secrets": func(*rapid.T) { w.refreshSecrets() },
			"reconcile":   func(*rapid.T) { w.reconcile(-1) },
			"die":         func(t *rapid.T) { w.reconcile(rapid.IntRange(0, 12).Draw(t, "steps")) },
			"lose a mint": func(*rapid.T) { w.loseMint = true },
			"tick":        func(*rapid.T) { w.tick(100 * time.Millisecond) },
			"": func(t *rapid.T) {
				if w.minted > int(n) || w.created > int(n) {
					t.Fatalf("%d runs made %d runners and %d Pods", n, w.minted, w.created)
				}
			},
		})
		w.settle(200)
		if w.minted != int(n) || w.created != int(n) {
			t.Fatalf("%d runs made %d runners and %d Pods", n, w.minted, w.created)
		}
		checkNothingOver(t, w)
	})
}

// faults are the turns that a world can take.
func faults(w *world) map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"see hub":     func(*rapid.T) { w.refreshHub() },
		"see pods":    func(*rapid.T) { w.refreshPods() },
		"see secrets": func(*rapid.T) { w.refreshSecrets() },
		"see all":     func(*rapid.T) { w.refresh() },
		"reconcile":   func(*rapid.T) { w.reconcile(-1) },
		"die":         func(t *rapid.T) { w.reconcile(rapid.IntRange(0, 12).Draw(t, "steps")) },
		"lose a mint": func(*rapid.T) { w.loseMint = true },
		"restart":     func(*rapid.T) { w.restart() },
		"run waits":   func(*rapid.T) { w.queued++; w.changed() },
		"run cancelled": func(*rapid.T) {
			if w.queued > 0 {
				w.queued--
				w.changed()
			}
		},
		"pod starts": onPod(w, func(_ *rapid.T, p *simPod) { w.run(p) }),
		"pod crashes": onPod(w, func(_ *rapid.T, p *simPod) {
			if p.Phase == pool.PodRunning {
				w.end(p, 137)
			}
		}),
		"pod vanishes": onPod(w, func(_ *rapid.T, p *simPod) { delete(w.pods, p.Name) }),
		"secret vanishes": onPod(w, func(_ *rapid.T, p *simPod) {
			delete(w.secrets, secretName(p.Key))
		}),
		"hand-off": onRunner(w, w.handOff),
		"finish":   onRunner(w, w.finish),
		"exit":     onRunner(w, w.exit),
		"tick":     func(t *rapid.T) { w.tick(time.Duration(rapid.IntRange(1, 90).Draw(t, "seconds")) * time.Second) },
		"link": func(t *rapid.T) {
			w.link = rapid.SampledFrom([]pool.LinkState{pool.LinkUp, pool.LinkDown, pool.LinkConnecting}).Draw(t, "link")
		},
		"hub max": func(t *rapid.T) { w.max = rapid.Int32Range(0, 8).Draw(t, "max"); w.changed() },
		"cordon":  func(*rapid.T) { w.cordoned = !w.cordoned; w.changed() },
		"delete": func(t *rapid.T) {
			if rapid.IntRange(0, 9).Draw(t, "really") == 0 {
				w.spec.Deleting = true
			}
		},
		"anchor vanishes": func(*rapid.T) {
			w.anchor = false
			for _, p := range w.pods {
				p.Anchored = false
			}
		},
	}
}

func onPod(w *world, act func(*rapid.T, *simPod)) func(*rapid.T) {
	return func(t *rapid.T) {
		if pods := w.podsInOrder(); len(pods) > 0 {
			act(t, rapid.SampledFrom(pods).Draw(t, "pod"))
		}
	}
}

func onRunner(w *world, act func(*simRunner)) func(*rapid.T) {
	return func(t *rapid.T) {
		if runners := w.runnersInOrder(); len(runners) > 0 {
			act(rapid.SampledFrom(runners).Draw(t, "runner"))
		}
	}
}

// checkNothingOver compares Pods, Secrets and runners key by key.
func checkNothingOver(t *rapid.T, w *world) {
	t.Helper()
	var runners, pods, secrets []string
	for _, r := range w.runners {
		if r.State != hubv1.RunnerRetired {
			runners = append(runners, r.Key)
		}
	}
	for _, p := range w.pods {
		pods = append(pods, p.Key)
	}
	for _, s := range w.secrets {
		secrets = append(secrets, s.Key)
	}
	slices.Sort(runners)
	slices.Sort(pods)
	slices.Sort(secrets)
	if !slices.Equal(pods, runners) {
		t.Fatalf("Pods %v, runners %v, plan %s", pods, runners, pool.Decide(w.snapshot()))
	}
	// An enrolled runner needs its Secret no more, so one that is lost is not
	// made again; every Secret that is left belongs to a Pod.
	for _, key := range secrets {
		if !slices.Contains(pods, key) {
			t.Fatalf("Secret of %s has no Pod; Pods %v", key, slices.Collect(maps.Keys(w.pods)))
		}
	}
	want := w.spec.MinRunners
	if w.spec.Deleting {
		want = 0
	}
	if got := int32(len(runners)); got != min(want, w.max) {
		t.Fatalf("%d runners are left, want %d (hub max %d): %s", got, want, w.max, pool.Decide(w.snapshot()))
	}
	if w.gone && w.anchor {
		t.Fatalf("the anchor is left")
	}
}
