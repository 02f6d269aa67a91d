package store_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// written is a document of an owner.
func written(owner, name string, maximum int32, policy string) store.PoolDocument {
	definition := hubv1.PoolDefinition{MaxRunners: maximum, DeletionPolicy: policy}
	digest, _ := json.Marshal(definition)
	return store.PoolDocument{Name: name, Definition: definition, Line: 1, Source: hubv1.Provenance{
		Sync: owner, Repository: "https://git.example.com/" + strings.NewReplacer(":", "-", "/", "-").Replace(owner), Path: name + ".yaml", Revision: "r1", Digest: string(digest),
	}}
}

func TestACommitLeavesARowForThePoolsThatItChangesAlone(t *testing.T) {
	both(t, testACommitLeavesARowForThePoolsThatItChangesAlone)
}

func testACommitLeavesARowForThePoolsThatItChangesAlone(t *testing.T) {
	w := newWorld(t, 1)
	was := map[string]hubv1.Provenance{}
	for _, c := range []struct {
		name  string
		apply func() []store.PoolDocument
		// rows: pool → the actions of its rows.
		rows map[string][]string
	}{
		{"two pools", func() []store.PoolDocument {
			return []store.PoolDocument{written("fleet", "one", 1, "Orphan"), written("fleet", "two", 1, "Orphan")}
		}, map[string][]string{"one": {store.ActionPoolCreate}, "two": {store.ActionPoolCreate}}},
		{"a commit that touches neither", func() []store.PoolDocument {
			return []store.PoolDocument{written("fleet", "one", 1, "Orphan"), written("fleet", "two", 1, "Orphan")}
		}, nil},
		{"a maximum", func() []store.PoolDocument {
			return []store.PoolDocument{written("fleet", "one", 2, "Orphan"), written("fleet", "two", 1, "Orphan")}
		}, map[string][]string{"one": {store.ActionPoolSource, store.ActionPoolUpdate}}},
		{"another file", func() []store.PoolDocument {
			d := written("fleet", "two", 1, "Orphan")
			d.Source.Path = "pools/two.yaml"
			return []store.PoolDocument{written("fleet", "one", 2, "Orphan"), d}
		}, map[string][]string{"two": {store.ActionPoolSource}}},
		{"another repository", func() []store.PoolDocument {
			d := written("fleet", "two", 1, "Orphan")
			d.Source.Path, d.Source.Repository = "pools/two.yaml", "https://git.example.com/other"
			return []store.PoolDocument{written("fleet", "one", 2, "Orphan"), d}
		}, map[string][]string{"two": {store.ActionPoolSource}}},
	} {
		before := len(w.rows(t))
		documents := c.apply()
		for i := range documents {
			documents[i].Source.Revision = c.name
		}
		w.apply(t, "fleet", documents...)
		got := map[string][]string{}
		for _, row := range w.rows(t)[before:] {
			got[row.Pool] = append(got[row.Pool], row.Action)
		}
		if len(got)+len(c.rows) > 0 && !reflect.DeepEqual(got, c.rows) {
			t.Errorf("%s leaves %v", c.name, got)
		}
		for _, d := range documents {
			pool, _, err := w.s.GetPool(background, d.Name)
			check(t, err)
			if pool.Source == nil || *pool.Source != d.Source || *pool.Source == was[d.Name] {
				t.Errorf("%s: %s is from %+v", c.name, d.Name, pool.Source)
			}
			was[d.Name] = *pool.Source
		}
	}
}

// rows is the audit trail, the oldest first.
func (w *world) rows(t *testing.T) []hubv1.AuditRecord {
	t.Helper()
	page, err := w.s.Audit(background, hubv1.AuditQuery{Limit: 1000})
	check(t, err)
	return page.Items
}

func (w *world) apply(t *testing.T, sync string, documents ...store.PoolDocument) store.Applied {
	t.Helper()
	applied, err := w.s.ApplyDocuments(background, store.Revision{Sync: sync}, documents)
	check(t, err)
	return applied
}

