package store_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/postgrestest"
)

// trail is a world whose audit trail can be made to take no row of an action.
type trail struct {
	*machineTime
	t    *testing.T
	look looker
	// tables are those that the changes are in.
	tables []string
	// What one step made and a later one needs.
	boss       store.Caller
	made       hubv1.Token
	credential hubv1.Credential
	successor  store.Credential
	minted     hubv1.MintResponse
	runner     store.Runner
	held       hubv1.Run
	revision   int
}

// steps are changes in an order in which each can be made, one at least for each action
// that the trail knows: given prepares it, and do is the change, made once.
func (w *trail) steps() []trailStep {
	ann, reader := hubv1.BindingRequest{Subject: "user:ann"}, hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionProjectRead}}
	killed := hubv1.GoneRequest{Reason: "OOMKilled", ExitCode: new(int32(137))}
	request := hubv1.StartRunRequest{Project: "app", Command: []string{"true"}, Failover: hubv1.FailoverNever}
	start := func() error { return errOf(w.s.StartRun(background, admin, "", request, store.Undemanding(""))) }
	idle := func() { w.runner = w.world.runner(w.t, fmt.Sprint("key-idle-", w.key())) }
	running := func() {
		idle()
		check(w.t, start())
		w.newest()
		w.started(w.t, w.runner, w.held)
	}
	result := func() error {
		return w.s.Result(background, w.runner, w.held.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: new(int32(0)), FinishedAt: w.clock.Now()})
	}
	gone := func(request hubv1.GoneRequest) error {
		return errOf(w.s.Gone(background, w.world.credential, w.runner.ID, request))
	}
	return []trailStep{
		{store.ActionUserCreate, nil, func() error {
			return errOf(w.s.CreateUser(background, admin, "", hubv1.CreateUserRequest{Name: "ann"}))
		}},
		{store.ActionGroupCreate, nil, func() error {
			return errOf(w.s.CreateGroup(background, admin, "", hubv1.CreateGroupRequest{Name: "ml"}))
		}},
		{store.ActionGroupAdd, nil, func() error { return errOf(w.s.AddMember(background, admin, "ml", "ann")) }},
		{store.ActionGroupDrop, nil, func() error { return errOf(w.s.RemoveMember(background, admin, "ml", "ann")) }},
		{store.ActionRoleDefine, nil, func() error { return errOf(w.s.PutRole(background, admin, "reader", reader)) }},
		{store.ActionRoleGive, nil, func() error { return errOf(w.s.GiveRole(background, admin, "reader", ann)) }},
		{store.ActionRoleTake, nil, func() error { return errOf(w.s.TakeRole(background, admin, "reader", ann)) }},
		{store.ActionRoleRemove, nil, func() error { return w.s.RemoveRole(background, admin, "reader") }},
		{store.ActionGroupRemove, nil, func() error { return w.s.RemoveGroup(background, admin, "ml") }},
		{store.ActionTokenCreate, nil, func() (err error) {
			w.made, err = w.s.CreateToken(background, w.boss, "", hubv1.CreateTokenRequest{Name: "ci"})
			return err
		}},
		{store.ActionTokenRevoke, nil, func() error { return w.s.RevokeToken(background, w.boss, w.made.ID) }},
		{store.ActionUserRemove, nil, func() error { return w.s.RemoveUser(background, admin, "ann") }},

		{store.ActionPoolCreate, nil, func() error {
			return errOf(w.s.CreatePool(background, admin, "", hubv1.CreatePoolRequest{Name: "other", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}}))
		}},
		{store.ActionPoolUpdate, nil, func() error {
			return errOf(w.s.UpdatePool(background, admin, "other", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(2))}))
		}},
		{store.ActionPoolCordon, nil, func() error { return errOf(w.s.Cordon(background, admin, "other", "nodes")) }},
		{store.ActionPoolUncordon, nil, func() error { return errOf(w.s.Uncordon(background, admin, "other")) }},
		{store.ActionCredentialCreate, nil, func() (err error) {
			w.credential, err = w.s.CreateCredential(background, admin, "", "other")
			return err
		}},
		{store.ActionCredentialRevoke, nil, func() error { return errOf(w.s.RevokeCredential(background, admin, "other", w.credential.ID)) }},
		{store.ActionPoolRevoke, nil, func() error { return errOf(w.s.RevokePool(background, admin, "other")) }},
		{store.ActionCredentialRefusal, nil, func() error { return w.s.SetRefusal(background, w.world.credential, hubv1.Refusal{Message: "quota"}) }},
		{store.ActionCredentialSucceed, func() { _, w.successor = w.rotate(w.t) }, func() error { return w.s.Succeed(background, w.successor, w.secret) }},

		{store.ActionPoolCreate, nil, func() error { return w.git(written("fleet", "drawn", 1, "Orphan")) }},
		{store.ActionPoolSource, func() { w.revision++ }, func() error {
			d := written("fleet", "drawn", 1, "Orphan")
			d.Source.Path = "elsewhere.yaml"
			return w.git(d)
		}},
		{store.ActionPoolRename, nil, func() error {
			d := written("fleet", "renamed", 1, "Orphan")
			d.MovedFrom = "drawn"
			return w.git(d)
		}},
		{store.ActionPoolOverride, nil, func() error {
			return errOf(w.s.OverridePool(background, admin, "renamed", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(3))}, aside))
		}},
		{store.ActionPoolOverrideEnd, nil, func() error { return errOf(w.s.EndOverride(background, admin, "renamed")) }},
		{store.ActionPoolOrphan, nil, func() error { return w.git() }},
		{store.ActionPoolDrain, func() { check(w.t, w.git(written("fleet", "going", 1, "Revoke"))) }, func() error { return w.git() }},
		{store.ActionSyncApprovePrune, func() {
			check(w.t, w.s.KeepSyncs(background, []hubv1.Sync{{Name: "fleet"}}))
			check(w.t, w.s.SaveSync(background, hubv1.Sync{Name: "fleet", State: hubv1.SyncFailed, PruneWaits: &hubv1.PruneWaits{Revision: "abc"}}))
		}, func() error {
			return errOf(w.s.ApprovePrune(background, admin, "", "fleet", hubv1.ApprovePruneRequest{Revision: "abc"}))
		}},

		{store.ActionProjectCreate, nil, func() error {
			return errOf(w.s.CreateProject(background, admin, "", hubv1.CreateProjectRequest{Name: "lib", Remote: "https://git.example.com/lib"}))
		}},
		{store.ActionProjectBind, nil, func() error {
			return errOf(w.s.BindProject(background, admin, "lib", "pool:"+w.pool.ID, store.Undemanding("")))
		}},

		{store.ActionRunnerMint, nil, func() (err error) { w.minted, err = w.s.Mint(background, w.world.credential, "key-one1"); return err }},
		{store.ActionRunnerRemint, nil, func() (err error) { w.minted, err = w.s.Mint(background, w.world.credential, "key-one1"); return err }},
		{store.ActionRunnerEnroll, nil, func() error {
			return errOf(w.s.Enroll(background, hubv1.EnrollRequest{Token: w.minted.Token, Name: "one"}))
		}},
		{store.ActionRunnerRetiring, nil, func() error { return errOf(w.s.Retire(background, w.world.credential, w.minted.RunnerID)) }},
		{store.ActionRunnerRetired, nil, func() error {
			return errOf(w.s.Gone(background, w.world.credential, w.minted.RunnerID, hubv1.GoneRequest{Reason: "Completed"}))
		}},
		{store.ActionRunQueue, nil, start},
		{store.ActionRunSettled, w.newest, func() error { return errOf(w.s.CancelRun(background, admin, w.held.ID)) }},
		{store.ActionRunnerBusy, idle, start},
		{store.ActionRunHand, func() { w.newest(); w.started(w.t, w.runner, w.held); check(w.t, result()); idle() }, start},
		{store.ActionRunStarted, w.newest, func() error {
			return w.s.Started(background, w.runner, w.held.ID, hubv1.StartedRequest{Attempt: 1, Commit: "abc", StartedAt: w.clock.Now()})
		}},
		{store.ActionRunnerPodEnd, nil, func() error { return gone(killed) }},
		{store.ActionRunSettled, nil, result},
		{store.ActionRunnerRetiring, running, result},
		{store.ActionRunCancel, running, func() error { return errOf(w.s.CancelRun(background, admin, w.held.ID)) }},
		{store.ActionRunRequeue, func() { idle(); check(w.t, start()); w.newest() }, func() error { return w.s.Bye(background, w.runner, "let go") }},
		{store.ActionRunRecall, func() {
			w.runner = w.world.runner(w.t, "key-recall")
			w.newest()
			w.started(w.t, w.runner, w.held)
			w.detach[w.runner.ID]()
		}, func() error { return gone(hubv1.GoneRequest{Reason: "PodDeleted"}) }},
		{store.ActionRunCause, func() { running(); check(w.t, w.s.Bye(background, w.runner, "killed")) }, func() error { return gone(killed) }},
		{store.ActionClockSet, func() { w.set(time.Hour) }, func() error { return w.s.Expire(background) }},
		{store.ActionPrune, func() { w.passes(400 * 24 * time.Hour) }, func() error { return errOf(w.s.Prune(background)) }},
	}
}

