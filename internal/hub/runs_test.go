package hub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/sandbox"
)

// withProject is a hub that can read the repository of its project "app".
type withProject struct {
	*running
	git *fleettest.Server
}

func serveProject(t *testing.T, files map[string]string) *withProject {
	t.Helper()
	p := &withProject{git: fleettest.Serve(t)}
	p.git.Create("app")
	p.git.Commit("app", files)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	check(t, os.WriteFile(ca, p.git.CABundle(), 0o600))
	p.running = serve(t, func(o *hub.Options) { o.Projects = hub.ProjectsConfig{CAFile: ca} })
	must(t)(p.admin.CreateProject(p.ctx(), hubv1.CreateProjectRequest{Name: "app", Remote: p.git.URL("app")}))
	return p
}

func (p *withProject) makePool(name string, capabilities map[string]bool) hubv1.CreatePoolResponse {
	p.t.Helper()
	out, err := p.admin.CreatePool(p.ctx(), hubv1.CreatePoolRequest{Name: name, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4, Capabilities: capabilities}})
	check(p.t, err)
	return out
}

const asksForHypervisor = "capabilities:\n  hypervisor: true\n  kernelIsolated: true\n"

func TestAPoolThatDoesNotMeetTheProjectIsRefused(t *testing.T) {
	p := serveProject(t, map[string]string{sandbox.Path: asksForHypervisor})
	weak := p.makePool("weak", map[string]bool{"kernelIsolated": true}).Pool
	strong := p.makePool("strong", map[string]bool{"kernelIsolated": true, "hypervisor": true}).Pool
	_, err := p.admin.BindProject(p.ctx(), "app", "pool:"+weak.ID)
	refused := wantCode(t, err, hubv1.CodeRequirementsUnmet)
	if refused.Status != http.StatusConflict || len(refused.Errors) != 1 || !strings.Contains(refused.Errors[0].Message, "hypervisor: true, of which pool weak declares nothing") {
		t.Fatalf("refused with %+v", refused)
	}
	if project, err := p.admin.GetProject(p.ctx(), "app"); err != nil || project.ExecutorID != "" {
		t.Fatalf("the project is bound all the same: %+v, %v", project, err)
	}
	project, err := p.admin.BindProject(p.ctx(), "app", "pool:"+strong.ID)
	check(t, err)
	if got := project.Requirements; got == nil || !got.Capabilities["hypervisor"] || got.Commit == "" || got.Unknown != "" {
		t.Fatalf("the project shows %+v", got)
	}
}

// A run is of the commit that its ref stood for when it was started.
func TestARunIsPinnedToItsCommit(t *testing.T) {
	p := serveProject(t, map[string]string{"a": "b"})
	pool := p.makePool("gpu", nil)
	must(t)(p.admin.BindProject(p.ctx(), "app", "pool:"+pool.Pool.ID))
	before := p.run("app")
	commit := p.git.Commit("app", map[string]string{sandbox.Path: asksForHypervisor})
	_, err := p.admin.StartRun(p.ctx(), hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, "")
	wantCode(t, err, hubv1.CodeRequirementsUnmet)
	// The one before does not ask for it, and is handed out.
	_, runner := p.enroll(p.client(pool.Credential.Secret), "runner-one")
	got := until(t, runner.RunnerWatch(p.ctx()), "the runner has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	if got.Run.RunID != before.ID || before.Commit == "" || before.Commit == commit || got.Run.Commit != before.Commit || got.Run.Declared != nil {
		t.Fatalf("the runner got %+v of %+v", got.Run, before)
	}
}

