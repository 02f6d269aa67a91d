package hub_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
)

// A pool that a token's ceiling hides is hidden with its projects and runs, in
// each operation that names one of them or lists them.
func TestACeilingHoldsForProjectsAndRuns(t *testing.T) {
	r := serve(t, nil)
	us, _ := r.pool("us-one", 1)
	eu, _ := r.pool("eu-one", 1)
	r.project("theirs", us)
	project, err := r.admin.GetProject(r.ctx(), "theirs")
	check(t, err)
	r.project("mine", eu)
	theirs, mine := r.run("theirs"), r.run("mine")
	r.project("moved", us)
	old := r.run("moved") // it was for the pool that the project is not bound to any more
	must(t)(r.admin.BindProject(r.ctx(), "moved", "pool:"+eu.ID))
	made := r.token(r.admin, hubv1.CreateTokenRequest{Name: "eu", Ceiling: &hubv1.Ceiling{Names: []string{"eu-*"}}, Scopes: []hubv1.Permission{
		hubv1.PermissionExecutorRead, hubv1.PermissionExecutorManage, hubv1.PermissionProjectRead, hubv1.PermissionProjectManage,
		hubv1.PermissionRunRead, hubv1.PermissionRunStart, hubv1.PermissionRunCancel,
	}})
	bodies := map[string]string{
		"POST /api/v1/projects/{project}/executor": `{"executorId":"pool:` + eu.ID + `"}`,
		"POST /api/projects/{idx}/executor":        `{"executor_id":"pool:` + eu.ID + `"}`,
	}
	tried := 0
	for _, o := range r.operations() {
		if !strings.Contains(o.path, "{project}") && !strings.Contains(o.path, "{idx}") && !strings.Contains(o.path, "{run}") && !strings.Contains(o.path, "{pool}") {
			continue
		}
		for _, run := range []string{theirs.ID, old.ID} {
			for _, project := range []string{"theirs", project.ID} {
				tried++
				path := o.at(map[string]string{"project": project, "idx": project, "run": run, "pool": us.ID, "credential": "c", "user": "u"})
				if status, _, answer := r.ask(o.method, path, made.Secret, bodies[o.method+" "+o.path]); status != http.StatusNotFound || strings.Contains(string(answer), "us-one") {
					t.Errorf("%s %s: %d %s", o.method, path, status, answer)
				}
			}
		}
	}
	if tried < 20 {
		t.Errorf("only %d requests were made", tried)
	}
	if status, _, answer := r.ask("POST", "/api/v1/runs", made.Secret, `{"project":"theirs","command":["true"]}`); status != http.StatusNotFound {
		t.Errorf("start one of others: %d %s", status, answer)
	}
	if status, _, answer := r.ask("POST", "/api/v1/projects/mine/executor", made.Secret, `{"executorId":"pool:`+us.ID+`"}`); status != http.StatusNotFound || strings.Contains(string(answer), "us-one") {
		t.Errorf("bind to a hidden pool: %d %s", status, answer)
	}
	for _, path := range []string{"runs", "runs?project=moved", "runs?project=theirs", "projects", "pools"} {
		_, _, answer := r.ask("GET", "/api/v1/"+path, made.Secret, "")
		for _, hidden := range []string{us.ID, "us-one", `"theirs"`, theirs.ID, old.ID} {
			if strings.Contains(strings.ReplaceAll(string(answer), `no project \"theirs\"`, ""), hidden) {
				t.Errorf("%s shows %s: %s", path, hidden, answer)
			}
		}
	}
	client := r.client(made.Secret)
	runs, err := client.ListRuns(r.ctx(), "", 1)
	check(t, err)
	if len(runs) != 1 || runs[0].ID != mine.ID {
		t.Errorf("the runs are %+v", runs)
	}
	must(t)(client.CancelRun(r.ctx(), mine.ID))
	must(t)(client.StartRun(r.ctx(), hubv1.StartRunRequest{Project: "mine", Command: []string{"true"}}, ""))
	if run, err := r.admin.GetRun(r.ctx(), theirs.ID); err != nil || run.State != hubv1.RunQueued {
		t.Errorf("the run of others is %+v: %v", run, err)
	}
}

// What another token of the user made is not shown for its Idempotency-Key.
func TestABoundedTokenHasItsOwnKeys(t *testing.T) {
	r := serve(t, nil)
	r.pool("us-one", 1)
	made := r.token(r.admin, hubv1.CreateTokenRequest{Name: "eu", Ceiling: &hubv1.Ceiling{Names: []string{"eu-*"}},
		Scopes: []hubv1.Permission{hubv1.PermissionExecutorManage}})
	ask := func(bearer string) (int, string) {
		transport := pinned(t, r.pin)
		defer transport.CloseIdleConnections()
		request, err := http.NewRequestWithContext(r.ctx(), "POST", "https://"+r.addr+"/api/v1/pools", strings.NewReader(`{"name":"us-two","maxRunners":1}`))
		check(t, err)
		request.Header.Set("Content-Type", "application/json")
		request.Header.Set("Idempotency-Key", "key")
		request.Header.Set("Authorization", "Bearer "+bearer)
		response, err := transport.RoundTrip(request)
		check(t, err)
		defer func() { check(t, response.Body.Close()) }()
		var answer json.RawMessage
		check(t, json.NewDecoder(response.Body).Decode(&answer))
		return response.StatusCode, string(answer)
	}
	whole := r.token(r.admin, hubv1.CreateTokenRequest{Name: "whole"}).Secret
	for range 2 {
		if status, answer := ask(whole); status != http.StatusCreated {
			t.Fatalf("%d %s", status, answer)
		}
	}
	if status, answer := ask(made.Secret); status != http.StatusForbidden {
		t.Errorf("the key of another token: %d %s", status, answer)
	}
}