func (w *world) poolOf(t *testing.T, ref string) hubv1.Pool {
	t.Helper()
	pool, _, err := w.s.GetPool(background, ref)
	check(t, err)
	return pool
}

// audited are the actions that the audit trail has of an object, oldest first.
func (w *world) audited(t *testing.T, object, prefix string) (actions []string) {
	t.Helper()
	page, err := w.s.Audit(background, hubv1.AuditQuery{Object: object, Action: prefix})
	check(t, err)
	for _, r := range page.Items {
		actions = append(actions, r.Action)
	}
	return actions
}

func TestTwoRepositoriesThatClaimOnePool(t *testing.T) {
	both(t, testTwoRepositoriesThatClaimOnePool)
}

// The first keeps it, the other's document is held back alone and says where the pool
// is, whatever the order in which they come again; once the first lets go the other
// has it.
func testTwoRepositoriesThatClaimOnePool(t *testing.T) {
	w := newWorld(t, 1)
	w.apply(t, "first", written("first", "shared", 2, "Orphan"))
	for range 2 {
		applied := w.apply(t, "second", written("second", "shared", 5, "Revoke"), written("second", "own", 1, "Orphan"))
		if len(applied.HeldBack) != 1 || applied.HeldBack[0].Pool != "shared" || !strings.Contains(applied.HeldBack[0].Problems[0],
			"shared.yaml:1: pool shared is managed by Git: https://git.example.com/first shared.yaml at r1: keep the pool in one of the two places") {
			t.Fatalf("the second's is held back as %+v", applied.HeldBack)
		}
		if own := w.poolOf(t, "own"); own.Source == nil || own.Source.Sync != "second" {
			t.Errorf("its other pool is %+v", own)
		}
		if applied := w.apply(t, "first", written("first", "shared", 3, "Orphan")); len(applied.HeldBack) > 0 {
			t.Errorf("the first's is held back: %+v", applied.HeldBack)
		}
	}
	// The second's document going takes nothing away.
	w.apply(t, "second", written("second", "own", 1, "Orphan"))
	if pool := w.poolOf(t, "shared"); pool.MaxRunners != 3 || pool.State != hubv1.PoolActive || pool.Source.Sync != "first" {
		t.Errorf("the pool is %+v of %+v", pool, pool.Source)
	}
	w.apply(t, "first", written("first", "another", 1, "Orphan"))
	applied := w.apply(t, "second", written("second", "shared", 5, "Revoke"), written("second", "own", 1, "Orphan"))
	if pool := w.poolOf(t, "shared"); len(applied.HeldBack) > 0 || pool.MaxRunners != 5 || pool.Source.Sync != "second" {
		t.Errorf("let go, it is %+v of %+v (%+v)", pool, pool.Source, applied)
	}
}

func TestAHeldBackDocumentIsNotGone(t *testing.T) { both(t, testAHeldBackDocumentIsNotGone) }

func testAHeldBackDocumentIsNotGone(t *testing.T) {
	w := newWorld(t, 1)
	w.apply(t, "fleet", written("fleet", "one", 1, "Revoke"), written("fleet", "two", 2, "Orphan"), written("fleet", "three", 3, "Revoke"))
	before := w.poolOf(t, "one")
	held := store.PoolDocument{Name: "one", Source: hubv1.Provenance{Sync: "fleet", Path: "one.yaml"}, Problems: []string{"a", "b"}}
	applied := w.apply(t, "fleet", held, written("fleet", "two", 4, "Orphan"))
	if len(applied.HeldBack) != 1 || !slices.Equal(applied.HeldBack[0].Problems, held.Problems) || !slices.Equal(applied.Draining, []string{"three"}) {
		t.Errorf("applied as %+v", applied)
	}
	if after := w.poolOf(t, "one"); after.Revision != before.Revision || after.Source == nil {
		t.Errorf("what is held back is %+v", after)
	}
	if w.poolOf(t, "two").MaxRunners != 4 || w.poolOf(t, "three").State != hubv1.PoolRevoked {
		t.Error("the others did not land")
	}
	// What is new and held back may be what is gone.
	held.Name = "other"
	applied = w.apply(t, "fleet", held, written("fleet", "one", 1, "Revoke"))
	if two := w.poolOf(t, "two"); !slices.Equal(applied.Kept, []string{"two"}) || two.Source == nil || two.State != hubv1.PoolActive {
		t.Errorf("applied as %+v, and what is gone is %+v", applied, two)
	}
	if applied = w.apply(t, "fleet", written("fleet", "other", 1, "Orphan"), written("fleet", "one", 1, "Revoke")); !slices.Equal(applied.Orphaned, []string{"two"}) || len(applied.Kept) > 0 {
		t.Errorf("in the end applied as %+v", applied)
	}
}