func TestARefThatIsNotThereIsRefusedAndAMistakeNamed(t *testing.T) {
	p := serveProject(t, map[string]string{"a": "b"})
	pool := p.makePool("gpu", nil).Pool
	must(t)(p.admin.BindProject(p.ctx(), "app", "pool:"+pool.ID))
	request := hubv1.StartRunRequest{Project: "app", Ref: "nope", Command: []string{"true"}}
	_, err := p.admin.StartRun(p.ctx(), request, "")
	wantCode(t, err, hubv1.CodeRefNotFound)
	p.git.CommitTo("app", "nope", map[string]string{"a": "b"})
	first, err := p.admin.StartRun(p.ctx(), request, "key-1")
	check(t, err)
	// A request that is repeated has its answer, whatever has become of the ref.
	p.git.DeleteBranch("app", "nope")
	again, err := p.admin.StartRun(p.ctx(), request, "key-1")
	if err != nil || again.ID != first.ID {
		t.Fatalf("repeated: %+v, %v", again, err)
	}
	p.git.Commit("app", map[string]string{sandbox.Path: "capabilities:\n  a: 3\n"})
	request.Ref = ""
	_, err = p.admin.StartRun(p.ctx(), request, "")
	if refused := wantCode(t, err, hubv1.CodeRequirementsInvalid); len(refused.Errors) != 1 || refused.Errors[0].Location != sandbox.Path+":2" {
		t.Fatalf("refused with %+v", refused)
	}
}

// What the hub cannot read may ask for anything: only a runner that finds out by
// itself gets such a run, with what the pool declares.
func TestARunThatNobodyHasReadGoesToARunnerThatReadsIt(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 4)
	r.project("app", pool)
	minted, err := controller.MintRunner(r.ctx(), "old-runner")
	check(t, err)
	enrolled, err := r.client("").Enroll(r.ctx(), hubv1.EnrollRequest{Token: minted.Token, Name: "old", Build: "old"})
	check(t, err)
	old := r.client(enrolled.Session)
	watching, stop := context.WithCancel(r.ctx())
	defer stop()
	listening := make(chan hubv1.RunnerSnapshot, 16)
	go func() {
		for snapshot, err := range old.RunnerWatch(watching) {
			if err == nil {
				listening <- snapshot
			}
		}
	}()
	<-listening
	run := r.run("app")
	if run.State != hubv1.RunQueued || run.Requirements != nil || !strings.Contains(run.Reason, "of which 1 is idle and cannot take it: its build cannot check") {
		t.Fatalf("it is %+v", run)
	}
	_, runner := r.enroll(controller, "new-runner")
	got := until(t, runner.RunnerWatch(r.ctx()), "the runner has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	if got.Run.Declared == nil || got.Run.Declared.Pool != "gpu" {
		t.Fatalf("the runner got %+v", got.Run)
	}
}