// trailStep is a change and what the trail calls it.
type trailStep struct {
	action string
	given  func()
	do     func() error
}

func (w *trail) key() int { w.revision++; return w.revision }

// newest is the run that was made last, as it is.
func (w *trail) newest() {
	w.t.Helper()
	runs, err := w.s.ListRuns(background, "app", 1)
	check(w.t, err)
	w.held = w.get(w.t, runs[0].ID)
}

// git applies documents of one more revision.
func (w *trail) git(documents ...store.PoolDocument) error {
	for i := range documents {
		documents[i].Source.Revision = fmt.Sprint("r", w.revision)
	}
	return errOf(w.s.ApplyDocuments(background, store.Revision{Sync: "fleet"}, documents))
}

// takesNo has the database refuse every row of an action; with none it takes all.
func (w *trail) takesNo(action string) {
	w.t.Helper()
	drop := "DROP TRIGGER refuse"
	create := fmt.Sprintf("CREATE TRIGGER refuse BEFORE INSERT ON audit WHEN NEW.action = '%s' BEGIN SELECT RAISE(ABORT, 'no such row'); END", action)
	if w.look.postgres {
		drop += " ON audit"
		create = fmt.Sprintf("CREATE TRIGGER refuse BEFORE INSERT ON audit FOR EACH ROW WHEN (NEW.action = '%s') EXECUTE FUNCTION refuse_row()", action)
	}
	statement := create
	if action == "" {
		statement = drop
	}
	_, err := w.look.Exec(statement)
	check(w.t, err)
}

