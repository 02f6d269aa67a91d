package store_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/hub/token"
	"cloop.dev/cloop/internal/secret"
)

// people adds users to a world: eve is in group ml, which develops project app;
// bob may do everything.
func people(t *testing.T, s *store.Store) {
	t.Helper()
	ctx := context.Background()
	for _, name := range []string{"eve", "bob"} {
		must(t)(s.CreateUser(ctx, admin, "", hubv1.CreateUserRequest{Name: name}))
	}
	must(t)(s.CreateGroup(ctx, admin, "", hubv1.CreateGroupRequest{Name: "ml"}))
	must(t)(s.AddMember(ctx, admin, "ml", "eve"))
	must(t)(s.GiveRole(ctx, admin, "developer", hubv1.BindingRequest{Subject: "group:ml", Project: "app"}))
	must(t)(s.GiveRole(ctx, admin, access.RoleAdmin, hubv1.BindingRequest{Subject: "user:bob"}))
}

// caller makes a token of a user and proves it.
func caller(t *testing.T, s *store.Store, maker store.Caller, request hubv1.CreateTokenRequest) (store.Caller, hubv1.Token) {
	t.Helper()
	made, err := s.CreateToken(context.Background(), maker, "", request)
	check(t, err)
	who, err := s.AuthUser(context.Background(), made.Secret)
	check(t, err)
	return who, made
}

// root is the first user.
func root(t *testing.T, s *store.Store) store.Caller {
	t.Helper()
	var text string
	check(t, s.EnsureAdmin(context.Background(), func(made secret.String) error { text = made.Reveal(); return nil }))
	who, err := s.AuthUser(context.Background(), text)
	check(t, err)
	return who
}

func TestAnAudienceTakesUsersGroupsAndRoles(t *testing.T) {
	both(t, testAnAudienceTakesUsersGroupsAndRoles)
}

func testAnAudienceTakesUsersGroupsAndRoles(t *testing.T) {
	w := newWorld(t, 1)
	ctx := context.Background()
	people(t, w.s)
	must(t)(w.s.CreateProject(ctx, admin, "", hubv1.CreateProjectRequest{Name: "other", Remote: "https://git.example.com/other"}))
	must(t)(w.s.BindProject(ctx, admin, "other", "pool:"+w.pool.ID, store.Undemanding("")))
	for _, c := range []struct{ entry, who, project, want string }{
		{"user:eve", "user:eve", "app", ""},
		{"user:eve", "user:bob", "app", "audience"},
		{"group:ml", "user:eve", "other", ""},
		{"group:ml", "user:bob", "app", "audience"},
		{"role:developer", "user:eve", "app", ""},
		// The role is for project app alone.
		{"role:developer", "user:eve", "other", "audience"},
		{"role:admin", "user:bob", "other", ""},
		{"role:admin", "user:eve", "app", "audience"},
	} {
		must(t)(w.s.UpdatePool(ctx, admin, "gpu", 0, hubv1.UpdatePoolRequest{Audience: &[]string{c.entry}}))
		_, err := w.s.StartRun(ctx, c.who, "", hubv1.StartRunRequest{Project: c.project, Command: []string{"true"}}, store.Undemanding(""))
		if string(codeOf(err)) != c.want {
			t.Errorf("%s of %s where %s may: %v", c.who, c.project, c.entry, err)
		}
	}
}

func TestWhoLosesTheirPlaceLosesTheirWaitingRuns(t *testing.T) {
	both(t, testWhoLosesTheirPlaceLosesTheirWaitingRuns)
}