// The binding in the words of other clients of the hub's API, which name a
// project by its index.
func TestAProjectIsBoundInTheWordsOfOtherClients(t *testing.T) {
	p := serveProject(t, map[string]string{sandbox.Path: asksForHypervisor}) // app, the first project
	strong := p.makePool("strong", map[string]bool{"kernelIsolated": true, "hypervisor": true}).Pool
	made := p.makePool("weak", nil)
	weak := made.Pool
	// What a pool has for runners is nothing that one can bind to.
	runner, _ := p.enroll(p.client(made.Credential.Secret), "runner-one")
	// One that is called like an index is no less found by its own.
	must(t)(p.admin.CreateProject(p.ctx(), hubv1.CreateProjectRequest{Name: "0", Remote: "https://git.example.com/nought.git"}))
	admin := p.token(p.admin, hubv1.CreateTokenRequest{Name: "test"}).Secret
	must(t)(p.admin.CreateUser(p.ctx(), hubv1.CreateUserRequest{Name: "eve"}))
	must(t)(p.admin.GiveRole(p.ctx(), "viewer", hubv1.BindingRequest{Subject: "user:eve"}))
	eve := p.token(p.admin, hubv1.CreateTokenRequest{Name: "test", User: "eve"}).Secret
	blind := p.token(p.admin, hubv1.CreateTokenRequest{Name: "test", Scopes: []hubv1.Permission{hubv1.PermissionExecutorManage}}).Secret
	for name, test := range map[string]struct {
		index, bearer, body string
		status              int
		code                hubv1.Code
	}{
		"a stranger":                  {"0", "cloop_nonsense", `{"executor_id": "pool:` + strong.ID + `"}`, 401, hubv1.CodeUnauthenticated},
		"who may not manage":          {"0", eve, `{"executor_id": "pool:` + strong.ID + `"}`, 403, hubv1.CodeForbidden},
		"who may not read it":         {"0", blind, `{"executor_id": "pool:` + strong.ID + `"}`, 404, hubv1.CodeNotFound},
		"no such index":               {"2", admin, `{"executor_id": "pool:` + strong.ID + `"}`, 404, hubv1.CodeNotFound},
		"an index beyond all numbers": {"99999999999999999999", admin, `{"executor_id": "pool:` + strong.ID + `"}`, 404, hubv1.CodeNotFound},
		"a pool that is too little":   {"0", admin, `{"executor_id": "pool:` + weak.ID + `"}`, 409, hubv1.CodeRequirementsUnmet},
		"no such pool":                {"0", admin, `{"executor_id": "pool:nope"}`, 404, hubv1.CodeNotFound},
		"an executor of another kind": {"0", admin, `{"executor_id": "local"}`, 422, hubv1.CodeInvalid},
		"a runner":                    {"0", admin, `{"executor_id": "` + runner + `"}`, 422, hubv1.CodeInvalid},
		"a runner as a pool":          {"0", admin, `{"executor_id": "pool:` + runner + `"}`, 404, hubv1.CodeNotFound},
		"our own words":               {"0", admin, `{"executorId": "pool:` + strong.ID + `"}`, 422, hubv1.CodeInvalid},
	} {
		status, _, answer := p.ask(http.MethodPost, "/api/projects/"+test.index+"/executor", test.bearer, test.body)
		var problem hubv1.Problem
		if err := json.Unmarshal(answer, &problem); err != nil || status != test.status || problem.Code != test.code {
			t.Errorf("%s: %d %s", name, status, answer)
		}
		if test.status == http.StatusNotFound && strings.Contains(string(answer), "#") || test.index == "99999999999999999999" && !strings.Contains(string(answer), "no project of index "+test.index) {
			t.Errorf("%s: in other words than it was asked in: %s", name, answer)
		}
		if test.bearer == blind && strings.Contains(string(answer), "app") {
			t.Errorf("%s learns its name: %s", name, answer)
		}
	}
	if project, err := p.admin.GetProject(p.ctx(), "app"); err != nil || project.ExecutorID != "" {
		t.Fatalf("it is bound: %+v, %v", project, err)
	}
	bind := func(index string, pool hubv1.Pool) (project hubv1.Project) {
		t.Helper()
		status, _, answer := p.ask(http.MethodPost, "/api/projects/"+index+"/executor", admin, `{"executor_id": "pool:`+pool.ID+`"}`)
		if err := json.Unmarshal(answer, &project); err != nil || status != http.StatusOK || project.ExecutorID != "pool:"+pool.ID {
			t.Fatalf("answered %d with %s", status, answer)
		}
		return project
	}
	if got := bind("0", strong); got.Name != "app" || got.Index != 0 || got.Owner != "user:admin" {
		t.Errorf("bound is %+v", got)
	}
	if got := bind("1", weak); got.Name != "0" || got.Index != 1 {
		t.Errorf("bound is %+v", got)
	}
	if got := bind("app", strong); got.Index != 0 {
		t.Errorf("bound is %+v", got)
	}
}

// What needs a runner at once is refused where it would wait, and nothing of it
// is left; where a runner is free, that one has it.
func TestACallThatNeedsARunnerAtOnce(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	request := hubv1.StartRunRequest{Project: "app", Command: []string{"true"}, NoWait: true}
	_, err := r.admin.StartRun(r.ctx(), request, "one")
	if p := wantCode(t, err, hubv1.CodeWaitingForCapacity); p.Status != http.StatusConflict || !strings.Contains(p.Detail, "no controller of it has been in contact") || p.Remedy == "" {
		t.Errorf("refused with %+v", p)
	}
	if runs, err := r.admin.ListRuns(r.ctx(), "app", 10); err != nil || len(runs) != 0 {
		t.Errorf("left are %+v, %v", runs, err)
	}
	_, runner := r.enroll(controller, "runner-one")
	var run hubv1.Run
	got := until(t, runner.RunnerWatch(r.ctx()), "the runner has the run", func(s hubv1.RunnerSnapshot) bool {
		if run.ID == "" { // once it listens
			run, err = r.admin.StartRun(r.ctx(), request, "one")
			check(t, err)
		}
		return s.Run != nil
	})
	if run.State != hubv1.RunHanded || got.Run.RunID != run.ID {
		t.Errorf("the run is %s, and the runner got %+v", run.State, got.Run)
	}
}

