package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/prunelimit"
	"cloop.dev/cloop/internal/hub/store"
)

// pruning is a world whose sync "fleet" has ten pools, half of each policy, and may
// remove two at once.
type pruning struct {
	*world
	t     *testing.T
	sync  hubv1.Sync
	limit prunelimit.Limit
}

func newPruning(t *testing.T) *pruning {
	p := &pruning{world: newWorld(t, 1), t: t, sync: hubv1.Sync{Name: "fleet", Repository: "https://git.example.com/fleet", Path: "hub"}, limit: prunelimit.Limit{Count: 2}}
	check(t, p.s.KeepSyncs(background, []hubv1.Sync{p.sync}))
	if applied := p.commit("r1", 0); len(applied.Created) != 10 {
		t.Fatalf("made %v", applied.Created)
	}
	return p
}

// commit applies a revision without the first pools, as a sync does.
func (p *pruning) commit(revision string, without int) store.Applied {
	p.t.Helper()
	var documents []store.PoolDocument
	for i := without; i < 10; i++ {
		documents = append(documents, written("fleet", fmt.Sprint("pool-", i), 1, []string{"Orphan", "Revoke"}[i%2]))
	}
	applied, err := p.s.ApplyDocuments(background, store.Revision{Sync: "fleet", Commit: revision, Limit: &p.limit}, documents)
	check(p.t, err)
	p.sync.State, p.sync.PruneWaits = hubv1.SyncReady, applied.PruneWaits
	check(p.t, p.s.SaveSync(background, p.sync))
	return applied
}

func (p *pruning) owned() (names []string) {
	p.t.Helper()
	pools, err := p.s.ListPools(background, false)
	check(p.t, err)
	for _, pool := range pools {
		if pool.Source != nil && pool.State == hubv1.PoolActive {
			names = append(names, pool.Name)
		}
	}
	return names
}

func (p *pruning) approve(revision string) error {
	return errOf(p.s.ApprovePrune(background, admin, "", "fleet", hubv1.ApprovePruneRequest{Revision: revision}))
}

func TestMoreThanTheLimitGoesOnlyWhenSomebodySaysSo(t *testing.T) {
	both(t, testMoreThanTheLimitGoesOnlyWhenSomebodySaysSo)
}

func testMoreThanTheLimitGoesOnlyWhenSomebodySaysSo(t *testing.T) {
	p := newPruning(t)
	if err := p.approve("r2"); codeOf(err) != hubv1.CodeConflict {
		t.Fatalf("before anything waits: %v", err)
	}
	for _, revision := range []string{"r2", "r2", "r3"} {
		applied := p.commit(revision, 3)
		want := hubv1.PruneWaits{Revision: revision, Pools: []string{"pool-0", "pool-1", "pool-2"}, Of: 10}
		if w := applied.PruneWaits; w == nil || w.Revision != want.Revision || !slices.Equal(w.Pools, want.Pools) || w.Of != want.Of || len(applied.Draining)+len(applied.Orphaned) > 0 {
			t.Fatalf("%s comes to %+v", revision, applied)
		}
		if owned := p.owned(); len(owned) != 10 {
			t.Fatalf("at %s the sync has %v", revision, owned)
		}
	}
	drift := p.poolOf(t, "pool-1").Drift
	if len(drift) != 1 || drift[0].Cause != hubv1.CauseCommitNotApplied || !strings.Contains(drift[0].Message, "cloop hub sync approve-prune fleet --revision r3") {
		t.Fatalf("the pool drifts in %+v", drift)
	}
	// A yes to what was there before is none to what came since.
	if err := p.approve("r2"); codeOf(err) != hubv1.CodeConflict || !strings.Contains(err.Error(), "r3") {
		t.Fatalf("approved of another commit: %v", err)
	}
	check(t, p.approve("r3"))
	check(t, p.approve("r3")) // repeated
	if rows := p.audited(t, "fleet", store.ActionSyncApprovePrune); len(rows) != 1 {
		t.Fatalf("the trail has %v", rows)
	}
	if applied := p.commit("r4", 3); applied.PruneWaits == nil {
		t.Fatal("the next commit went with the yes to the one before")
	}
	check(t, p.approve("r4"))
	applied := p.commit("r4", 3)
	if applied.PruneWaits != nil || !slices.Equal(applied.Draining, []string{"pool-1"}) || !slices.Equal(applied.Orphaned, []string{"pool-0", "pool-2"}) {
		t.Fatalf("approved, it comes to %+v", applied)
	}
	// The yes is used up, also for the same commit.
	if applied = p.commit("r5", 0); len(applied.Created) == 0 {
		t.Fatalf("back again: %+v", applied)
	}
	if applied = p.commit("r4", 3); applied.PruneWaits == nil {
		t.Fatal("a yes counted twice")
	}
}

func TestWithinTheLimitPoolsGo(t *testing.T) { both(t, testWithinTheLimitPoolsGo) }

func testWithinTheLimitPoolsGo(t *testing.T) {
	p := newPruning(t)
	if applied := p.commit("r2", 2); applied.PruneWaits != nil || len(applied.Draining)+len(applied.Orphaned) != 2 {
		t.Fatalf("two of ten come to %+v", applied)
	}
	// What was revoked by hand is gone already, and counts for nothing.
	for i := 2; i < 5; i++ {
		must(t)(p.s.RevokePool(background, admin, fmt.Sprint("pool-", i)))
	}
	if applied := p.commit("r3", 7); applied.PruneWaits != nil || len(applied.Draining)+len(applied.Orphaned) != 2 {
		t.Fatalf("two that live and three that do not come to %+v", applied)
	}
	// A share counts beside the number.
	p.limit = prunelimit.Limit{Count: 10, Percent: 50}
	if applied := p.commit("r4", 9); applied.PruneWaits == nil || applied.PruneWaits.Of != 3 {
		t.Fatalf("two of three come to %+v", applied)
	}
}

// Who may not revoke the pools may not have Git do it.
func TestApprovingIsBoundedByACeiling(t *testing.T) { both(t, testApprovingIsBoundedByACeiling) }

func testApprovingIsBoundedByACeiling(t *testing.T) {
	p := newPruning(t)
	p.commit("r2", 5)
	boss := root(t, p.s)
	for names, allowed := range map[string]bool{"pool-[0-3]": false, "pool-?": true} {
		who, _ := caller(t, p.s, boss, hubv1.CreateTokenRequest{Name: "bounded", Scopes: []hubv1.Permission{hubv1.PermissionExecutorManage}, Ceiling: &hubv1.Ceiling{Names: []string{names}}})
		_, err := p.s.ApprovePrune(store.WithCaller(background, who), who.Actor(), "", "fleet", hubv1.ApprovePruneRequest{Revision: "r2"})
		if (err == nil) != allowed {
			t.Errorf("with a ceiling of %s: %v", names, err)
		}
	}
}
