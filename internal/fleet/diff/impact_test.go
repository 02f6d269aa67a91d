package diff_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/schemas"
)

// liveScene is one pool in one cluster, and at the hub.
func liveScene(t *testing.T, spec string, status v1alpha1.ExecutorPoolStatus, hub hubv1.Pool) diff.Live {
	t.Helper()
	xpool, err := schemas.As[v1alpha1.ExecutorPool](document(t, "ExecutorPool", spec))
	if err != nil {
		t.Fatal(err)
	}
	xpool.Status = status
	hub.Name, hub.State = "gpu", hubv1.PoolActive
	return diff.Live{
		Hub: &diff.LiveHub{Pools: []hubv1.Pool{hub}},
		Clusters: []diff.LiveCluster{{Name: "eu", Pools: []v1alpha1.ExecutorPool{*xpool},
			Syncs: []v1alpha1.PoolSync{{Spec: v1alpha1.PoolSyncSpec{Path: "./clusters/eu", Prune: true}}}}},
	}
}

func TestImpact(t *testing.T) {
	t.Parallel()
	const pool, hub = "ExecutorPool", "HubPool"
	status := v1alpha1.ExecutorPoolStatus{Runners: 6, Idle: 4, Busy: 2, Volumes: 5,
		Hub: &v1alpha1.HubPoolReference{ID: "p1", Name: "gpu", MaxRunners: 10}}
	atHub := hubv1.Pool{PoolDefinition: hubv1.PoolDefinition{MaxRunners: 10}, Runners: hubv1.RunnerCounts{Idle: 4, Busy: 2}}
	full := v1alpha1.ExecutorPoolStatus{Runners: 2, Busy: 2, Queued: 3, Hub: status.Hub}
	fullHub := hubv1.Pool{PoolDefinition: hubv1.PoolDefinition{MaxRunners: 10}, Runners: hubv1.RunnerCounts{Busy: 2}, Queued: 3}
	base := "{minRunners: 4, maxRunners: 8}"
	volumes := "{minRunners: 4, maxRunners: 8, persistence: {enabled: true, size: 1Gi}}"
	for _, test := range []struct {
		name, kind, from, to string
		live                 string // the ExecutorPool that there is; empty: from
		status               v1alpha1.ExecutorPoolStatus
		hub                  hubv1.Pool
		want                 string
	}{
		{"a cluster's maximum below what there is", pool, base, "{minRunners: 0, maxRunners: 3}", "", status, atHub, "eu: retires 4 idle runners, touches 0 of 2 busy"},
		{"a cluster's maximum with room for one idle", pool, base, "{minRunners: 4, maxRunners: 3}", "", status, atHub, "eu: retires 3 idle runners, touches 0 of 2 busy"},
		{"fewer kept idle", pool, base, "{minRunners: 1, maxRunners: 8}", "", status, atHub, "eu: retires 3 idle runners, touches 0 of 2 busy"},
		{"a label", pool, base, "{minRunners: 4, maxRunners: 8, runnerLabels: {a: b}}", "", status, atHub, "eu: retires 0 idle runners, touches 0 of 2 busy"},
		{"waiting runs go on waiting", pool, "{maxRunners: 2}", "{maxRunners: 2, runnerLabels: {a: b}}", "", full, fullHub, "eu: retires 0 idle runners, touches 0 of 2 busy, 3 waiting runs keep waiting"},
		{"room for two of them", pool, "{maxRunners: 2}", "{maxRunners: 4}", "", full, fullHub, "eu: retires 0 idle runners, touches 0 of 2 busy, gives 2 waiting runs a runner, 1 waiting run keeps waiting"},
		{"fewer volumes", pool, volumes, strings.Replace(volumes, "8", "4", 1), "", status, atHub, "eu: retires 2 idle runners, touches 0 of 2 busy, releases 1 volume and deletes it"},
		{"no volumes", pool, volumes, base, "", status, atHub, "eu: retires 0 idle runners, touches 0 of 2 busy, releases 5 volumes and deletes them"},
		{"volumes retained", pool, strings.Replace(volumes, "1Gi", "1Gi, reclaimPolicy: Retain", 1), strings.Replace(volumes, "true, size: 1Gi", "false, reclaimPolicy: Retain", 1), "", status, atHub, "eu: retires 0 idle runners, touches 0 of 2 busy, releases 5 volumes and keeps them"},
		{"what lives is as the head already", pool, base, "{minRunners: 1, maxRunners: 8}", "{minRunners: 1, maxRunners: 8}", status, atHub, "eu: retires 0 idle runners, touches 0 of 2 busy"},
		{"the pool goes", pool, volumes, "", "", status, atHub, "eu: retires 4 idle runners, touches 0 of 2 busy, releases 5 volumes and deletes them"},

		{"the hub's maximum", hub, "{maxRunners: 10}", "{maxRunners: 3}", base, status, atHub, "hub: retires 3 idle runners, touches 0 of 2 busy"},
		{"the hub's audience", hub, "{maxRunners: 10}", "{maxRunners: 10, audience: ['user:a']}", base, status, atHub, "hub: retires 0 idle runners, touches 0 of 2 busy"},
		{"a cordon", hub, "{maxRunners: 10}", "{maxRunners: 10, cordon: {reason: x}}", base, full, fullHub, "hub: retires 0 idle runners, touches 0 of 2 busy, 3 waiting runs keep waiting"},
		{"a cordon over idle ones", hub, "{maxRunners: 10}", "{maxRunners: 10, cordon: {reason: x}}", base, status, atHub, "hub: retires 4 idle runners, touches 0 of 2 busy"},
		{"the hub's half goes", hub, "{maxRunners: 10}", "", "{maxRunners: 2}", full, fullHub, "hub: retires 0 idle runners, touches 0 of 2 busy, 3 waiting runs keep waiting"},
		{"the hub's half goes and is revoked", hub, "{maxRunners: 10, deletionPolicy: Revoke}", "", base, full, fullHub, "hub: retires 0 idle runners, touches 0 of 2 busy, cancels 3 waiting runs"},
	} {
		t.Run(test.name, func(t *testing.T) {
			lives := test.live
			if lives == "" {
				lives = test.from
			}
			report := changed(t, test.kind, test.from, test.to)
			report.AddImpact(liveScene(t, "spec: "+lives, test.status, test.hub))
			got := []string{}
			for _, impact := range report.Overlays[0].Objects[0].Impact {
				got = append(got, impact.Where+": "+impact.String())
			}
			if len(got) != 1 || got[0] != test.want {
				t.Errorf("the impact is %q, want %q; notes: %v", got, test.want, report.Notes)
			}
		})
	}
}