func testWhoLosesTheirPlaceLosesTheirWaitingRuns(t *testing.T) {
	for name, c := range map[string]struct {
		entry  string
		change func(*store.Store) error
		reason string
	}{
		"dropped from the group": {"group:ml", func(s *store.Store) error {
			_, err := s.RemoveMember(background, admin, "ml", "eve")
			return err
		}, "no longer takes it: pool gpu is for group:ml, user:bob, and the run is of user:eve"},
		"the group is gone": {"group:ml", func(s *store.Store) error { return s.RemoveGroup(background, admin, "ml") }, "no longer takes it"},
		"the role is taken": {"role:developer", func(s *store.Store) error {
			_, err := s.TakeRole(background, admin, "developer", hubv1.BindingRequest{Subject: "group:ml", Project: "app"})
			return err
		}, "no longer takes it"},
		"the user is gone": {"user:eve", func(s *store.Store) error { return s.RemoveUser(background, admin, "eve") }, "user:eve, who started it, was removed"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			people(t, w.s)
			must(t)(w.s.UpdatePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{Audience: &[]string{c.entry, "user:bob"}}))
			start := func(who string) hubv1.Run {
				run, err := w.s.StartRun(background, who, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
				check(t, err)
				return run
			}
			running, r := start("user:eve"), w.runner(t, "key-one1")
			w.started(t, r, w.get(t, running.ID))
			waiting, others := start("user:eve"), start("user:bob")
			check(t, c.change(w.s))
			if got := w.get(t, waiting.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, c.reason) {
				t.Errorf("what waited is %s: %s", got.State, got.Reason)
			}
			if got := w.get(t, others.ID); got.State != hubv1.RunQueued {
				t.Errorf("another's is %s: %s", got.State, got.Reason)
			}
			if got := w.get(t, running.ID); got.State != hubv1.RunRunning {
				t.Errorf("what runs is %s: %s", got.State, got.Reason)
			}

			// Back from a runner that was lost, it is judged again.
			check(t, w.s.Bye(background, r, "crashed"))
			w.runner(t, "key-two2")
			if got := w.get(t, running.ID); got.State != hubv1.RunCancelled {
				t.Errorf("what came back is %s: %s", got.State, got.Reason)
			}
		})
	}
}

// A pool that is for everybody runs nothing of who may not read the project any
// more, and least on a runner that has what earlier runs left.
func TestWhoMayNotReadAProjectRunsNothingOfIt(t *testing.T) {
	both(t, testWhoMayNotReadAProjectRunsNothingOfIt)
}