func TestAnObservedDocumentIsComparedAlone(t *testing.T) {
	both(t, testAnObservedDocumentIsComparedAlone)
}

func testAnObservedDocumentIsComparedAlone(t *testing.T) {
	w := newWorld(t, 1)
	observed := func(name string, maximum int32) store.PoolDocument {
		d := written("fleet", name, maximum, "Revoke")
		d.Observe, d.MovedFrom = true, "one"
		return d
	}
	// One that is the sync's own, with Git's cordon, and one that is nobody's.
	reason := "upgrades"
	one := written("fleet", "one", 1, "Revoke")
	one.CordonReason = &reason
	w.apply(t, "fleet", one, written("fleet", "two", 2, "Revoke"))
	w.apply(t, "fleet", observed("two", 2), one)
	two := w.poolOf(t, "two")
	if two.Source != nil || two.State != hubv1.PoolActive || two.MaxRunners != 2 {
		t.Errorf("what is only compared is %+v", two)
	}
	applied := w.apply(t, "fleet", observed("one", 5), observed("two", 9), observed("new", 1))
	if len(applied.Observed) != 3 || applied.Observed[0].Definition.MaxRunners != 5 || len(applied.Renamed)+len(applied.Draining)+len(applied.Orphaned) > 0 {
		t.Errorf("applied as %+v", applied)
	}
	if now := w.poolOf(t, "one"); now.Source != nil || now.MaxRunners != 1 || now.Cordon == nil || now.Cordon.Reason != reason {
		t.Errorf("what was the sync's is %+v", now)
	}
	if now := w.poolOf(t, "two"); now.Revision != two.Revision {
		t.Errorf("what is only compared was changed: %+v", now)
	}
	if _, _, err := w.s.GetPool(background, "new"); err == nil {
		t.Error("a pool was made for a document that is only compared")
	}
	// Without their documents they stay, and with documents to apply they are adopted.
	if applied = w.apply(t, "fleet", written("fleet", "two", 9, "Revoke")); !slices.Equal(applied.Changed, []string{"two"}) || len(applied.Draining)+len(applied.Orphaned) > 0 {
		t.Errorf("in the end applied as %+v", applied)
	}
	if one, two := w.poolOf(t, "one"), w.poolOf(t, "two"); one.State != hubv1.PoolActive || two.MaxRunners != 9 || two.Source == nil {
		t.Errorf("in the end %+v and %+v", one, two)
	}
}

func TestWhatGitLetsGoOfIsAnOperators(t *testing.T) { both(t, testWhatGitLetsGoOfIsAnOperators) }

