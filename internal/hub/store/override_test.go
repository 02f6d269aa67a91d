package store_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// aside is an override of an hour.
var aside = store.Overriding{Reason: "the nodes burn", For: time.Hour}

// overridden is a pool of Git that has one runner instead of two, and a cordon of
// Git that is set aside.
func overridden(t *testing.T, w *world) hubv1.Pool {
	t.Helper()
	w.apply(t, "fleet", cordoned(written("fleet", "gpu", 2, "Revoke"), "upgrades"))
	must(t)(w.s.OverridePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(1))}, aside))
	pool, err := w.s.OverrideCordon(background, admin, "gpu", aside)
	check(t, err)
	return pool
}

func cordoned(d store.PoolDocument, reason string) store.PoolDocument {
	d.CordonReason = &reason
	return d
}

// asGit fails where the pool is not as Git said of it in overridden.
func asGit(t *testing.T, pool hubv1.Pool) {
	t.Helper()
	if pool.MaxRunners != 2 || pool.Cordon == nil || pool.Cordon.Reason != "upgrades" || pool.Cordon.By != "git" || pool.Override != nil || len(pool.Drift) > 0 || pool.Source == nil {
		t.Fatalf("the pool is not as Git says: %+v", pool)
	}
}

func TestAnOverrideEndsByItself(t *testing.T) { both(t, testAnOverrideEndsByItself) }

func testAnOverrideEndsByItself(t *testing.T) {
	w := newWorld(t, 1)
	pool := overridden(t, w)
	over := pool.Override
	if pool.MaxRunners != 1 || pool.Cordon != nil || over == nil || over.Reason != aside.Reason || over.By != admin || !over.Until.Equal(w.clock.Now().Add(time.Hour)) ||
		over.Git.MaxRunners != 2 || over.GitCordon == nil || over.GitCordon.Reason != "upgrades" {
		t.Fatalf("overridden, the pool is %+v by %+v", pool, over)
	}
	if at, some, err := w.s.NextDeadline(background); err != nil || !some || !at.Equal(over.Until) {
		t.Errorf("the next deadline is %v %v", at, err)
	}
	w.clock.Step(30 * time.Minute)
	check(t, w.s.Expire(background))
	if w.poolOf(t, "gpu").Override == nil {
		t.Fatal("it ended before its time")
	}
	// Another one lasts from then on, and what Git said is not forgotten.
	again, err := w.s.OverridePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(3))}, store.Overriding{Reason: "still", For: time.Hour})
	check(t, err)
	if now := again.Override; again.MaxRunners != 3 || now.Git.MaxRunners != 2 || now.Reason != "still" || !now.Since.Equal(over.At) || !now.At.Equal(w.clock.Now()) {
		t.Fatalf("overridden again, it is %+v by %+v", again, now)
	}
	// A hub that starts meanwhile knows of it.
	check(t, w.s.Close())
	w.s = open(t, w.dir, w.clock)
	w.clock.Step(time.Hour)
	check(t, w.s.Expire(background))
	asGit(t, w.poolOf(t, "gpu"))
	want := []string{store.ActionPoolOverride, store.ActionPoolOverride, store.ActionPoolOverride, store.ActionPoolOverrideEnd}
	if got := w.audited(t, w.pool.ID, store.ActionPoolOverride); !slices.Equal(got, want) {
		t.Errorf("the audit trail has %v", got)
	}
	page, err := w.s.Audit(background, hubv1.AuditQuery{Object: w.pool.ID, Action: store.ActionPoolOverrideEnd})
	if err != nil || page.Items[0].Actor != "hub" || !strings.Contains(page.Items[0].Detail, "its time was up; it was by user:admin: still") {
		t.Errorf("the audit trail has %+v %v", page.Items, err)
	}
	if _, some, err := w.s.NextDeadline(background); err != nil || some {
		t.Errorf("something is still due: %v", err)
	}
}

func TestAnOverrideEndsWhenGitSaysSomethingElse(t *testing.T) {
	both(t, testAnOverrideEndsWhenGitSaysSomethingElse)
}

func testAnOverrideEndsWhenGitSaysSomethingElse(t *testing.T) {
	for name, c := range map[string]struct {
		document store.PoolDocument
		maximum  int32
		cordon   string
	}{
		"another maximum": {cordoned(written("fleet", "gpu", 5, "Revoke"), "upgrades"), 5, "upgrades"},
		"another cordon":  {cordoned(written("fleet", "gpu", 2, "Revoke"), "others"), 2, "others"},
		"no cordon":       {written("fleet", "gpu", 2, "Revoke"), 2, ""},
		"a new policy":    {cordoned(written("fleet", "gpu", 2, "Orphan"), "upgrades"), 2, "upgrades"},
	} {
		w := newWorld(t, 1)
		overridden(t, w)
		// The same in another commit says nothing else, and neither does what is held back.
		same := cordoned(written("fleet", "gpu", 2, "Revoke"), "upgrades")
		same.Source.Revision = "r2"
		w.apply(t, "fleet", same)
		held := c.document
		held.Problems = []string{"not sound"}
		w.apply(t, "fleet", held)
		if pool := w.poolOf(t, "gpu"); pool.Override == nil || pool.MaxRunners != 1 || pool.Cordon != nil || pool.Source.Revision != "r2" {
			t.Fatalf("%s: before it the pool is %+v of %+v", name, pool, pool.Source)
		}
		w.apply(t, "fleet", c.document)
		pool := w.poolOf(t, "gpu")
		cordon := ""
		if pool.Cordon != nil {
			cordon = pool.Cordon.Reason
		}
		if pool.Override != nil || pool.MaxRunners != c.maximum || cordon != c.cordon {
			t.Errorf("%s: the pool is %+v", name, pool)
		}
	}
}