func testWhoMayNotReadAProjectRunsNothingOfIt(t *testing.T) {
	w := newWorld(t, 5)
	people(t, w.s)
	holds := w.holdsOf(t, "app")
	start := func(who string) hubv1.Run {
		run, err := w.s.StartRun(background, who, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
		check(t, err)
		return run
	}
	ended := func(what string, run hubv1.Run) {
		t.Helper()
		if got := w.get(t, run.ID); got.State != hubv1.RunCancelled || !strings.Contains(got.Reason, "user:eve, who started it, may not read project app") {
			t.Errorf("%s is %s: %s", what, got.State, got.Reason)
		}
	}
	running, r := start("user:eve"), w.runner(t, "key-one1")
	w.started(t, r, w.get(t, running.ID))
	waiting, others := start("user:eve"), start("user:bob")
	must(t)(w.s.TakeRole(background, admin, "developer", hubv1.BindingRequest{Subject: "group:ml", Project: "app"}))
	ended("what waited", waiting)
	if got := w.get(t, others.ID); got.State != hubv1.RunQueued {
		t.Errorf("another's is %s: %s", got.State, got.Reason)
	}
	if got := w.get(t, running.ID); got.State != hubv1.RunRunning {
		t.Errorf("what runs is %s: %s", got.State, got.Reason)
	}
	// Back from a runner that was lost, it is judged again.
	check(t, w.s.Bye(background, r, "crashed"))
	w.runner(t, "key-two2")
	ended("what came back", running)
	if got := w.get(t, others.ID); got.State != hubv1.RunHanded {
		t.Errorf("another's is %s: %s", got.State, got.Reason)
	}
	// As an edit leaves it that no hub knew of.
	late, next := start("user:bob"), start("user:bob")
	_, err := looking(t, w.dir).Exec("UPDATE runs SET started_by = 'user:eve' WHERE id = '" + late.ID + "'")
	check(t, err)
	held := w.holder(t, "key-tre3", holds)
	ended("what is handed to a runner on the project's volume", late)
	if got := w.get(t, next.ID); got.Runner != held.ID {
		t.Errorf("the next is %s, of %q", got.State, got.Runner)
	}
}

// Also on a pool for everybody: who may start no runs any more has none started.
func TestWhoMayStartNoRunsLosesThoseThatWait(t *testing.T) {
	both(t, testWhoMayStartNoRunsLosesThoseThatWait)
}

func testWhoMayStartNoRunsLosesThoseThatWait(t *testing.T) {
	unread := "user:eve, who started it, may not read project app"
	lost := "user:eve, who started it, may start runs of project app no more"
	may := hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionProjectRead, hubv1.PermissionRunStart}}
	mayNot := hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionProjectRead}}
	taken := func(s *store.Store) error {
		_, err := s.TakeRole(background, admin, "developer", hubv1.BindingRequest{Subject: "group:ml", Project: "app"})
		return err
	}
	// instead is a role that somebody made, in place of the built-in one.
	instead := func(s *store.Store) {
		must(t)(s.PutRole(background, admin, "starter", may))
		must(t)(s.GiveRole(background, admin, "starter", hubv1.BindingRequest{Subject: "user:eve"}))
		check(t, taken(s))
	}
	for name, c := range map[string]struct {
		change func(*store.Store) error
		reason string
		before func(*store.Store)
	}{
		"the role is taken":      {taken, unread, nil},
		"dropped from the group": {func(s *store.Store) error { _, err := s.RemoveMember(background, admin, "ml", "eve"); return err }, unread, nil},
		"the group is gone":      {func(s *store.Store) error { return s.RemoveGroup(background, admin, "ml") }, unread, nil},
		"the role is narrowed":   {func(s *store.Store) error { _, err := s.PutRole(background, admin, "starter", mayNot); return err }, lost, instead},
		"the role is removed":    {func(s *store.Store) error { return s.RemoveRole(background, admin, "starter") }, unread, instead},
		"the user is gone":       {func(s *store.Store) error { return s.RemoveUser(background, admin, "eve") }, "user:eve, who started it, was removed", nil},
		"another loses it":       {func(s *store.Store) error { return s.RemoveUser(background, admin, "bob") }, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 2)
			people(t, w.s)
			if c.before != nil {
				c.before(w.s)
			}
			start := func() hubv1.Run {
				run, err := w.s.StartRun(background, "user:eve", "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
				check(t, err)
				return run
			}
			running, r := start(), w.runner(t, "key-one1")
			w.started(t, r, w.get(t, running.ID))
			waiting := start()
			check(t, c.change(w.s))
			want := hubv1.RunCancelled
			if c.reason == "" {
				want = hubv1.RunQueued
			}
			if got := w.get(t, waiting.ID); got.State != want || want == hubv1.RunCancelled && got.Reason != c.reason {
				t.Errorf("what waited is %s: %s", got.State, got.Reason)
			}
			// What comes back from a lost runner is judged again.
			check(t, w.s.Bye(background, r, "crashed"))
			w.runner(t, "key-two2")
			if got := w.get(t, running.ID); (got.State == hubv1.RunCancelled) != (want == hubv1.RunCancelled) || want == hubv1.RunCancelled && got.Reason != "the runner left: crashed; the run starts no more: "+c.reason {
				t.Errorf("what came back is %s: %s", got.State, got.Reason)
			}
		})
	}
}

func TestAPoolsOwnerReadsProjectsByItsRoles(t *testing.T) {
	both(t, testAPoolsOwnerReadsProjectsByItsRoles)
}

func testAPoolsOwnerReadsProjectsByItsRoles(t *testing.T) {
	w := newWorld(t, 1)
	people(t, w.s)
	must(t)(w.s.PutRole(background, admin, "canceller", hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionRunCancel}}))
	must(t)(w.s.GiveRole(background, admin, "canceller", hubv1.BindingRequest{Subject: "user:bob"}))
	must(t)(w.s.CreateProject(background, admin, "", hubv1.CreateProjectRequest{Name: "other", Remote: "https://git.example.com/other"}))
	must(t)(w.s.BindProject(background, admin, "other", "pool:"+w.pool.ID, store.Undemanding("")))
	for _, c := range []struct {
		owner, project string
		want           hubv1.Code
	}{
		{"user:eve", "app", ""}, {"user:eve", "other", hubv1.CodeOwner},
		{"group:ml", "app", ""}, {"group:ml", "other", hubv1.CodeOwner},
		{"user:bob", "other", ""}, {"role:admin", "other", ""},
		{"role:developer", "app", ""}, {"role:developer", "other", hubv1.CodeOwner},
		{"role:viewer", "app", hubv1.CodeOwner}, // nobody has it
		{"role:canceller", "app", hubv1.CodeOwner},
		{"user:nobody", "app", hubv1.CodeOwner},
	} {
		must(t)(w.s.UpdatePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{Owner: &c.owner}))
		_, err := w.s.StartRun(background, admin, "", hubv1.StartRunRequest{Project: c.project, Command: []string{"true"}}, store.Undemanding(""))
		if codeOf(err) != c.want {
			t.Errorf("%s on a pool of %s: %v", c.project, c.owner, err)
		}
	}
}