// changed is a report of one object in clusters/eu.
func changed(t *testing.T, kind, from, to string) *diff.Report {
	t.Helper()
	now := document(t, kind, "spec: "+to)
	if to == "" {
		now = nil
	}
	o, differs := diff.CompareObjects(document(t, kind, "spec: "+from), now)
	if !differs {
		t.Fatal("there is no difference")
	}
	return &diff.Report{Overlays: []diff.Overlay{{Path: "clusters/eu", Objects: []diff.Object{o}}}}
}

func TestImpactSaysWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	status := v1alpha1.ExecutorPoolStatus{Runners: 4, Idle: 4, Hub: &v1alpha1.HubPoolReference{Name: "gpu", MaxRunners: 10}}
	live := func() diff.Live {
		return liveScene(t, "spec: {minRunners: 4, maxRunners: 8}", status, hubv1.Pool{PoolDefinition: hubv1.PoolDefinition{MaxRunners: 10}})
	}
	for _, test := range []struct {
		name, kind string
		change     func(*diff.Live)
		impact     string
		note       string
	}{
		{"no hub", "ExecutorPool", func(l *diff.Live) { l.Hub = nil; l.Notes = []string{"the hub could not be read: no token"} }, "about: retires 2 idle runners, touches 0 busy", "the hub could not be read: no token"},
		{"no syncs", "ExecutorPool", func(l *diff.Live) { l.Clusters[0].Syncs, l.Clusters[0].Name = nil, "other" }, "about: retires 2 idle runners, touches 0 busy", "which root cluster other applies is not known"},
		{"another overlay's cluster", "ExecutorPool", func(l *diff.Live) {
			l.Clusters[0].Syncs[0].Spec.Path = "clusters/us"
			l.Clusters[0].Pools[0].Labels = map[string]string{v1alpha1.LabelPoolSyncName: "us"}
		}, "", ""},
		{"not there yet", "ExecutorPool", func(l *diff.Live) { l.Clusters[0].Pools = nil }, "", "cluster eu does not have pools/gpu yet"},
		{"nothing was asked", "ExecutorPool", func(l *diff.Live) { *l = diff.Live{} }, "", ""},
		{"no cluster", "HubPool", func(l *diff.Live) { l.Clusters = nil; l.Hub.Pools[0].Runners.Idle = 4; l.Hub.Pools[0].Runners.Busy = 4 }, "about: retires 4 idle runners, touches 0 of 4 busy", ""},
		{"not at the hub", "HubPool", func(l *diff.Live) { l.Hub.Pools = nil }, "", "the hub does not have pool gpu"},
		{"only a cluster", "HubPool", func(l *diff.Live) { l.Hub = nil }, "about: retires 2 idle runners, touches 0 busy", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			report := changed(t, test.kind, "{minRunners: 4, maxRunners: 8}", "{minRunners: 2, maxRunners: 2}")
			l := live()
			test.change(&l)
			report.AddImpact(l)
			got := ""
			for _, impact := range report.Overlays[0].Objects[0].Impact {
				got += impact.String()
			}
			notes := strings.Join(report.Notes, "\n")
			if got != test.impact || !strings.Contains(notes, test.note) || test.note == "" && notes != "" {
				t.Errorf("the impact is %q, want %q; notes: %q, want %q", got, test.impact, notes, test.note)
			}
		})
	}
}