// Git's cordon stays with a pool whose document is only compared from now on, and
// whoever may lifts or replaces it, until Git has the pool again.
func testWhatGitLetsGoOfIsAnOperators(t *testing.T) {
	w := newWorld(t, 1)
	applied := cordoned(written("fleet", "gpu", 1, "Revoke"), "upgrades")
	compared := applied
	compared.Observe = true
	for name, lift := range map[string]func() string{
		"lifted": func() string {
			must(t)(w.s.Uncordon(background, admin, "gpu"))
			return ""
		},
		"replaced": func() string {
			must(t)(w.s.Cordon(background, admin, "gpu", "mine"))
			return "mine"
		},
		"gone from Git": func() string {
			w.apply(t, "fleet")
			must(t)(w.s.Uncordon(background, admin, "gpu"))
			return ""
		},
		"replaced and lifted": func() string {
			must(t)(w.s.Cordon(background, admin, "gpu", "mine"))
			must(t)(w.s.Uncordon(background, admin, "gpu"))
			return ""
		},
	} {
		w.apply(t, "fleet", applied)
		if err := errOf(w.s.Uncordon(background, admin, "gpu")); codeOf(err) != hubv1.CodePoolManagedByGit {
			t.Fatalf("%s: while Git has the pool: %v", name, err)
		}
		w.apply(t, "fleet", compared)
		if pool := w.poolOf(t, "gpu"); pool.Source != nil || pool.Cordon == nil || pool.Cordon.Reason != "upgrades" {
			t.Fatalf("%s: let go, it is %+v", name, pool)
		}
		if run := w.run(t); !strings.Contains(run.Reason, "by Git, which has let go of the pool; `cloop executor pool uncordon gpu` ends that") {
			t.Errorf("%s: a run waits because %s", name, run.Reason)
		}
		want := lift()
		pool, got := w.poolOf(t, "gpu"), ""
		if pool.Cordon != nil {
			got = pool.Cordon.Reason
		}
		if got != want {
			t.Errorf("%s: it is cordoned with %q", name, got)
		}
		// Git has it again, and takes back what it says itself alone.
		w.apply(t, "fleet", applied)
		if pool := w.poolOf(t, "gpu"); pool.Cordon == nil || pool.Cordon.Reason != "upgrades" || pool.Cordon.By != "git" {
			t.Errorf("%s: applied again it is %+v", name, pool)
		}
		w.apply(t, "fleet", compared)
		w.apply(t, "fleet", written("fleet", "gpu", 1, "Revoke"))
		pool, got = w.poolOf(t, "gpu"), ""
		if pool.Cordon != nil {
			got = pool.Cordon.Reason
		}
		if got != want {
			t.Errorf("%s: applied without a cordon it is cordoned with %q", name, got)
		}
		if want != "" {
			must(t)(w.s.Uncordon(background, admin, "gpu"))
		}
	}
}

func TestAPoolOfAHubPoolThatIsGoneIsReleased(t *testing.T) {
	both(t, testAPoolOfAHubPoolThatIsGoneIsReleased)
}

func testAPoolOfAHubPoolThatIsGoneIsReleased(t *testing.T) {
	w := newWorld(t, 1)
	old, another := hubv1.ClusterOwner("old", "ns", "gpu"), hubv1.ClusterOwner("new", "ns", "gpu")
	run := w.run(t)
	must(t)(w.s.Define(background, admin, cordoned(written(old, "gpu", 3, "Revoke"), "upgrades")))
	err := errOf(w.s.Define(background, admin, written(another, "gpu", 4, "Revoke")))
	if codeOf(err) != hubv1.CodePoolManagedByGit {
		t.Fatalf("another HubPool's: %v", err)
	}
	if err := errOf(w.s.UpdatePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(5))})); err == nil ||
		!strings.Contains(err.Error(), "where it is gone for good or only compared, `cloop executor pool release gpu`") {
		t.Errorf("by hand: %v", err)
	}
	if pool, err := w.s.ReleasePool(background, admin, "gpu", another); err != nil || pool.Source == nil {
		t.Fatalf("released by another it is %+v, %v", pool, err)
	}
	for range 2 {
		pool, err := w.s.ReleasePool(background, admin, "gpu", "")
		check(t, err)
		if pool.Source != nil || pool.MaxRunners != 3 || pool.Cordon == nil || pool.State != hubv1.PoolActive || w.get(t, run.ID).State != hubv1.RunQueued {
			t.Fatalf("released, it is %+v", pool)
		}
	}
	if did := w.audited(t, w.pool.ID, store.ActionPoolOrphan); len(did) != 1 {
		t.Errorf("the audit trail has %v", did)
	}
	must(t)(w.s.Uncordon(background, admin, "gpu"))
	must(t)(w.s.Define(background, admin, written(another, "gpu", 4, "Revoke")))
	if pool := w.poolOf(t, "gpu"); pool.MaxRunners != 4 || pool.Source.Sync != another {
		t.Errorf("taken by the new one, it is %+v", pool)
	}
	// What the hub reads itself it would read again.
	w.apply(t, "fleet", written("fleet", "gpu", 1, "Orphan"))
	if err := errOf(w.s.ReleasePool(background, admin, "gpu", "")); codeOf(err) != hubv1.CodePoolManagedByGit {
		t.Errorf("a pool of the hub's sync: %v", err)
	}
	must(t)(w.s.RevokePool(background, admin, "gpu"))
	if err := errOf(w.s.ReleasePool(background, admin, "gpu", "")); codeOf(err) != hubv1.CodePoolRevoked {
		t.Errorf("a revoked pool: %v", err)
	}
}

