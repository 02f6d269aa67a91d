package store_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"runtime"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/store"
)

func TestNoMoreRunsWaitThanMay(t *testing.T) { both(t, testNoMoreRunsWaitThanMay) }

func testNoMoreRunsWaitThanMay(t *testing.T) {
	w := newWorld(t, 1)
	for _, name := range []string{"ann", "bob", "cid"} {
		must(t)(w.s.CreateUser(background, admin, "", hubv1.CreateUserRequest{Name: name}))
		must(t)(w.s.GiveRole(background, admin, access.RoleAdmin, hubv1.BindingRequest{Subject: "user:" + name}))
	}
	for _, name := range []string{"lib", "web"} {
		w.project(t, name)
	}
	check(t, w.s.Close())
	s, err := store.Open(background, at(t, w.dir, store.Options{Clock: w.clock, Limits: store.Limits{Waiting: store.Waiting{PerUser: 2, PerProject: 3, PerPool: 4}}}))
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	w.s = s
	queue := func(user string, key store.Key, project string) (hubv1.Run, error) {
		return s.StartRun(background, "user:"+user, key, hubv1.StartRunRequest{Project: project, Command: []string{"true"}}, store.Undemanding(""))
	}
	refused := func(user, project, want string) {
		t.Helper()
		_, err := queue(user, "", project)
		if codeOf(err) != hubv1.CodeQueueFull || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "cloop run cancel") {
			t.Errorf("a run of %s's for %s is answered with %v, want %q", user, project, err, want)
		}
	}
	first, err := queue("ann", "one", "app")
	check(t, err)
	must(t)(queue("ann", "", "lib"))
	refused("ann", "web", "2 runs of user:ann wait, and no more may of one user (limits.waiting.perUser")
	if again, err := queue("ann", "one", "app"); err != nil || again.ID != first.ID {
		t.Errorf("what is repeated is answered with %v, %v", again.ID, err)
	}
	must(t)(queue("bob", "", "app"))
	must(t)(queue("bob", "", "app"))
	refused("cid", "app", "3 runs of project app wait, and no more may of one project (limits.waiting.perProject")
	refused("cid", "web", "4 runs of pool gpu wait, and no more may of one pool (limits.waiting.perPool")
	if runs, err := s.ListRuns(background, "", 10); err != nil || len(runs) != 4 {
		t.Errorf("there are %d, %v", len(runs), err)
	}

	// What never waits is not refused for what does: it gets a runner, or there is none.
	if _, err := s.StartRun(background, "user:ann", "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}, NoWait: true}, store.Undemanding("")); codeOf(err) != hubv1.CodeWaitingForCapacity {
		t.Errorf("a run that never waits is answered with %v", err)
	}

	// What is in a runner's hands does not wait, nor does what has ended.
	r := w.runner(t, "key-one1")
	must(t)(queue("ann", "", "web"))
	refused("ann", "web", "user:ann")
	must(t)(s.CancelRun(background, "user:ann", w.runs(t, "lib")[0].ID))
	must(t)(queue("ann", "", "web"))
	// What comes back waits whatever the bounds say.
	w.killRunner(t, r)
	if got := w.get(t, first.ID); got.State != hubv1.RunQueued {
		t.Errorf("the run that came back is %s", got.State)
	}
	refused("cid", "lib", "pool gpu")
}

func (w *world) runs(t testing.TB, project string) []hubv1.Run {
	t.Helper()
	runs, err := w.s.ListRuns(background, project, 1000)
	check(t, err)
	return runs
}

// largest is a command as long as one may be; as JSON it is six times as long.
func largest() []string { return []string{strings.Repeat("<", hubv1.MaxCommandBytes-1)} }