func TestNobodyGivesMoreThanTheyHave(t *testing.T) { both(t, testNobodyGivesMoreThanTheyHave) }

func testNobodyGivesMoreThanTheyHave(t *testing.T) {
	s := open(t, t.TempDir(), newClock())
	boss := root(t, s)
	withApp(t, s)
	people(t, s)
	must(t)(s.PutRole(background, admin, "clerk", hubv1.RoleRequest{Permissions: []hubv1.Permission{
		hubv1.PermissionAccessManage, hubv1.PermissionAccessRead, hubv1.PermissionProjectRead,
	}}))
	must(t)(s.CreateUser(background, admin, "", hubv1.CreateUserRequest{Name: "clerk"}))
	must(t)(s.GiveRole(background, admin, "clerk", hubv1.BindingRequest{Subject: "user:clerk"}))
	must(t)(s.CreateGroup(background, admin, "", hubv1.CreateGroupRequest{Name: "admins"}))
	must(t)(s.GiveRole(background, admin, access.RoleAdmin, hubv1.BindingRequest{Subject: "group:admins"}))
	must(t)(s.CreateUser(background, admin, "", hubv1.CreateUserRequest{Name: "ann"}))
	must(t)(s.AddMember(background, admin, "admins", "ann"))
	must(t)(s.PutRole(background, admin, "small", hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionProjectRead}}))
	must(t)(s.GiveRole(background, admin, "small", hubv1.BindingRequest{Subject: "group:admins"}))
	clerk, _ := caller(t, s, boss, hubv1.CreateTokenRequest{Name: "t", User: "clerk", Scopes: []hubv1.Permission{
		hubv1.PermissionAccessManage, hubv1.PermissionAccessRead, hubv1.PermissionProjectRead,
	}})
	ctx := store.WithCaller(background, clerk)
	me := clerk.Actor()
	for what, err := range map[string]error{
		"give a role":           errOf(s.GiveRole(ctx, me, access.RoleAdmin, hubv1.BindingRequest{Subject: "user:clerk"})),
		"join a group":          errOf(s.AddMember(ctx, me, "admins", "clerk")),
		"define a role":         errOf(s.PutRole(ctx, me, "mine", hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionExecutorManage}})),
		"widen a role it has":   errOf(s.PutRole(ctx, me, "clerk", hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionExecutorManage}})),
		"token of somebody":     errOf(s.CreateToken(ctx, clerk, "", hubv1.CreateTokenRequest{Name: "x", User: "bob", Scopes: []hubv1.Permission{hubv1.PermissionAuditRead}})),
		"token beyond itself":   errOf(s.CreateToken(ctx, clerk, "", hubv1.CreateTokenRequest{Name: "x", Scopes: []hubv1.Permission{hubv1.PermissionRunStart}})),
		"remove one with more":  s.RemoveUser(ctx, me, "bob"),
		"take a role from more": errOf(s.TakeRole(ctx, me, access.RoleAdmin, hubv1.BindingRequest{Subject: "user:bob"})),
		"act as one with more":  errOf(s.CreateToken(ctx, clerk, "", hubv1.CreateTokenRequest{Name: "x", User: "bob"})),
		"act as a member":       errOf(s.CreateToken(ctx, clerk, "", hubv1.CreateTokenRequest{Name: "x", User: "ann"})),
		"remove a member":       s.RemoveUser(ctx, me, "ann"),
		"drop a member":         errOf(s.RemoveMember(ctx, me, "admins", "ann")),
		"remove a group":        s.RemoveGroup(ctx, me, "admins"),
		"narrow a held role":    errOf(s.PutRole(ctx, me, "small", hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionAccessRead}})),
		"remove a held role":    s.RemoveRole(ctx, me, "small"),
		"revoke a token":        s.RevokeToken(ctx, clerk, boss.Token.ID),
	} {
		if codeOf(err) != hubv1.CodeForbidden {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t)(s.CreateUser(ctx, me, "", hubv1.CreateUserRequest{Name: "tim"}))
	must(t)(s.GiveRole(ctx, me, "small", hubv1.BindingRequest{Subject: "user:tim"}))
	// A token for somebody else gives what clerk has at most.
	tims, _ := caller(t, s, clerk, hubv1.CreateTokenRequest{Name: "x", User: "tim"})
	must(t)(s.GiveRole(background, admin, access.RoleAdmin, hubv1.BindingRequest{Subject: "user:tim"}))
	if now, err := s.Renewed(background, tims); err != nil || now.Rights.MayAnywhere(hubv1.PermissionExecutorManage) || !now.Rights.May(hubv1.PermissionProjectRead, "") {
		t.Errorf("the token gives %v, %v", now.Rights.Everywhere(), err)
	}
	// And what its user has at most, whatever its scopes say.
	eves, _ := caller(t, s, boss, hubv1.CreateTokenRequest{Name: "x", User: "eve"})
	if eves.Rights.MayAnywhere(hubv1.PermissionExecutorManage) {
		t.Errorf("the token gives %v", eves.Rights.Everywhere())
	}
	// What was taken from clerk after its request was let in counts.
	must(t)(s.TakeRole(background, admin, "clerk", hubv1.BindingRequest{Subject: me}))
	if _, err := s.CreateGroup(ctx, me, "", hubv1.CreateGroupRequest{Name: "mine"}); codeOf(err) != hubv1.CodeForbidden {
		t.Errorf("without its role clerk makes a group: %v", err)
	}
}

