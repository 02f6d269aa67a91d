package diff_test

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/schemas"
)

// inCluster is a cluster with one pool of hub pool gpu, and a PoolSync of its
// overlay.
func inCluster(t *testing.T, name, spec string, idle, busy int32) diff.LiveCluster {
	t.Helper()
	xpool, err := schemas.As[v1alpha1.ExecutorPool](document(t, "ExecutorPool", "spec: "+spec))
	if err != nil {
		t.Fatal(err)
	}
	xpool.Status = v1alpha1.ExecutorPoolStatus{Runners: idle + busy, Idle: idle, Busy: busy, Hub: &v1alpha1.HubPoolReference{Name: "gpu", MaxRunners: 8}}
	return diff.LiveCluster{Name: name, Pools: []v1alpha1.ExecutorPool{*xpool},
		Syncs: []v1alpha1.PoolSync{{Spec: v1alpha1.PoolSyncSpec{Path: "clusters/" + name, Prune: true}}}}
}

// both is a report of the hub's half and of the pools of clusters; an empty text
// is no change.
func both(t *testing.T, hub [2]string, pools map[string][2]string) *diff.Report {
	t.Helper()
	report := &diff.Report{}
	add := func(path, kind string, from, to string) {
		overlay := diff.Overlay{Path: path, Unchanged: true}
		if from != "" {
			overlay = changed(t, kind, from, to).Overlays[0]
			overlay.Path = path
		}
		report.Overlays = append(report.Overlays, overlay)
	}
	for _, name := range []string{"eu", "us"} {
		add("clusters/"+name, "ExecutorPool", pools[name][0], pools[name][1])
	}
	add("hub", "HubPool", hub[0], hub[1])
	return report
}

func impacts(report *diff.Report) (lines []string) {
	for _, overlay := range report.Overlays {
		for _, o := range overlay.Objects {
			for _, impact := range o.Impact {
				lines = append(lines, impact.Where+": "+impact.String())
			}
		}
	}
	return lines
}

// What waits at the hub is given out once, and the hub and its clusters say the
// same.
func TestImpactIsOneComputation(t *testing.T) {
	t.Parallel()
	raised := [2]string{"{minRunners: 0, maxRunners: 4}", "{minRunners: 0, maxRunners: 6}"}
	lower := [2]string{"{minRunners: 2, maxRunners: 4}", "{minRunners: 1, maxRunners: 1}"}
	for _, test := range []struct {
		name        string
		hub         [2]string
		pools       map[string][2]string
		live        string
		idle, busy  int32
		hubMaximum  int32
		queued      int32
		controllers int
		clusters    []string
		want        []string
		note        string
	}{
		{"both maxima", [2]string{"{maxRunners: 4}", "{maxRunners: 6}"}, map[string][2]string{"eu": raised}, raised[0], 0, 4, 4, 2, 1, []string{"eu"},
			[]string{"eu: retires 0 idle runners, touches 0 of 4 busy, gives 2 waiting runs a runner", "hub: retires 0 idle runners, touches 0 of 4 busy, gives 2 waiting runs a runner"}, ""},
		{"both maxima and not enough", [2]string{"{maxRunners: 4}", "{maxRunners: 5}"}, map[string][2]string{"eu": raised}, raised[0], 0, 4, 4, 2, 1, []string{"eu"},
			[]string{"eu: retires 0 idle runners, touches 0 of 4 busy, gives 1 waiting run a runner, 1 waiting run keeps waiting", "hub: retires 0 idle runners, touches 0 of 4 busy, gives 1 waiting run a runner, 1 waiting run keeps waiting"}, ""},
		{"the cluster's alone", [2]string{}, map[string][2]string{"eu": raised}, raised[0], 0, 4, 4, 2, 1, []string{"eu"},
			[]string{"eu: retires 0 idle runners, touches 0 of 4 busy, 2 waiting runs keep waiting"}, ""},
		{"two clusters race for three runs", [2]string{}, map[string][2]string{"eu": raised, "us": raised}, raised[0], 0, 4, 20, 3, 2, []string{"eu", "us"},
			[]string{"eu: about: retires 0 idle runners, touches 0 of 4 busy, gives 2 waiting runs a runner", "us: about: retires 0 idle runners, touches 0 of 4 busy, gives 1 waiting run a runner"}, ""},
		{"two clusters and the hub", [2]string{"{maxRunners: 8}", "{maxRunners: 12}"}, map[string][2]string{"eu": raised, "us": raised}, raised[0], 0, 4, 8, 5, 2, []string{"eu", "us"},
			[]string{"eu: retires 0 idle runners, touches 0 of 4 busy, gives 2 waiting runs a runner, 1 waiting run keeps waiting",
				"us: retires 0 idle runners, touches 0 of 4 busy, gives 2 waiting runs a runner, 1 waiting run keeps waiting",
				"hub: retires 0 idle runners, touches 0 of 8 busy, gives 4 waiting runs a runner, 1 waiting run keeps waiting"}, ""},
		{"all are lowered", [2]string{"{maxRunners: 8}", "{maxRunners: 2}"}, map[string][2]string{"eu": lower, "us": lower}, lower[0], 2, 0, 8, 0, 2, []string{"eu", "us"},
			[]string{"eu: retires 1 idle runner, touches 0 busy", "us: retires 1 idle runner, touches 0 busy", "hub: retires 2 idle runners, touches 0 busy"}, ""},
		{"the hub's maximum with both clusters", [2]string{"{maxRunners: 8}", "{maxRunners: 1}"}, nil, lower[0], 2, 0, 8, 0, 2, []string{"eu", "us"},
			[]string{"hub: retires 2 idle runners, touches 0 busy"}, ""},
		{"the hub's maximum with one of the clusters", [2]string{"{maxRunners: 8}", "{maxRunners: 1}"}, nil, lower[0], 2, 0, 8, 0, 2, []string{"eu"},
			[]string{"hub: about: retires 2 idle runners, touches 0 busy"}, "hub pool gpu is served by clusters that were not read"},
		{"a controller that was not read", [2]string{"{maxRunners: 8}", "{maxRunners: 1}"}, nil, lower[0], 2, 0, 8, 0, 3, []string{"eu", "us"},
			[]string{"hub: about: retires 2 idle runners, touches 0 busy"}, "hub pool gpu is served by clusters that were not read"},
		{"one of the clusters is told as much", [2]string{}, map[string][2]string{"eu": raised}, raised[0], 0, 4, 20, 3, 2, []string{"eu"},
			[]string{"eu: about: retires 0 idle runners, touches 0 of 4 busy, gives 2 waiting runs a runner, 1 waiting run keeps waiting"}, "hub pool gpu is served by clusters"},
	} {
		t.Run(test.name, func(t *testing.T) {
			hub := hubv1.Pool{Name: "gpu", State: hubv1.PoolActive, Queued: test.queued, PoolDefinition: hubv1.PoolDefinition{MaxRunners: test.hubMaximum}}
			live := diff.Live{Hub: &diff.LiveHub{}}
			for i := range test.controllers {
				hub.Controllers = append(hub.Controllers, hubv1.ControllerContact{CredentialID: string(rune('a' + i)), Connected: true})
			}
			served := int32(min(2, test.controllers)) //nolint:gosec // two clusters
			hub.Runners = hubv1.RunnerCounts{Idle: served * test.idle, Busy: served * test.busy}
			for _, name := range test.clusters {
				live.Clusters = append(live.Clusters, inCluster(t, name, test.live, test.idle, test.busy))
			}
			live.Hub.Pools = []hubv1.Pool{hub}
			report := both(t, test.hub, test.pools)
			report.AddImpact(live)
			if got := impacts(report); !slices.Equal(got, test.want) {
				t.Errorf("the impact is\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if notes := strings.Join(report.Notes, "\n"); !strings.Contains(notes, test.note) || test.note == "" && notes != "" {
				t.Errorf("notes: %s", notes)
			}
		})
	}
}

// A pool that comes takes what waits, which the others do not get too.
func TestImpactOfAPoolThatComes(t *testing.T) {
	t.Parallel()
	added, _ := diff.CompareObjects(nil, document(t, "ExecutorPool", "spec: {maxRunners: 2}"))
	report := &diff.Report{Overlays: []diff.Overlay{{Path: "clusters/eu", Objects: []diff.Object{added}}}}
	cluster := inCluster(t, "eu", "{maxRunners: 2}", 0, 0)
	cluster.Pools = nil
	report.AddImpact(diff.Live{Clusters: []diff.LiveCluster{cluster}, Hub: &diff.LiveHub{Pools: []hubv1.Pool{{
		Name: "gpu", State: hubv1.PoolActive, Queued: 3, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 8},
	}}}})
	if got := impacts(report); !slices.Equal(got, []string{"eu: about: retires 0 idle runners, touches 0 busy, gives 2 waiting runs a runner, 1 waiting run keeps waiting"}) {
		t.Error(got)
	}
}