func TestAPoolIsRenamed(t *testing.T) { both(t, testAPoolIsRenamed) }

// A pool that is moved keeps its id and with it all that is bound to it.
func testAPoolIsRenamed(t *testing.T) {
	w := newWorld(t, 1)
	w.apply(t, "fleet", written("fleet", "gpu", 1, "Revoke"), written("fleet", "stays", 1, "Revoke"))
	moved := func(name, from string) store.PoolDocument {
		d := written("fleet", name, 2, "Revoke")
		d.MovedFrom = from
		return d
	}
	// What holds the new document back keeps the old pool.
	bad := moved("big", "gpu")
	bad.Problems = []string{"not sound"}
	w.apply(t, "fleet", bad, written("fleet", "stays", 1, "Revoke"))
	if pool := w.poolOf(t, "gpu"); pool.State != hubv1.PoolActive || pool.Source == nil {
		t.Fatalf("held back, the old pool is %+v", pool)
	}
	// So does a name that is taken, and one beyond the ceiling.
	must(t)(w.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: "taken", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}}))
	for name, ceiling := range map[string]hubv1.Ceiling{"taken": {}, "big": {Names: []string{"gpu", "stays"}}} {
		applied, err := w.s.ApplyDocuments(background, store.Revision{Sync: "fleet", Allow: ceiling}, []store.PoolDocument{moved(name, "gpu"), written("fleet", "stays", 1, "Revoke")})
		check(t, err)
		if pool := w.poolOf(t, "gpu"); len(applied.HeldBack) != 1 || len(applied.Renamed) > 0 || pool.State != hubv1.PoolActive {
			t.Fatalf("as %s: %+v, and the pool is %+v", name, applied, pool)
		}
	}
	for range 2 { // once it is done it is over, although the annotation stays
		applied := w.apply(t, "fleet", moved("big", "gpu"), written("fleet", "stays", 1, "Revoke"))
		big := w.poolOf(t, w.pool.ID)
		if big.Name != "big" || big.State != hubv1.PoolActive || big.MaxRunners != 2 || len(applied.HeldBack) > 0 {
			t.Fatalf("applied as %+v, and the pool is %+v", applied, big)
		}
	}
	if project, err := w.s.GetProject(background, "app"); err != nil || project.ExecutorID != "pool:"+w.pool.ID {
		t.Errorf("the project is %+v %v", project, err)
	}
	must(t)(w.s.Mint(background, w.credential, "key-0001"))
	if actions := w.audited(t, w.pool.ID, store.ActionPoolRename); len(actions) != 1 {
		t.Errorf("the audit trail has %v", actions)
	}
	// What was there before under its own name is no rename, nor what another has.
	w.apply(t, "other", written("other", "theirs", 1, "Revoke"))
	w.apply(t, "fleet", moved("big", "stays"), moved("mine", "theirs"))
	if w.poolOf(t, "big").ID != w.pool.ID || w.poolOf(t, "stays").State != hubv1.PoolRevoked || w.poolOf(t, "theirs").Source.Sync != "other" || w.poolOf(t, "mine").MaxRunners != 2 {
		t.Error("a claim of nobody's pool was believed")
	}
}