// withApp makes project app, in which people have roles.
func withApp(t *testing.T, s *store.Store) {
	t.Helper()
	must(t)(s.CreateProject(background, admin, "", hubv1.CreateProjectRequest{Name: "app", Remote: "https://git.example.com/app"}))

}

func errOf(_ any, err error) error { return err }

func TestATokenEndsByRevocationByTimeAndWithItsUser(t *testing.T) {
	both(t, testATokenEndsByRevocationByTimeAndWithItsUser)
}

func testATokenEndsByRevocationByTimeAndWithItsUser(t *testing.T) {
	w := newWorld(t, 1)
	boss := root(t, w.s)
	people(t, w.s)
	until := w.clock.Now().Add(time.Hour)
	bob, bobs := caller(t, w.s, boss, hubv1.CreateTokenRequest{Name: "a", User: "bob"})
	short, shorts := caller(t, w.s, bob, hubv1.CreateTokenRequest{Name: "b", ExpiresAt: &until})
	eve, eves := caller(t, w.s, boss, hubv1.CreateTokenRequest{Name: "c", User: "eve"})

	// What was asked with a token that lasts an hour makes none that lasts longer.
	if _, err := w.s.CreateToken(background, short, "", hubv1.CreateTokenRequest{Name: "d"}); codeOf(err) != hubv1.CodeForbidden {
		t.Errorf("a token outlives its maker's: %v", err)
	}
	check(t, w.s.RemoveUser(background, admin, "eve"))
	check(t, w.s.RevokeToken(background, bob, bobs.ID))
	w.clock.Step(time.Hour)
	for _, made := range []hubv1.Token{bobs, shorts, eves} {
		if _, err := w.s.AuthUser(background, made.Secret); codeOf(err) != hubv1.CodeUnauthenticated {
			t.Errorf("token %s is accepted: %v", made.Name, err)
		}
	}
	// Checked before, ended meanwhile: nothing is written for it.
	for _, who := range []store.Caller{bob, short, eve} {
		if _, err := w.s.Cordon(store.WithCaller(background, who), who.Actor(), "gpu", "x"); codeOf(err) != hubv1.CodeUnauthenticated {
			t.Errorf("%s writes: %v", who.User, err)
		}
	}
	if tokens, err := w.s.ListTokens(background, "bob", false, ""); err != nil || len(tokens.Items) != 0 {
		t.Errorf("live tokens are %v, %v", tokens, err)
	}
	if tokens, err := w.s.ListTokens(background, "bob", true, ""); err != nil || len(tokens.Items) != 2 || tokens.Items[0].Secret != "" || tokens.Items[0].LastUsedAt == nil {
		t.Errorf("tokens are %+v, %v", tokens, err)
	}
	// Who was removed is there only with what he has left.
	for name, over := range map[string]bool{"nobody": true, "eve": false} {
		if _, err := w.s.ListTokens(background, name, over, ""); codeOf(err) != hubv1.CodeNotFound || !strings.Contains(err.Error(), `there is no user "`+name+`"`) {
			t.Errorf("the tokens of %s: %v", name, err)
		}
	}
	if tokens, err := w.s.ListTokens(background, "eve", true, ""); err != nil || len(tokens.Items) != 1 {
		t.Errorf("what eve left: %+v, %v", tokens, err)
	}
}