// Any bytes in any pieces, each sent by several at once and again after the hub
// started again: the log is what was written, once.
func TestALogIsWholeWhateverIsRepeated(t *testing.T) {
	dir := t.TempDir()
	r := serveIn(t, dir, nil)
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	run := r.run("app")
	_, runner := r.enroll(controller, "runner-one")
	until(t, runner.RunnerWatch(r.ctx()), "the runner has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	session := runner
	rnd := rand.New(rand.NewPCG(1, 2))
	want := append(bytes.Repeat([]byte("0123456789"), 1<<20), 0, 0xff, '\r', '\n') // a line of 10 MiB
	for range 100_000 {
		want = append(want, byte(rnd.Uint32()))
	}
	for offset := int64(0); offset < int64(len(want)); {
		piece := want[offset:min(offset+1+rnd.Int64N(1<<20), int64(len(want)))]
		var group sync.WaitGroup
		for range 3 {
			group.Go(func() { appendOrBehind(t, r, session.AppendLog, run.ID, offset, piece) })
		}
		group.Wait()
		offset += int64(len(piece))
		_, err := session.AppendLog(r.ctx(), run.ID, offset+7, []byte("ahead"))
		if p := wantCode(t, err, hubv1.CodeLogOffset); p.Offset == nil || *p.Offset != offset {
			t.Fatalf("the hub wants the log from %v, want %d", p.Offset, offset)
		}
	}
	check(t, session.RunResult(r.ctx(), run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: new(int32(0))}))
	r.stop()
	r = serveIn(t, dir, nil)
	for _, offset := range []int64{0, 1, 5 << 20, int64(len(want)) - 1, int64(len(want)), int64(len(want)) + 1} {
		log, err := r.admin.Logs(r.ctx(), run.ID, offset, true)
		check(t, err)
		got, err := io.ReadAll(log)
		check(t, err)
		if !bytes.Equal(got, want[min(offset, int64(len(want))):]) {
			t.Errorf("from %d there are %d bytes, or others", offset, len(got))
		}
	}
}

func TestAPartOfALogIsRead(t *testing.T) {
	r := serve(t, nil)
	pool, controller := r.pool("gpu", 1)
	r.project("app", pool)
	run := r.run("app")
	_, runner := r.enroll(controller, "runner-one")
	until(t, runner.RunnerWatch(r.ctx()), "the runner has the run", func(s hubv1.RunnerSnapshot) bool { return s.Run != nil })
	must(t)(runner.AppendLog(r.ctx(), run.ID, 0, []byte("01234")))
	must(t)(runner.AppendLog(r.ctx(), run.ID, 5, []byte("56789")))
	token := r.firstToken()
	transport := pinned(t, r.pin)
	defer transport.CloseIdleConnections()
	for query, want := range map[string]string{
		"offset=3&limit=4": "3456", "limit=5": "01234", "offset=8&limit=100": "89", "offset=10&limit=1": "", "offset=2&limit=3&follow=true": "234", "offset=7": "789",
	} {
		request, err := http.NewRequestWithContext(r.ctx(), http.MethodGet, "https://"+r.addr+"/api/v1/runs/"+run.ID+"/logs?"+query, nil)
		check(t, err)
		request.Header.Set("Authorization", "Bearer "+token)
		response, err := transport.RoundTrip(request)
		check(t, err)
		got, err := io.ReadAll(response.Body)
		check(t, errors.Join(err, response.Body.Close()))
		if string(got) != want {
			t.Errorf("%s gives %q", query, got)
		}
	}
}

// appendOrBehind appends a piece that others append too: one of them does, and
// the others are told where the log goes on.
func appendOrBehind(t *testing.T, r *running, send func(context.Context, string, int64, []byte) (int64, error), run string, offset int64, piece []byte) {
	t.Helper()
	end := offset + int64(len(piece))
	next, err := send(r.ctx(), run, offset, piece)
	var p *hubv1.Problem
	switch {
	case err == nil && next == end:
	case errors.As(err, &p) && p.Code == hubv1.CodeLogOffset && p.Offset != nil && *p.Offset == end:
	default:
		t.Errorf("appending at %d: %d, %v", offset, next, err)
	}
}