// The hub renames a pool whose document says what it was: nothing of it ends, and what
// serves it under either name is one.
func TestImpactOfARenamedHubPool(t *testing.T) {
	t.Parallel()
	renamed := func(spec string) *diff.Report {
		was, now := document(t, "HubPool", "spec: {maxRunners: 8, deletionPolicy: Revoke}"), document(t, "HubPool", "spec: "+spec)
		now.SetName("big")
		now.SetAnnotations(map[string]string{v1alpha1.AnnotationMovedFrom: was.GetName()})
		objects, notes := diff.Pairs([]*unstructured.Unstructured{was}, []*unstructured.Unstructured{now})
		if len(objects) != 1 || len(notes) > 0 {
			t.Fatalf("%+v, %q", objects, notes)
		}
		return &diff.Report{Overlays: []diff.Overlay{{Path: "hub", Objects: objects}}}
	}
	pool := hubv1.Pool{Name: "gpu", State: hubv1.PoolActive, Queued: 2, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 8}, Runners: hubv1.RunnerCounts{Idle: 2},
		Controllers: []hubv1.ControllerContact{{CredentialID: "a", Connected: true}}}
	done := pool
	done.Name = "big"
	for name, test := range map[string]struct {
		spec string
		hub  hubv1.Pool
		want string
	}{
		"renamed":            {"{maxRunners: 8}", pool, "hub: retires 0 idle runners, touches 0 busy"},
		"renamed, lowered":   {"{maxRunners: 1}", pool, "hub: retires 1 idle runner, touches 0 busy, 1 waiting run keeps waiting"},
		"renamed by now":     {"{maxRunners: 8}", done, "hub: retires 0 idle runners, touches 0 busy"},
		"pushed, is revoked": {"{maxRunners: 8, hub: {url: 'https://h'}}", pool, "hub: retires 2 idle runners, touches 0 busy, cancels 2 waiting runs"},
	} {
		t.Run(name, func(t *testing.T) {
			report := renamed(test.spec)
			report.AddImpact(diff.Live{Hub: &diff.LiveHub{Pools: []hubv1.Pool{test.hub}}, Clusters: []diff.LiveCluster{inCluster(t, "eu", "{maxRunners: 8}", 2, 0)}})
			if got := impacts(report); !slices.Equal(got, []string{test.want}) {
				t.Errorf("the impact is %q, want %q; notes: %q", got, test.want, report.Notes)
			}
		})
	}
}
