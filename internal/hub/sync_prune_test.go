package hub_test

import (
	"fmt"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/hub"
)

// states counts the pools by state; "" counts those that are nobody's.
func (f *following) states() map[hubv1.PoolState]int {
	f.t.Helper()
	pools, err := f.admin.ListAllPools(f.ctx())
	check(f.t, err)
	out := map[hubv1.PoolState]int{}
	for _, pool := range pools {
		out[pool.State]++
		if pool.Source == nil {
			out[""]++
		}
	}
	return out
}

func TestACommitThatRemovesManyPoolsWaitsForAYes(t *testing.T) {
	f := follow(t, func(c *hub.SyncConfig) { c.PruneLimit = nil }) // the default
	f.untilSynced()
	files, names := map[string]string{}, []string{"keep.yaml"}
	for i := range 20 {
		file := fmt.Sprintf("p%d.yaml", i)
		files["hub/"+file] = hubPool(fmt.Sprint("p", i), 1, []string{"Revoke", "Orphan"}[i%2], "")
		names = append(names, file)
	}
	files["hub/kustomization.yaml"] = kustomization(append(names, "demo.yaml")...)
	f.synced(f.commit(files), hubv1.SyncReady)

	gone := map[string]string{"hub/kustomization.yaml": kustomization("keep.yaml")}
	for file := range files {
		if file != "hub/kustomization.yaml" {
			gone[file] = fleettest.Removed
		}
	}
	revision := f.commit(gone)
	sync := f.synced(revision, hubv1.SyncFailed)
	command := "cloop hub sync approve-prune fleet --revision " + revision
	if w := sync.PruneWaits; w == nil || w.Revision != revision || len(w.Pools) != 21 || w.Of != 22 || sync.LastAppliedRevision == revision {
		t.Fatalf("the sync is %+v", sync)
	}
	if !strings.Contains(sync.Message, "it lacks 21 of 22 pools, and one sync prunes at most 5 and 20%: demo, p0") || !strings.HasSuffix(sync.Message, command) {
		t.Fatalf("the sync says %q", sync.Message)
	}
	if now := f.states(); now[hubv1.PoolActive] != 22 || now[""] > 0 {
		t.Fatalf("the pools are %v", now)
	}
	diagnosis, err := f.admin.Doctor(f.ctx())
	check(t, err)
	if worst := diagnosis.Findings[0]; worst.ID != hubv1.FindingSyncsPrune || worst.About != "fleet" || !strings.Contains(worst.Found, command) {
		t.Fatalf("the doctor says %+v", worst)
	}
	if drift := f.get("demo").Drift; len(drift) != 1 || !strings.Contains(drift[0].Message, command) {
		t.Fatalf("the pool drifts in %+v", drift)
	}
	if page := f.page("/metrics"); !strings.Contains(page, `cloop_hub_doctor_findings{finding="syncs.prune",severity="fail"} 1`) {
		t.Error("no metric shows it")
	}
	_, err = f.admin.ApprovePrune(f.ctx(), "fleet", revision[:12])
	wantCode(t, err, hubv1.CodeConflict)
	_, err = f.admin.ApprovePrune(f.ctx(), "other", revision)
	wantCode(t, err, hubv1.CodeNotFound)

	must(t)(f.admin.ApprovePrune(f.ctx(), "fleet", revision))
	f.untilSynced()
	if now := f.states(); now[hubv1.PoolRevoked] != 11 || now[hubv1.PoolActive] != 11 || now[""] != 10 {
		t.Fatalf("the pools are %v", now)
	}
	page, err := f.admin.Audit(f.ctx(), hubv1.AuditQuery{Action: "sync.approve_prune"})
	check(t, err)
	if rows := page.Items; len(rows) != 1 || rows[0].Actor != "user:admin" || !strings.Contains(rows[0].Detail, revision) {
		t.Fatalf("the trail has %+v", rows)
	}
}

// What waits is Git's to take back.
func TestAWithdrawnRemovalWaitsForNothing(t *testing.T) {
	f := follow(t, func(c *hub.SyncConfig) { c.PruneLimit = nil })
	f.untilSynced()
	f.synced(f.commit(map[string]string{"hub/kustomization.yaml": kustomization("keep.yaml")}), hubv1.SyncFailed)
	sync := f.synced(f.commit(map[string]string{"hub/kustomization.yaml": kustomization("keep.yaml", "demo.yaml")}), hubv1.SyncReady)
	if sync.PruneWaits != nil || len(f.get("demo").Drift) > 0 {
		t.Fatalf("the sync is %+v, the pool drifts in %+v", sync, f.get("demo").Drift)
	}
}