func TestACeilingHoldsWhateverTheRequest(t *testing.T) { both(t, testACeilingHoldsWhateverTheRequest) }

func testACeilingHoldsWhateverTheRequest(t *testing.T) {
	w := newWorld(t, 1)
	boss := root(t, w.s)
	must(t)(w.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: "eu-theirs", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1, Owner: "group:other"}}))
	who, _ := caller(t, w.s, boss, hubv1.CreateTokenRequest{Name: "eu", Scopes: []hubv1.Permission{hubv1.PermissionExecutorRead, hubv1.PermissionExecutorManage},
		Ceiling: &hubv1.Ceiling{Names: []string{"eu-*"}, MaxRunners: 3, Owners: []string{"group:eu"}}})
	ctx, me := store.WithCaller(background, who), who.Actor()
	mine := hubv1.PoolDefinition{MaxRunners: 3, Owner: "group:eu"}
	must(t)(w.s.CreatePool(ctx, me, "", hubv1.CreatePoolRequest{Name: "eu-one", PoolDefinition: mine}))
	must(t)(w.s.Cordon(ctx, me, "eu-one", "upgrade"))
	four, nobody := int32(4), ""
	for what, err := range map[string]error{
		"create another":  errOf(w.s.CreatePool(ctx, me, "", hubv1.CreatePoolRequest{Name: "us-one", PoolDefinition: mine})),
		"create a bigger": errOf(w.s.CreatePool(ctx, me, "", hubv1.CreatePoolRequest{Name: "eu-two", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4, Owner: "group:eu"}})),
		"grow":            errOf(w.s.UpdatePool(ctx, me, "eu-one", 0, hubv1.UpdatePoolRequest{MaxRunners: &four})),
		"disown":          errOf(w.s.UpdatePool(ctx, me, "eu-one", 0, hubv1.UpdatePoolRequest{Owner: &nobody})),
		"theirs":          errOf(w.s.Cordon(ctx, me, "eu-theirs", "x")),
		"take theirs":     errOf(w.s.UpdatePool(ctx, me, "eu-theirs", 0, hubv1.UpdatePoolRequest{Owner: &mine.Owner})),
		"make tokens":     errOf(w.s.CreateToken(ctx, who, "", hubv1.CreateTokenRequest{Name: "x"})),
	} {
		if codeOf(err) != hubv1.CodeForbidden {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"cordon":     errOf(w.s.Cordon(ctx, me, "gpu", "x")),
		"revoke":     errOf(w.s.RevokePool(ctx, me, "gpu")),
		"credential": errOf(w.s.CreateCredential(ctx, me, "", "gpu")),
		"bind":       errOf(w.s.BindProject(ctx, me, "app", "pool:"+w.pool.ID, store.Undemanding(""))),
	} {
		if codeOf(err) != hubv1.CodeNotFound {
			t.Errorf("%s of a pool that is out of sight: %v", what, err)
		}
	}
}

func TestALostAdminTokenIsReplaced(t *testing.T) { both(t, testALostAdminTokenIsReplaced) }

func testALostAdminTokenIsReplaced(t *testing.T) {
	s := open(t, t.TempDir(), newClock())
	lost := root(t, s)
	must(t)(s.CreateUser(background, admin, "", hubv1.CreateUserRequest{Name: "eve"}))
	_, eves := caller(t, s, lost, hubv1.CreateTokenRequest{Name: "t", User: "eve"})
	must(t)(s.TakeRole(background, admin, access.RoleAdmin, hubv1.BindingRequest{Subject: admin}))
	var text string
	check(t, s.ResetAdmin(background, func(made secret.String) error { text = made.Reveal(); return nil }))
	who, err := s.AuthUser(background, text)
	check(t, err)
	if !who.Rights.May(hubv1.PermissionAccessManage, "") || token.Check(token.Admin, text) != nil {
		t.Error("the new token may not do everything")
	}
	if _, err := s.Renewed(background, lost); codeOf(err) != hubv1.CodeUnauthenticated {
		t.Errorf("the lost token is accepted: %v", err)
	}
	must(t)(s.AuthUser(background, eves.Secret)) // others' stay
	page, err := s.Audit(background, hubv1.AuditQuery{Actor: "operator"})
	check(t, err)
	var did []string
	for _, r := range page.Items {
		did = append(did, r.Action)
	}
	if got := strings.Join(did, " "); got != "token.revoke role.give token.create" {
		t.Errorf("the audit trail says %s", got)
	}
	// Nobody gets another first token because the first one is gone.
	check(t, s.EnsureAdmin(background, func(secret.String) error { t.Error("another first token"); return nil }))
}