// spent is how many bytes are allocated while something is done.
func spent(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestManyLongCommandsAreListedInPages(t *testing.T) {
	both(t, testManyLongCommandsAreListedInPages)
}

func testManyLongCommandsAreListedInPages(t *testing.T) {
	const runs = 60 // 45 MiB as the hub keeps them
	w := newWorld(t, 1)
	must(t)(w.s.CreateUser(background, admin, "", hubv1.CreateUserRequest{Name: "ann"}))
	must(t)(w.s.GiveRole(background, admin, "developer", hubv1.BindingRequest{Subject: "user:ann"}))
	var want []string
	for range runs {
		run, err := w.s.StartRun(background, "user:ann", "", hubv1.StartRunRequest{Project: "app", Command: largest()}, store.Undemanding(""))
		check(t, err)
		want = append([]string{run.ID}, want...)
	}
	var got []string
	for query := (store.RunsQuery{Limit: 1000}); ; {
		var page hubv1.RunList
		cost := spent(func() {
			var err error
			page, err = w.s.Runs(background, "app", query)
			check(t, err)
		})
		data, err := json.Marshal(page)
		check(t, err)
		if len(data) > 5<<20 || cost > 24<<20 {
			t.Fatalf("a page of %d runs has %d bytes and takes %d", len(page.Items), len(data), cost)
		}
		for _, run := range page.Items {
			got = append(got, run.ID)
		}
		if query.Cursor = page.Next; page.Next == 0 {
			break
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the pages have %d runs, want %d, each once and the newest first", len(got), len(want))
	}
	short, err := w.s.Runs(background, "", store.RunsQuery{Limit: 2})
	if err != nil || len(short.Items) != 2 || short.Next == 0 {
		t.Errorf("a page of two has %d and %d as its next, %v", len(short.Items), short.Next, err)
	}

	// What decides over all that waits does not read what they execute.
	audience := []string{"user:bob"}
	cost := spent(func() {
		must(t)(w.s.UpdatePool(background, admin, "gpu", 0, hubv1.UpdatePoolRequest{Audience: &audience}))
	})
	if cost > 8<<20 {
		t.Errorf("another audience takes %d bytes", cost)
	}
	if run := w.get(t, want[0]); run.State != hubv1.RunCancelled || len(run.Command) != 1 || len(run.Command[0]) != hubv1.MaxCommandBytes-1 {
		t.Errorf("it is %s, with %d words", run.State, len(run.Command))
	}
}

func TestManyTokensAreListedInPages(t *testing.T) { both(t, testManyTokensAreListedInPages) }

func testManyTokensAreListedInPages(t *testing.T) {
	const tokens = 40 // 15 MiB as the hub keeps them
	w := newWorld(t, 1)
	boss := root(t, w.s)
	patterns := make([]string, 64)
	for i := range patterns {
		patterns[i] = strings.Repeat("<", 256)
	}
	ceiling := hubv1.Ceiling{Names: patterns, Labels: patterns, Audience: patterns, Owners: patterns}
	want := map[string]bool{boss.Token.ID: true}
	for i := range tokens {
		made, err := w.s.CreateToken(background, boss, "", hubv1.CreateTokenRequest{
			Name: fmt.Sprint("t", i), Scopes: []hubv1.Permission{hubv1.PermissionExecutorRead}, Ceiling: &ceiling,
		})
		check(t, err)
		want[made.ID] = true
	}
	seen, pages := map[string]bool{}, 0
	for cursor := ""; ; pages++ {
		page, err := w.s.ListTokens(background, "", true, cursor)
		check(t, err)
		data, err := json.Marshal(page)
		check(t, err)
		if len(data) > 5<<20 {
			t.Fatalf("a page of %d tokens has %d bytes", len(page.Items), len(data))
		}
		for _, token := range page.Items {
			if seen[token.ID] {
				t.Errorf("token %s is listed twice", token.ID)
			}
			seen[token.ID] = true
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if !maps.Equal(seen, want) || pages < 3 {
		t.Errorf("%d pages have %d tokens, want %d", pages+1, len(seen), len(want))
	}
	if _, err := w.s.ListTokens(background, "", true, "yesterday"); codeOf(err) != hubv1.CodeInvalid || !strings.Contains(err.Error(), "query.cursor") {
		t.Errorf("a cursor that is none is answered with %v", err)
	}
}
