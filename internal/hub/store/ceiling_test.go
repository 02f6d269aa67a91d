package store_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

func TestAPoolBeyondACeilingIsNotTakenOver(t *testing.T) {
	both(t, testAPoolBeyondACeilingIsNotTakenOver)
}

// What a pool is at the hub decides, for a sync and for a token alike, whoever
// says that it is to be theirs.
func testAPoolBeyondACeilingIsNotTakenOver(t *testing.T) {
	w := newWorld(t, 1)
	ceiling := hubv1.Ceiling{Names: []string{"ml-*"}, MaxRunners: 3, Labels: []string{"gpu=*"}, Audience: []string{"group:ml-*"}, Owners: []string{"group:ml-*"}}
	who, _ := caller(t, w.s, root(t, w.s), hubv1.CreateTokenRequest{Name: "ml", Scopes: []hubv1.Permission{hubv1.PermissionExecutorManage}, Ceiling: &ceiling})
	ctx, me := store.WithCaller(background, who), who.Actor()
	mine := hubv1.PoolDefinition{MaxRunners: 2, Owner: "group:ml-a", Audience: []string{"group:ml-a"}, DeletionPolicy: "Orphan"}
	beyond := func(change func(*hubv1.PoolDefinition)) hubv1.PoolDefinition {
		d := mine
		change(&d)
		return d
	}
	apply := func(names ...string) error {
		var documents []store.PoolDocument
		for _, name := range names {
			documents = append(documents, store.PoolDocument{Name: name, Definition: mine, Source: hubv1.Provenance{Sync: "fleet", Path: name + ".yaml", Digest: "d"}})
		}
		return heldBack(t, w.s, ceiling, documents)
	}
	for name, c := range map[string]struct {
		field string
		is    hubv1.PoolDefinition
	}{
		"ml-owner":    {"owner: group:admins", beyond(func(d *hubv1.PoolDefinition) { d.Owner = "group:admins" })},
		"ml-none":     {"owner: no owner", beyond(func(d *hubv1.PoolDefinition) { d.Owner = "" })},
		"ml-audience": {"audience[0]: group:admins", beyond(func(d *hubv1.PoolDefinition) { d.Audience = []string{"group:admins"} })},
		"ml-anyone":   {"audience: anyone", beyond(func(d *hubv1.PoolDefinition) { d.Audience = nil })},
		"ml-big":      {"maxRunners: 4 is above 3", beyond(func(d *hubv1.PoolDefinition) { d.MaxRunners = 4 })},
		"ml-labels":   {"labels.team", beyond(func(d *hubv1.PoolDefinition) { d.Labels = map[string]string{"team": "x"} })},
		"us-name":     {"name: us-name", mine},
	} {
		for _, state := range []hubv1.PoolState{hubv1.PoolActive, hubv1.PoolRevoked} {
			if state == hubv1.PoolRevoked {
				must(t)(w.s.RevokePool(background, admin, name))
			} else {
				must(t)(w.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: name, PoolDefinition: c.is}))
			}
			before, _, err := w.s.GetPool(background, name)
			check(t, err)
			err = apply(name)
			says := []string{c.field, "pool " + name + " belongs to ", "cloop executor pool update " + name}
			if name == "us-name" {
				says = []string{c.field, "`allow` of the sync"} // that the sync may define none of that name comes first
			}
			if err == nil || slices.ContainsFunc(says, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
				t.Errorf("the sync takes %s, which is %s: %v", name, state, err)
			}
			want := hubv1.CodeForbidden
			if name == "us-name" && state == hubv1.PoolActive {
				want = hubv1.CodeNotFound // it is not there for the token
			}
			if state == hubv1.PoolRevoked {
				err = errOf(w.s.CreatePool(ctx, me, "", hubv1.CreatePoolRequest{Name: name, PoolDefinition: mine}))
			} else {
				err = errOf(w.s.UpdatePool(ctx, me, name, 0, hubv1.UpdatePoolRequest{MaxRunners: &mine.MaxRunners, Owner: &mine.Owner, Audience: &mine.Audience, Labels: &mine.Labels}))
			}
			if codeOf(err) != want {
				t.Errorf("the token takes %s, which is %s: %v", name, state, err)
			}
			after, _, err := w.s.GetPool(background, name)
			check(t, err)
			if !slices.Equal(encoded(t, before), encoded(t, after)) {
				t.Errorf("%s was %+v and is %+v", name, before, after)
			}
		}
	}
	// What is within it is taken, and what the sync has already it keeps.
	must(t)(w.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: "ml-mine", PoolDefinition: mine}))
	check(t, apply("ml-mine"))
	ceiling.Owners, mine.Owner = []string{"group:ml-b"}, "group:ml-b"
	check(t, apply("ml-mine"))
	if pool, _, err := w.s.GetPool(background, "ml-mine"); err != nil || pool.Owner != "group:ml-b" || pool.Source == nil {
		t.Errorf("the sync's own pool is %+v: %v", pool, err)
	}
}