// It is about SQLite: no older hub had another database.
func TestTokensOfAnOlderHubStayGood(t *testing.T) {
	dir := t.TempDir()
	db := looking(t, dir)
	files, err := filepath.Glob("migrations/sqlite/000[123]_*.sql")
	check(t, err)
	must(t)(db.Exec("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT"))
	for i, file := range files {
		text, err := os.ReadFile(file)
		check(t, err)
		must(t)(db.Exec(string(text)))
		must(t)(db.Exec("INSERT INTO schema_version (version, name) VALUES (?, ?)", i+1, file))
	}
	old := token.New(token.Admin).Reveal()
	must(t)(db.Exec("INSERT INTO admin_tokens (id, name, hash, created_at) VALUES ('admin_1', 'admin', ?, 1)", token.Hash(old)))
	check(t, db.Close())
	s := open(t, dir, newClock())
	who, err := s.AuthUser(background, old)
	check(t, err)
	if who.Actor() != admin || !who.Rights.May(hubv1.PermissionAccessManage, "") {
		t.Errorf("%s may %v", who.Actor(), who.Rights.Everywhere())
	}
	check(t, s.EnsureAdmin(background, func(secret.String) error { t.Error("another first token"); return nil }))
}

func TestTheAuditTrailIsReadPageByPage(t *testing.T) { both(t, testTheAuditTrailIsReadPageByPage) }

func testTheAuditTrailIsReadPageByPage(t *testing.T) {
	w := newWorld(t, 3)
	boss := root(t, w.s)
	for range 5 {
		w.run(t)
	}
	must(t)(w.s.Cordon(store.WithCaller(background, boss), admin, "gpu", "x"))
	whole, err := w.s.Audit(background, hubv1.AuditQuery{})
	check(t, err)
	var paged []hubv1.AuditRecord
	for query := (hubv1.AuditQuery{Limit: 2}); ; {
		page, err := w.s.Audit(background, query)
		check(t, err)
		paged = append(paged, page.Items...)
		if page.Next == 0 {
			break
		}
		query.Cursor = page.Next
	}
	if len(paged) != len(whole.Items) || len(paged) < 10 || paged[7] != whole.Items[7] {
		t.Errorf("%d rows in pages, %d in one", len(paged), len(whole.Items))
	}
	last := whole.Items[len(whole.Items)-1]
	if last.Token != boss.Token.ID || last.Detail != "x" || last.Pool != "gpu" {
		t.Errorf("the last row is %+v", last)
	}
	now := w.clock.Now()
	for what, c := range map[string]struct {
		query hubv1.AuditQuery
		want  int
	}{
		"action":          {hubv1.AuditQuery{Action: "run."}, 5},
		"whole action":    {hubv1.AuditQuery{Action: store.ActionPoolCordon}, 1},
		"no pattern":      {hubv1.AuditQuery{Action: "%"}, 0},
		"pool":            {hubv1.AuditQuery{Pool: "gpu", Action: "run."}, 5},
		"pool by id":      {hubv1.AuditQuery{Pool: w.pool.ID, Action: "run."}, 5},
		"object":          {hubv1.AuditQuery{Object: w.pool.ID, Action: store.ActionPoolCordon}, 1},
		"actor":           {hubv1.AuditQuery{Actor: "hub", Action: "user."}, 1},
		"nothing so new":  {hubv1.AuditQuery{Since: now.Add(time.Second)}, 0},
		"nothing so old":  {hubv1.AuditQuery{Until: now}, 0},
		"all of the time": {hubv1.AuditQuery{Since: now, Until: now.Add(1), Action: "run."}, 5},
	} {
		page, err := w.s.Audit(background, c.query)
		if err != nil || len(page.Items) != c.want {
			t.Errorf("%s: %d rows, want %d (%v)", what, len(page.Items), c.want, err)
		}
	}
}
