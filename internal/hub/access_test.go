package hub_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hubclient"
)

// user makes a user with a role, unless that is empty, and returns its client.
func (r *running) user(name, role, project string) *hubclient.Client {
	r.t.Helper()
	must(r.t)(r.admin.CreateUser(r.ctx(), hubv1.CreateUserRequest{Name: name}))
	if role != "" {
		must(r.t)(r.admin.GiveRole(r.ctx(), role, hubv1.BindingRequest{Subject: "user:" + name, Project: project}))
	}
	made := r.token(r.admin, hubv1.CreateTokenRequest{Name: "test", User: name})
	return r.client(made.Secret)
}

func (r *running) token(maker *hubclient.Client, request hubv1.CreateTokenRequest) hubv1.Token {
	r.t.Helper()
	made, err := maker.CreateToken(r.ctx(), request)
	check(r.t, err)
	return made
}

// ask sends a request past the client and returns the answer.
func (r *running) ask(method, path, bearer, body string) (status int, header http.Header, answer []byte) {
	r.t.Helper()
	return r.askWith(method, path, bearer, body, nil)
}

// askWith is ask with more headers.
func (r *running) askWith(method, path, bearer, body string, headers map[string]string) (status int, header http.Header, answer []byte) {
	r.t.Helper()
	transport := pinned(r.t, r.pin)
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(r.ctx(), method, "https://"+r.addr+path, strings.NewReader(body))
	check(r.t, err)
	request.Header.Set("Content-Type", "application/json")
	for name, value := range headers {
		request.Header.Set(name, value)
	}
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	response, err := transport.RoundTrip(request)
	check(r.t, err)
	defer func() { _ = response.Body.Close() }()
	answer, err = io.ReadAll(response.Body)
	check(r.t, err)
	return response.StatusCode, response.Header, answer
}

// operation is one of the API's, as it describes itself.
type operation struct {
	method, path, permission string
}

// operations lists those of people.
func (r *running) operations() []operation {
	r.t.Helper()
	var description struct {
		Paths map[string]map[string]struct {
			Permission string `json:"x-cloop-permission"`
		} `json:"paths"`
	}
	check(r.t, json.Unmarshal([]byte(r.page("/openapi.json")), &description))
	var out []operation
	for path, methods := range description.Paths {
		for method, o := range methods {
			if strings.HasPrefix(path, "/api/") {
				out = append(out, operation{strings.ToUpper(method), path, o.Permission})
			}
		}
	}
	return out
}