// newTrail looks at the database beside the hub.
func newTrail(t *testing.T) *trail {
	w := &trail{machineTime: newMachineTime(t), t: t}
	w.look = looking(t, w.dir)
	list := "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
	if w.look.postgres {
		_, err := w.look.Exec("CREATE FUNCTION refuse_row() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'no such row'; END $$ LANGUAGE plpgsql")
		check(t, err)
		list = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
	}
	found, err := w.look.Query(list)
	check(t, err)
	defer func() { _ = found.Close() }()
	for found.Next() {
		var name string
		check(t, found.Scan(&name))
		if !slices.Contains([]string{"audit", "members", "duties", "watches", "schema_version", "hub_clock"}, name) {
			w.tables = append(w.tables, name)
		}
	}
	check(t, found.Err())
	return w
}

// state is all that the hub knows, but for the trail itself, and for who uses the
// database and since when.
func (w *trail) state() string {
	w.t.Helper()
	var out strings.Builder
	for _, name := range w.tables {
		rows, err := w.look.Query("SELECT * FROM " + name)
		check(w.t, err)
		check(w.t, write(&out, name, rows))
	}
	lines := strings.Split(out.String(), "\n")
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

// Whatever changes leaves its row in the same transaction: where the row cannot be
// written nothing has changed, for every action that there is.
func TestWithoutItsAuditRowNothingChanges(t *testing.T) {
	both(t, testWithoutItsAuditRowNothingChanges)
}

func testWithoutItsAuditRowNothingChanges(t *testing.T) {
	w := newTrail(t)
	w.boss = root(t, w.s)
	must(t)(w.s.UpdatePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{MaxRunners: new(int32(50))}))
	untold := actions(t)
	for i, step := range w.steps() {
		if step.given != nil {
			step.given()
		}
		before, rows := w.state(), w.trailed(step.action)
		w.takesNo(step.action)
		err := step.do()
		w.takesNo("")
		if now := w.state(); err == nil || now != before {
			t.Fatalf("step %d, %s: without its row it ends with %v, and changes\n%s", i, step.action, err, differing(before, now))
		}
		if err := step.do(); err != nil {
			t.Fatalf("step %d, %s: %v", i, step.action, err)
		}
		if now := w.state(); now == before || w.trailed(step.action) != rows+1 {
			t.Fatalf("step %d, %s: the trail has %d rows of it more", i, step.action, w.trailed(step.action)-rows)
		}
		delete(untold, step.action)
	}
	// A hub that cannot say that it joins or leaves: TestMembersComeAndGoInTheTrail.
	delete(untold, store.ActionMemberJoin)
	delete(untold, store.ActionMemberLeave)
	if len(untold) > 0 {
		t.Errorf("nothing is tried of %v", untold)
	}
}