func TestAnOverrideIsWhatALetGoPoolIs(t *testing.T) { both(t, testAnOverrideIsWhatALetGoPoolIs) }

// A pool whose document is only compared from now on stays exactly as it is.
func testAnOverrideIsWhatALetGoPoolIs(t *testing.T) {
	w := newWorld(t, 1)
	overridden(t, w)
	compared := cordoned(written("fleet", "gpu", 2, "Revoke"), "upgrades")
	compared.Observe = true
	w.apply(t, "fleet", compared)
	pool := w.poolOf(t, "gpu")
	if pool.Source != nil || pool.Override != nil || pool.MaxRunners != 1 || pool.Cordon != nil || pool.State != hubv1.PoolActive {
		t.Errorf("let go, the pool is %+v", pool)
	}
	if ended := w.audited(t, pool.ID, store.ActionPoolOverrideEnd); len(ended) != 1 {
		t.Errorf("the audit trail has %v", ended)
	}
	w.clock.Step(2 * time.Hour)
	check(t, w.s.Expire(background))
	if pool := w.poolOf(t, "gpu"); pool.MaxRunners != 1 || pool.Cordon != nil {
		t.Errorf("later it is %+v", pool)
	}
}

func TestAnOverrideGoesWithItsPool(t *testing.T) { both(t, testAnOverrideGoesWithItsPool) }

// However a pool stops being Git's, it stops as Git said last.
func testAnOverrideGoesWithItsPool(t *testing.T) {
	for name, c := range map[string]struct {
		act   func(*world) error
		state hubv1.PoolState
	}{
		"taken back":      {func(w *world) error { return errOf(w.s.EndOverride(background, admin, "gpu")) }, hubv1.PoolActive},
		"revoked by hand": {func(w *world) error { return errOf(w.s.RevokePool(background, admin, "gpu")) }, hubv1.PoolRevoked},
		"removed from Git": {func(w *world) error {
			return errOf(w.s.ApplyDocuments(background, store.Revision{Sync: "fleet"}, []store.PoolDocument{written("fleet", "other", 1, "Orphan")}))
		}, hubv1.PoolRevoked},
		"of a sync that is gone": {func(w *world) error { return w.s.KeepSyncs(background, nil) }, hubv1.PoolActive},
	} {
		w := newWorld(t, 1)
		overridden(t, w)
		check(t, c.act(w))
		pool := w.poolOf(t, "gpu")
		if pool.Override != nil || pool.MaxRunners != 2 || pool.State != c.state {
			t.Errorf("%s: the pool is %+v", name, pool)
		}
		if _, some, err := w.s.NextDeadline(background); err != nil || some {
			t.Errorf("%s: something is still due: %v", name, err)
		}
		if ended := w.audited(t, pool.ID, store.ActionPoolOverrideEnd); len(ended) != 1 {
			t.Errorf("%s: the audit trail has %v", name, ended)
		}
	}
}

func TestWhatNobodyMayOverride(t *testing.T) { both(t, testWhatNobodyMayOverride) }

func testWhatNobodyMayOverride(t *testing.T) {
	w := newWorld(t, 1)
	five := hubv1.UpdatePoolRequest{MaxRunners: new(int32(5))}
	change := func() error { return errOf(w.s.OverridePool(background, admin, "gpu", 0, five, aside)) }
	if err := change(); codeOf(err) != hubv1.CodeConflict || !strings.Contains(err.Error(), "leave the override out") {
		t.Errorf("a pool that is not Git's: %v", err)
	}
	w.apply(t, "fleet", written("fleet", "gpu", 2, "Revoke"))
	if err := errOf(w.s.OverrideCordon(background, admin, "gpu", aside)); codeOf(err) != hubv1.CodeConflict {
		t.Errorf("a cordon that is not Git's: %v", err)
	}
	if err := errOf(w.s.UpdatePool(background, admin, "gpu", 0, five)); codeOf(err) != hubv1.CodePoolManagedByGit || !strings.Contains(err.Error(), "--override") {
		t.Errorf("without an override: %v", err)
	}
	// A token's ceiling bounds it as any other change.
	ceiling := hubv1.Ceiling{MaxRunners: 3}
	who, _ := caller(t, w.s, root(t, w.s), hubv1.CreateTokenRequest{Name: "ops", Scopes: []hubv1.Permission{hubv1.PermissionExecutorManage}, Ceiling: &ceiling})
	if err := errOf(w.s.OverridePool(store.WithCaller(background, who), who.Actor(), "gpu", 0, five, aside)); codeOf(err) != hubv1.CodeForbidden {
		t.Errorf("beyond a ceiling: %v", err)
	}
	if pool := w.poolOf(t, "gpu"); pool.Override != nil || pool.MaxRunners != 2 {
		t.Fatalf("what was refused has left %+v", pool)
	}
	check(t, change())
	// Each change is meant anew, and one that gives Git its way ends it.
	if err := errOf(w.s.UpdatePool(background, admin, "gpu", 0, five)); codeOf(err) != hubv1.CodePoolManagedByGit {
		t.Errorf("while another is overridden: %v", err)
	}
	pool, err := w.s.OverridePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(2))}, aside)
	if err != nil || pool.Override != nil {
		t.Errorf("as Git says, it is %+v %v", pool, err)
	}
	must(t)(w.s.RevokePool(background, admin, "gpu"))
	if err := change(); codeOf(err) != hubv1.CodePoolRevoked {
		t.Errorf("a revoked pool: %v", err)
	}
}