// at names an object of each kind in a path.
func (o operation) at(names map[string]string) string {
	path := o.path
	for name, value := range names {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	return path
}

func TestEveryOperationNeedsItsPermission(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("gpu", 1)
	r.project("app", pool)
	run := r.run("app")
	nobody := r.token(r.admin, hubv1.CreateTokenRequest{Name: "t", User: r.plain("nobody")}).Secret
	there := map[string]string{"pool": "gpu", "project": "app", "run": run.ID, "user": "nobody", "group": "g", "role": "viewer", "sync": "s", "token": "x", "idx": "app", "credential": "c"}
	gone := map[string]string{"pool": "nowhere", "project": "nowhere", "run": "nowhere", "user": "nowhere", "group": "nowhere", "role": "nowhere", "sync": "nowhere", "token": "nowhere", "idx": "nowhere", "credential": "nowhere"}
	self := map[string]bool{"GET /api/v1/hub": true, "GET /api/v1/self": true, "GET /api/v1/tokens": true, "POST /api/v1/tokens": true, "DELETE /api/v1/tokens/{token}": true}
	seen := map[hubv1.Permission]bool{}
	operations := r.operations()
	if len(operations) < 30 {
		t.Fatalf("the API describes %d operations", len(operations))
	}
	for _, o := range operations {
		t.Run(o.method+" "+o.path, func(t *testing.T) {
			if status, _, _ := r.ask(o.method, o.at(there), "", ""); status != http.StatusUnauthorized {
				t.Errorf("without a token: %d", status)
			}
			status, _, answer := r.ask(o.method, o.at(there), nobody, "")
			if self[o.method+" "+o.path] {
				if o.permission != "self" || status == http.StatusForbidden {
					t.Errorf("what is one's own needs %s: %d", o.permission, status)
				}
				return
			}
			p := hubv1.Permission(o.permission)
			seen[p] = true
			var problem hubv1.Problem
			if err := json.Unmarshal(answer, &problem); err != nil || status != http.StatusForbidden || problem.Code != hubv1.CodeForbidden ||
				!access.Known(p) || !strings.Contains(problem.Detail, "user:nobody needs "+o.permission) || !strings.Contains(problem.Remedy, "cloop hub role give") {
				t.Errorf("without %s: %d %s", o.permission, status, answer)
			}
			// With that permission and those to see objects, and no other.
			role := strings.ReplaceAll(o.permission, ".", "-")
			if _, err := r.admin.GetUser(r.ctx(), role); err != nil {
				must(t)(r.admin.PutRole(r.ctx(), role, hubv1.RoleRequest{Permissions: []hubv1.Permission{p, hubv1.PermissionProjectRead, hubv1.PermissionRunRead}}))
				r.plain(role)
				must(t)(r.admin.GiveRole(r.ctx(), role, hubv1.BindingRequest{Subject: "user:" + role}))
			}
			enough := r.token(r.admin, hubv1.CreateTokenRequest{Name: "t", User: role}).Secret
			if status, _, answer := r.ask(o.method, o.at(gone), enough, ""); status == http.StatusForbidden || status == http.StatusUnauthorized {
				t.Errorf("with %s: %d %s", o.permission, status, answer)
			}
		})
	}
	for _, about := range access.Permissions() {
		if !seen[about.Permission] {
			t.Errorf("no operation needs %s", about.Permission)
		}
	}
}

// plain makes a user without roles and returns its name.
func (r *running) plain(name string) string {
	r.t.Helper()
	must(r.t)(r.admin.CreateUser(r.ctx(), hubv1.CreateUserRequest{Name: name}))
	return name
}

func TestWhatOneMayNotReadIsNotThere(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("gpu", 1)
	r.project("app", pool)
	r.project("other", pool)
	mine, theirs := r.run("app"), r.run("other")
	eve := r.user("eve", "developer", "app")
	projects, err := eve.ListProjects(r.ctx())
	check(t, err)
	runs, err := eve.ListRuns(r.ctx(), "", 100)
	check(t, err)
	if len(projects) != 1 || projects[0].Name != "app" || len(runs) != 1 || runs[0].ID != mine.ID {
		t.Errorf("lists %v and %v", projects, runs)
	}
	must(t)(eve.GetRun(r.ctx(), mine.ID))
	must(t)(eve.CancelRun(r.ctx(), mine.ID))
	again, err := eve.StartRun(r.ctx(), hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, "")
	check(t, err)
	if again.StartedBy != "user:eve" {
		t.Errorf("the run is of %s", again.StartedBy)
	}
	for what, err := range map[string]error{
		"project": errOf(eve.GetProject(r.ctx(), "other")),
		"run":     errOf(eve.GetRun(r.ctx(), theirs.ID)),
		"log":     errOf(eve.Logs(r.ctx(), theirs.ID, 0, false)),
		"cancel":  errOf(eve.CancelRun(r.ctx(), theirs.ID)),
		"runs":    errOf(eve.ListRuns(r.ctx(), "other", 10)),
		"start":   errOf(eve.StartRun(r.ctx(), hubv1.StartRunRequest{Project: "other", Command: []string{"true"}}, "")),
	} {
		if p := wantCode(t, err, hubv1.CodeNotFound); !strings.HasPrefix(p.Detail, "there is no ") {
			t.Errorf("%s: %s", what, p.Detail)
		}
	}
	// It is seen, but may not be done.
	_, err = eve.BindProject(r.ctx(), "app", "pool:"+pool.ID)
	wantCode(t, err, hubv1.CodeForbidden)
	_, err = eve.ListPools(r.ctx())
	wantCode(t, err, hubv1.CodeForbidden)
	_, err = eve.ListTokens(r.ctx(), hubclient.TokenQuery{User: "admin"})
	wantCode(t, err, hubv1.CodeForbidden)
	others, err := r.admin.ListTokens(r.ctx(), hubclient.TokenQuery{})
	check(t, err)
	wantCode(t, eve.RevokeToken(r.ctx(), others[0].ID), hubv1.CodeNotFound)
}

func errOf(_ any, err error) error { return err }

func TestManagingPoolsNeedsItsPermission(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("gpu", 1)
	r.project("app", pool)
	acts := func(c *hubclient.Client) []error {
		five := int32(5)
		return []error{
			errOf(c.CreatePool(r.ctx(), hubv1.CreatePoolRequest{Name: "new", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})),
			errOf(c.UpdatePool(r.ctx(), "gpu", "", hubv1.UpdatePoolRequest{MaxRunners: &five})),
			errOf(c.Cordon(r.ctx(), "gpu", "x")),
			errOf(c.Uncordon(r.ctx(), "gpu")),
			errOf(c.CreateCredential(r.ctx(), "gpu")),
			errOf(c.BindProject(r.ctx(), "app", "pool:"+pool.ID)),
			errOf(c.RevokePool(r.ctx(), "gpu")),
		}
	}
	for _, err := range acts(r.user("vera", "viewer", "")) {
		if p := wantCode(t, err, hubv1.CodeForbidden); !strings.Contains(p.Detail, "user:vera needs executor.manage") {
			t.Errorf("refused with %s", p.Detail)
		}
	}
	for i, err := range acts(r.user("oz", "operator", "")) {
		if err != nil {
			t.Errorf("act %d of an operator: %v", i, err)
		}
	}
}

func TestATokenWithACeilingReachesItsPoolsOnly(t *testing.T) {
	r := serve(t, nil)
	r.pool("us-one", 1)
	made := r.token(r.admin, hubv1.CreateTokenRequest{
		Name: "fleet-eu", Scopes: []hubv1.Permission{hubv1.PermissionExecutorRead, hubv1.PermissionExecutorManage},
		Ceiling: &hubv1.Ceiling{Names: []string{"eu-*"}, MaxRunners: 3, Audience: []string{"group:eu-*"}},
	})
	eu := r.client(made.Secret)
	audience := []string{"group:eu-all"}
	must(t)(eu.CreatePool(r.ctx(), hubv1.CreatePoolRequest{Name: "eu-one", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 3, Audience: audience}}))
	pools, err := eu.ListAllPools(r.ctx())
	check(t, err)
	if len(pools) != 1 || pools[0].Name != "eu-one" {
		t.Errorf("lists %v", pools)
	}
	_, err = eu.CreatePool(r.ctx(), hubv1.CreatePoolRequest{Name: "us-two", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 9}})
	p := wantCode(t, err, hubv1.CodeForbidden)
	var fields []string
	for _, field := range p.Errors {
		fields = append(fields, field.Location+": "+field.Message)
	}
	if got := strings.Join(fields, "; "); got != "body.name: us-two matches none of eu-*; body.maxRunners: 9 is above 3; body.audience: anyone is more than group:eu-*" {
		t.Errorf("refused for %s", got)
	}
	_, err = eu.GetPool(r.ctx(), "us-one")
	wantCode(t, err, hubv1.CodeNotFound)
	_, err = eu.Cordon(r.ctx(), "us-one", "x")
	wantCode(t, err, hubv1.CodeNotFound)
	four := int32(4)
	_, err = eu.UpdatePool(r.ctx(), "eu-one", "", hubv1.UpdatePoolRequest{MaxRunners: &four})
	wantCode(t, err, hubv1.CodeForbidden)
	_, err = eu.ListRuns(r.ctx(), "", 10)
	if p := wantCode(t, err, hubv1.CodeForbidden); !strings.Contains(p.Detail, "not among its scopes") {
		t.Errorf("refused with %s", p.Detail)
	}
	for what, request := range map[string]hubv1.CreateTokenRequest{
		"no scopes":        {Name: "x", Ceiling: &hubv1.Ceiling{MaxRunners: 1}},
		"beyond a ceiling": {Name: "x", Ceiling: &hubv1.Ceiling{MaxRunners: 1}, Scopes: []hubv1.Permission{hubv1.PermissionAuditRead}},
		"no permission":    {Name: "x", Scopes: []hubv1.Permission{"frob"}},
		"no pattern":       {Name: "x", Ceiling: &hubv1.Ceiling{Names: []string{"["}}, Scopes: []hubv1.Permission{hubv1.PermissionExecutorRead}},
	} {
		_, err := r.admin.CreateToken(r.ctx(), request)
		if p := wantCode(t, err, hubv1.CodeInvalid); len(p.Errors) == 0 {
			t.Errorf("%s: %v", what, err)
		}
	}
	check(t, r.admin.RevokeToken(r.ctx(), made.ID))
	_, err = eu.ListPools(r.ctx())
	wantCode(t, err, hubv1.CodeUnauthenticated)
}