func (w *trail) trailed(action string) (n int) {
	w.t.Helper()
	check(w.t, w.look.QueryRow("SELECT COUNT(*) FROM audit WHERE action = ?", action).Scan(&n))
	return n
}

func differing(before, now string) string {
	had, has := strings.Split(before, "\n"), strings.Split(now, "\n")
	var out []string
	for _, line := range has {
		if !slices.Contains(had, line) {
			out = append(out, "+ "+line)
		}
	}
	for _, line := range had {
		if !slices.Contains(has, line) {
			out = append(out, "- "+line)
		}
	}
	return strings.Join(out, "\n")
}

// actions are the trail's, as its source has them.
func actions(t *testing.T) map[string]bool {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "audit.go", nil, 0)
	check(t, err)
	out := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if is && strings.HasPrefix(spec.Names[0].Name, "Action") {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			check(t, err)
			out[text] = true
		}
		return true
	})
	if len(out) < 40 {
		t.Fatalf("the trail has %d actions", len(out))
	}
	return out
}

// About PostgreSQL, which alone has members: a hub whose joining cannot be told does not
// join, and one whose leaving cannot be told is taken for one that died.
func TestMembersComeAndGoInTheTrail(t *testing.T) {
	t.Run("postgres", func(t *testing.T) { postgrestest.Shared(t); testMembersComeAndGoInTheTrail(t) })
}

func testMembersComeAndGoInTheTrail(t *testing.T) {
	w := newTrail(t)
	members := func() (n int) {
		check(t, w.look.QueryRow("SELECT COUNT(*) FROM members").Scan(&n))
		return n
	}
	w.takesNo(store.ActionMemberLeave)
	err := w.s.Close()
	if n := members(); n != 1 {
		t.Errorf("it left without a word: %d members, %v", n, err)
	}
	w.takesNo("")
	w.takesNo(store.ActionMemberJoin)
	options := at(t, w.dir, store.Options{Clock: w.clock, Uptime: func() time.Duration { return w.up }})
	if s, err := store.Open(background, options); err == nil {
		_ = s.Close()
		t.Error("it joined without a word")
	}
	w.takesNo("")
	joined, left := w.trailed(store.ActionMemberJoin), w.trailed(store.ActionMemberLeave)
	s, err := store.Open(background, options)
	check(t, err)
	if w.trailed(store.ActionMemberJoin) != joined+1 {
		t.Error("it joined without a row")
	}
	check(t, s.Close())
	if w.trailed(store.ActionMemberLeave) <= left {
		t.Error("it left without a row")
	}
}