func TestAPoolOfAClusterIsRenamed(t *testing.T) { both(t, testAPoolOfAClusterIsRenamed) }

// A HubPool that says that it was another one of its namespace has that one's pool,
// and nobody else's.
func testAPoolOfAClusterIsRenamed(t *testing.T) {
	w := newWorld(t, 1)
	who, _ := caller(t, w.s, root(t, w.s), hubv1.CreateTokenRequest{Name: "fleet", Scopes: []hubv1.Permission{hubv1.PermissionExecutorManage}, Ceiling: &hubv1.Ceiling{Names: []string{"g*", "new*"}, MaxRunners: 5}})
	ctx, me := store.WithCaller(background, who), who.Actor()
	owner := func(name string) string { return hubv1.ClusterOwner("c1", "fleet", name) }
	moved := func(name, from string) store.PoolDocument {
		d := written(owner(name), name, 2, "Revoke")
		d.MovedFrom = from
		return d
	}
	must(t)(w.s.Define(background, admin, written(owner("gpu"), "gpu", 4, "Revoke")))
	must(t)(w.s.OverridePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(9))}, aside))
	run := w.run(t)

	// A name that is taken is nobody's new one, and the pool stays under its own.
	must(t)(w.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: "goes", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}}))
	must(t)(w.s.RevokePool(background, admin, "goes"))
	if err := errOf(w.s.Define(ctx, me, moved("goes", "gpu"))); codeOf(err) != hubv1.CodePoolExists {
		t.Errorf("under the name of a revoked pool: %v", err)
	}
	if err := errOf(w.s.Define(ctx, me, moved("beyond", "gpu"))); codeOf(err) != hubv1.CodeForbidden {
		t.Errorf("beyond the ceiling: %v", err)
	}
	for range 2 { // the annotation stays
		pool, err := w.s.Define(ctx, me, moved("new", "gpu"))
		if err != nil || pool.ID != w.pool.ID || pool.Name != "new" || pool.MaxRunners != 2 || pool.Override != nil || pool.Source.Sync != owner("new") {
			t.Fatalf("renamed, the pool is %+v, %v", pool, err)
		}
	}
	if _, _, err := w.s.GetPool(background, "gpu"); codeOf(err) != hubv1.CodeNotFound || w.get(t, run.ID).State != hubv1.RunQueued {
		t.Error("the run that waited is settled, or the old name is still there")
	}
	must(t)(w.s.Mint(background, w.credential, "key-0001"))
	if actions := w.audited(t, w.pool.ID, store.ActionPoolRename); len(actions) != 1 {
		t.Errorf("the audit trail has %v", actions)
	}
	// The old HubPool has nothing there any more.
	if pool, err := w.s.Undefine(background, admin, "new", owner("gpu")); err != nil || pool.State != hubv1.PoolActive {
		t.Errorf("the old HubPool goes: %+v, %v", pool, err)
	}

	// What is another's, or hidden, or going, is no rename.
	must(t)(w.s.Define(background, admin, written(hubv1.ClusterOwner("c1", "other", "g1"), "g1", 1, "Revoke")))
	w.apply(t, "fleet", written("fleet", "g2", 1, "Revoke"))
	must(t)(w.s.Define(background, admin, written(owner("hidden"), "hidden", 1, "Revoke")))
	must(t)(w.s.Define(background, admin, written(owner("g4"), "g4", 1, "Revoke")))
	must(t)(w.s.RevokePool(background, admin, "g4"))
	for i, from := range []string{"g1", "g2", "hidden", "g4", "nowhere"} {
		before := ""
		if pool, _, err := w.s.GetPool(background, from); err == nil {
			before = pool.ID
		}
		pool, err := w.s.Define(ctx, me, moved(fmt.Sprintf("new-%d", i), from))
		if err != nil || pool.ID == before {
			t.Errorf("from %s: %+v, %v", from, pool, err)
		}
	}
	for _, name := range []string{"g1", "g2", "hidden", "g4"} {
		w.poolOf(t, name)
	}
}