func encoded(t *testing.T, value any) []byte {
	t.Helper()
	data, err := json.Marshal(value)
	check(t, err)
	return data
}

// heldBack applies documents and is what holds some of them back, or nil.
func heldBack(t *testing.T, s *store.Store, ceiling hubv1.Ceiling, documents []store.PoolDocument) error {
	t.Helper()
	applied, err := s.ApplyDocuments(background, store.Revision{Sync: documents[0].Source.Sync, Allow: ceiling}, documents)
	check(t, err)
	var problems []error
	for _, held := range applied.HeldBack {
		problems = append(problems, errors.New(strings.Join(held.Problems, "; ")))
	}
	return errors.Join(problems...)
}

func TestAnOverrideLeavesAPoolToItsHubPool(t *testing.T) {
	both(t, testAnOverrideLeavesAPoolToItsHubPool)
}

// What Git says of a pool is what a ceiling is about while somebody with a higher
// one, or none, has set it aside: neither is the pool out of the reach of its
// HubPool's token then, nor one within it that is not otherwise. The override itself
// is for those who could have made it.
func testAnOverrideLeavesAPoolToItsHubPool(t *testing.T) {
	w := newWorld(t, 1)
	who, _ := caller(t, w.s, root(t, w.s), hubv1.CreateTokenRequest{Name: "fleet", Scopes: []hubv1.Permission{hubv1.PermissionExecutorManage}, Ceiling: &hubv1.Ceiling{MaxRunners: 5}})
	ctx, me, owner := store.WithCaller(background, who), who.Actor(), hubv1.ClusterOwner("c1", "cloop-fleet", "ce")
	must(t)(w.s.Define(ctx, me, written(owner, "ce", 4, "Revoke")))
	first, err := w.s.CreateCredential(ctx, me, "", "ce")
	check(t, err)
	must(t)(w.s.OverridePool(background, admin, "ce", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(9))}, aside))

	for what, do := range map[string]func() error{
		"ends the override": func() error { return errOf(w.s.EndOverride(ctx, me, "ce")) },
		"replaces the override": func() error {
			return errOf(w.s.OverridePool(ctx, me, "ce", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(3))}, aside))
		},
	} {
		if err := do(); codeOf(err) != hubv1.CodeForbidden || !strings.Contains(err.Error(), "as user:admin has overridden it until ") ||
			!strings.Contains(err.Error(), "9 is above 5") || !strings.Contains(err.Error(), "`cloop executor pool end-override ce`") {
			t.Errorf("the token %s: %v", what, err)
		}
	}
	second, err := w.s.CreateCredential(ctx, me, "", "ce")
	check(t, err)
	_, err = w.s.FinishRotation(ctx, me, "", "ce", hubv1.FinishRotationRequest{To: second.ID, From: []string{first.ID}, Force: true})
	check(t, err)
	must(t)(w.s.RevokeCredential(ctx, me, "ce", second.ID))
	if pool := w.poolOf(t, "ce"); pool.Override == nil || pool.MaxRunners != 9 {
		t.Fatalf("what its HubPool did has left %+v", pool)
	}
	pool, err := w.s.Undefine(ctx, me, "ce", owner)
	if err != nil || pool.State == hubv1.PoolActive || pool.Override != nil || pool.MaxRunners != 4 {
		t.Errorf("undefined, the pool is %+v, %v", pool, err)
	}

	// The other way round.
	w.apply(t, "fleet", written("fleet", "big", 9, "Orphan"))
	must(t)(w.s.OverridePool(background, admin, "big", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(1))}, aside))
	for what, err := range map[string]error{
		"mints":   errOf(w.s.CreateCredential(ctx, me, "", "big")),
		"revokes": errOf(w.s.RevokePool(ctx, me, "big")),
	} {
		if codeOf(err) != hubv1.CodeForbidden || !strings.Contains(err.Error(), "is managed by Git: ") || !strings.Contains(err.Error(), "as Git says, beyond the ceiling of token ") {
			t.Errorf("the token %s: %v", what, err)
		}
	}
}