func TestAWatchEndsWithTheRight(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("gpu", 1)
	r.project("app", pool)
	run := r.run("app")
	eve, ctx := r.user("eve", "developer", "app"), r.ctx()
	ended := make(chan string, 2)
	seen := make(chan struct{}, 1)
	go func() {
		for _, err := range eve.WatchRun(ctx, run.ID) {
			if err == nil {
				seen <- struct{}{}
			}
		}
		ended <- "watch"
	}()
	<-seen
	log, err := eve.Logs(ctx, run.ID, 0, true)
	check(t, err)
	go func() {
		if _, err := io.ReadAll(log); err == nil {
			t.Error("the log seems whole")
		}
		_ = log.Close()
		ended <- "log"
	}()
	must(t)(r.admin.TakeRole(ctx, "developer", hubv1.BindingRequest{Subject: "user:eve", Project: "app"}))
	for left := 2; left > 0; {
		select {
		case <-ended:
			left--
		case <-ctx.Done():
			t.Fatal("a stream goes on")
		case <-time.After(time.Millisecond):
			// Each looks again when it says that it is alive.
			r.clock.Step(15 * time.Second)
		}
	}
}

func TestWhoAsksTooOftenIsToldToWait(t *testing.T) {
	r := serve(t, func(o *hub.Options) {
		o.Rates = api.Rates{Users: api.Rate{PerSecond: 1, Burst: 20}, Machines: api.Rate{PerSecond: 1, Burst: 5}, Failures: api.Rate{PerSecond: 0.5, Burst: 3}}
	})
	_, controller := r.pool("gpu", 100)
	secret := r.token(r.admin, hubv1.CreateTokenRequest{Name: "t"}).Secret
	refused := func(bearer string, served int) {
		t.Helper()
		for i := range served {
			if status, _, answer := r.ask("GET", "/api/v1/self", bearer, ""); status == http.StatusTooManyRequests {
				t.Fatalf("request %d of %d: %s", i, served, answer)
			}
		}
		status, header, answer := r.ask("GET", "/api/v1/self", bearer, "")
		var p hubv1.Problem
		check(t, json.Unmarshal(answer, &p))
		if status != http.StatusTooManyRequests || p.Code != hubv1.CodeRateLimited || header.Get("Retry-After") != fmt.Sprint(p.RetryAfterSeconds) ||
			p.RetryAfterSeconds < 1 || header.Get("Content-Type") != "application/problem+json" {
			t.Fatalf("one too many: %d %v %s", status, header, answer)
		}
	}
	refused(secret, 20)
	// Another credential has its own.
	if _, err := r.admin.ListPools(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.clock.Step(2 * time.Second)
	refused(secret, 2)
	for i := range 5 {
		must(t)(controller.MintRunner(r.ctx(), fmt.Sprintf("runner-%d", i)))
	}
	if _, err := controller.MintRunner(r.ctx(), "runner-9"); err == nil || !strings.Contains(err.Error(), "more often") || !errors.Is(err, hubclient.ErrUnavailable) {
		t.Errorf("a controller that asks too often gets %v", err)
	}

	refused("cloop_usr1_guess", 3)
	// Nobody locks out those who share the address.
	must(t)(r.admin.ListPools(r.ctx()))
	if _, err := r.client("").Enroll(r.ctx(), hubv1.EnrollRequest{Token: "cloop_run1_guess", Name: "x"}); !errors.Is(err, hubclient.ErrUnavailable) {
		t.Errorf("a guessed runner token gets %v", err)
	}
	r.clock.Step(2 * time.Second)
	refused("cloop_usr1_guess", 1)
	page := r.page("/metrics")
	for _, want := range []string{`{limit="users"} 2`, `{limit="machines"} 1`, `{limit="failures"} 3`} {
		if !strings.Contains(page, "cloop_http_rate_limited_total"+want+"\n") {
			t.Errorf("the metrics have no %s", want)
		}
	}
}

func TestTheAuditTrailIsExported(t *testing.T) {
	r := serve(t, nil)
	for i := range 700 { // more than a page, as each makes two rows
		must(t)(r.admin.CreatePool(r.ctx(), hubv1.CreatePoolRequest{Name: fmt.Sprintf("pool-%d", i), PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}}))
	}
	auditor := r.user("ada", "auditor", "")
	export, err := auditor.ExportAudit(r.ctx(), hubv1.AuditQuery{})
	check(t, err)
	whole, err := io.ReadAll(export)
	check(t, err)
	lines := bytes.Split(bytes.TrimSpace(whole), []byte("\n"))
	last := int64(0)
	for i, line := range lines {
		var row hubv1.AuditRecord
		check(t, json.Unmarshal(line, &row))
		if row.ID <= last || row.Action == "" || row.Actor == "" {
			t.Fatalf("line %d is %s", i, line)
		}
		last = row.ID
	}
	if len(lines) < 1400 {
		t.Errorf("%d lines", len(lines))
	}
	page, err := auditor.Audit(r.ctx(), hubv1.AuditQuery{Cursor: last - 3, Limit: 2})
	check(t, err)
	if len(page.Items) != 2 || page.Items[0].ID != last-2 || page.Next != last-1 || page.Items[0].Token == "" {
		t.Errorf("the page is %+v", page)
	}
	_, err = r.user("vera", "viewer", "").ExportAudit(context.Background(), hubv1.AuditQuery{})
	wantCode(t, err, hubv1.CodeForbidden)
}