func TestAHubPoolOfAClusterDefinesAPool(t *testing.T) { both(t, testAHubPoolOfAClusterDefinesAPool) }

func testAHubPoolOfAClusterDefinesAPool(t *testing.T) {
	w := newWorld(t, 1)
	ceiling := hubv1.Ceiling{Names: []string{"eu-*"}, MaxRunners: 3}
	who, token := caller(t, w.s, root(t, w.s), hubv1.CreateTokenRequest{Name: "fleet-eu", Scopes: []hubv1.Permission{hubv1.PermissionExecutorManage}, Ceiling: &ceiling})
	ctx, me := store.WithCaller(background, who), who.Actor()
	owner := hubv1.ClusterOwner("eu", "fleet", "eu-gpu")
	define := func(maximum int32, policy string) (hubv1.Pool, error) {
		return w.s.Define(ctx, me, written(owner, "eu-gpu", maximum, policy))
	}
	pool, err := define(2, "Orphan")
	check(t, err)
	if pool.MaxRunners != 2 || pool.Source == nil || pool.Source.Sync != owner || pool.Source.Repository == "" {
		t.Fatalf("made %+v of %+v", pool, pool.Source)
	}
	page, err := w.s.Audit(background, hubv1.AuditQuery{Object: pool.ID})
	check(t, err)
	if row := page.Items[0]; row.Action != store.ActionPoolCreate || row.Actor != me || row.Token != token.ID {
		t.Errorf("the audit trail has %+v", row)
	}
	// Saying the same again changes nothing.
	again, err := define(2, "Orphan")
	check(t, err)
	if after := w.audited(t, pool.ID, ""); again.Revision != pool.Revision || len(after) != len(page.Items) {
		t.Errorf("said again, it is %+v, and the audit trail has %v", again, after)
	}
	// The token's ceiling holds, for names that are there and that are not.
	if _, err := define(4, "Orphan"); codeOf(err) != hubv1.CodeForbidden {
		t.Errorf("beyond the ceiling: %v", err)
	}
	for _, name := range []string{"gpu", "us-gpu"} {
		if _, err := w.s.Define(ctx, me, written(owner, name, 1, "Orphan")); codeOf(err) != hubv1.CodeForbidden {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Neither a hand nor another cluster changes it, a hub's start lets it be.
	if _, err := w.s.UpdatePool(background, admin, "eu-gpu", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(1))}); codeOf(err) != hubv1.CodePoolManagedByGit || !strings.Contains(err.Error(), "HubPool fleet/eu-gpu of cluster eu") {
		t.Errorf("by hand: %v", err)
	}
	if _, err := w.s.Define(ctx, me, written(hubv1.ClusterOwner("us", "fleet", "eu-gpu"), "eu-gpu", 1, "Orphan")); codeOf(err) != hubv1.CodePoolManagedByGit {
		t.Errorf("by another cluster: %v", err)
	}
	check(t, w.s.KeepSyncs(background, nil))
	if pool := w.poolOf(t, "eu-gpu"); pool.Source == nil {
		t.Error("a start of the hub let it go")
	}
	// What the hub reads from Git itself comes first, and says where it is.
	w.apply(t, "fleet", written("fleet", "eu-gpu", 3, "Orphan"))
	_, err = define(2, "Orphan")
	var p *hubv1.Problem
	if !errors.As(err, &p) || p.Code != hubv1.CodePoolManagedByGit || p.Source == nil || p.Source.Sync != "fleet" {
		t.Errorf("claimed by the hub's sync: %v", err)
	}
	// Another's pool is left alone by whose HubPool is gone.
	left, err := w.s.Undefine(ctx, me, "eu-gpu", owner)
	if err != nil || left.Source == nil {
		t.Errorf("the sync's pool is %+v %v", left, err)
	}
	w.apply(t, "fleet", written("fleet", "else", 1, "Orphan"))
	must(t)(define(2, "Orphan"))
	left, err = w.s.Undefine(ctx, me, "eu-gpu", owner)
	if err != nil || left.Source != nil || left.State != hubv1.PoolActive {
		t.Errorf("orphaned, it is %+v %v", left, err)
	}
	must(t)(define(2, "Revoke"))
	left, err = w.s.Undefine(ctx, me, "eu-gpu", owner)
	if err != nil || left.State != hubv1.PoolRevoked {
		t.Errorf("revoked, it is %+v %v", left, err)
	}
	if end := left.End; end == nil || !end.Drained || end.By != "sync:"+owner || !strings.HasPrefix(end.Reason, "pool eu-gpu was removed from Git") {
		t.Errorf("it ended so: %+v", end)
	}
	// It comes back by its document, but not where somebody revoked it by hand.
	if pool, err := define(2, "Revoke"); err != nil || pool.State != hubv1.PoolActive || pool.ID != left.ID || pool.End != nil {
		t.Errorf("back, it is %+v %v", pool, err)
	}
	if left, err = w.s.RevokePool(background, admin, "eu-gpu"); err != nil || left.End == nil || left.End.Drained || left.End.By != admin {
		t.Errorf("revoked by hand, it ended so: %+v %v", left.End, err)
	}
	if pool, err := define(2, "Revoke"); err != nil || pool.State != hubv1.PoolRevoked {
		t.Errorf("revoked by hand, it is %+v %v", pool, err)
	}
	if pool, err := define(1, "Revoke"); err != nil || pool.State != hubv1.PoolActive {
		t.Errorf("with another document, it is %+v %v", pool, err)
	}
	if _, err := w.s.Undefine(ctx, me, "eu-none", owner); codeOf(err) != hubv1.CodeNotFound {
		t.Errorf("what there is not: %v", err)
	}
}

func TestOtherChangesComeBetweenDocuments(t *testing.T) {
	both(t, testOtherChangesComeBetweenDocuments)
}

// Many documents are applied a part at a time, with room for others in between. A sync
// that is cut short there has drained nothing, and goes on where it was.
func testOtherChangesComeBetweenDocuments(t *testing.T) {
	w := newWorld(t, 1)
	w.apply(t, "fleet", written("fleet", "old", 1, "Revoke"))
	documents := make([]store.PoolDocument, 60)
	for i := range documents {
		documents[i] = written("fleet", fmt.Sprintf("pool-%02d", i), 1, "Orphan")
	}
	documents[59].MovedFrom = "old"
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	first := make(chan error, 1)
	go func() {
		// The first pools are there: the sync is on its way.
		for ctx.Err() == nil {
			pools, err := w.s.ListPools(background, true)
			if err == nil && len(pools) > 2 {
				first <- w.s.SaveSync(background, hubv1.Sync{Name: "nobody"})
				cancel()
			}
		}
	}()
	_, err := w.s.ApplyDocuments(ctx, store.Revision{Sync: "fleet"}, documents)
	check(t, <-first)
	switch {
	case err == nil:
		t.Log("the sync was done first")
	case !errors.Is(err, context.Canceled):
		t.Fatal(err)
	default:
		// The last part may have been done when its end was told.
		pools, err := w.s.ListPools(background, true)
		check(t, err)
		pools = slices.DeleteFunc(pools, func(p hubv1.Pool) bool { return p.Name != "old" && p.Name != documents[59].Name })
		if len(pools) != 1 || pools[0].State != hubv1.PoolActive || pools[0].Source == nil {
			t.Errorf("cut short, it made of what is to be renamed %+v", pools)
		}
	}
	w.apply(t, "fleet", documents...)
	if renamed := w.poolOf(t, "pool-59"); !slices.Equal(w.audited(t, renamed.ID, "executor_pool.rename"), []string{store.ActionPoolRename}) {
		t.Errorf("it was not renamed: %+v", renamed)
	}
	pools, err := w.s.ListPools(background, true)
	check(t, err)
	if n := len(pools) - 1; n != len(documents) {
		t.Errorf("%d pools instead of %d", n, len(documents))
	}
}
