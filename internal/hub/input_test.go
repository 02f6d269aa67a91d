package hub_test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// raw sends a body as it is, past what the client would make of it, and returns
// the status and the problem, if it is one.
func (r *running) raw(method, path, body string) (int, hubv1.Problem) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.ctx(), method, "https://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+r.firstToken())
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // a hub of this test
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		r.t.Fatalf("%s %s %.80q: %v", method, path, body, err)
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		r.t.Fatalf("%s %s %.80q: %v", method, path, body, err)
	}
	var problem hubv1.Problem
	if err := json.NewDecoder(bytes.NewReader(answer)).Decode(&problem); err != nil {
		r.t.Fatalf("%s %s %.80q: answer %q: %v", method, path, body, answer, err)
	}
	return response.StatusCode, problem
}

// aSecret stands for what makes a credential secret.
const aSecret = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefgh"

// An address that nobody serves is shown to whoever asked for it, and logged.
func TestNoAnswerShowsACredentialOfItsPath(t *testing.T) {
	r := serve(t, nil)
	for _, credential := range []string{"cloop_usr1_" + aSecret, "%63loop_usr1_" + aSecret, "%2563loop_usr1_" + aSecret, "%252563loop%25255Fusr1_" + aSecret} {
		for _, path := range []string{"/nope/", "/api/v1/pools/", "/api/v1/nope?a=", "/webhooks/", "/api/v1/pools?", "/api/v1/audit/export?a="} {
			for _, method := range []string{"GET", "PUT", "cloop_usr1_" + aSecret} { // none is served with the last
				if _, problem := r.raw(method, path+credential, ""); strings.Contains(fmt.Sprint(problem), aSecret) {
					t.Errorf("%s %s%s: %+v", method, path, credential, problem)
				}
			}
		}
	}
	if strings.Contains(r.log.String(), aSecret) {
		t.Error("it is logged")
	}
}

func TestBadBodiesAreRefusedWithTheField(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("demo", 1)
	r.project("app", pool)
	for name, c := range map[string]struct{ method, path, body, location string }{
		"null command":             {"POST", "/api/v1/runs", `{"project":"app","command":null}`, "body.command"},
		"null body":                {"POST", "/api/v1/runs", `null`, "body"},
		"not UTF-8":                {"POST", "/api/v1/runs", "{\"project\":\"app\",\"command\":[\"a\xff\"]}", "body.command[0]"},
		"not UTF-8 nor JSON":       {"POST", "/api/v1/runs", "{\"project\":\xff", "body"},
		"half a pair in a command": {"POST", "/api/v1/runs", `{"project":"app","command":["sh","a\ud800b"]}`, "body.command[1]"},
		"half a pair in a ref":     {"POST", "/api/v1/runs", `{"project":"app","command":["a"],"ref":"\uDC00"}`, "body.ref"},
		"half a pair in a name":    {"POST", "/api/v1/projects", `{"name":"a\ud800","remote":"https://git.example.com/a"}`, "body.name"},
		"half a pair in a remote":  {"POST", "/api/v1/projects", `{"name":"a","remote":"https://git.example.com/\udbff"}`, "body.remote"},
		"half a pair in a label":   {"POST", "/api/v1/pools", `{"name":"x","maxRunners":1,"labels":{"a":"\ud83d"}}`, "body.labels.a"},
		"half a pair in an owner":  {"PATCH", "/api/v1/pools/demo", `{"owner":"user:\ud83d\u0041"}`, "body.owner"},
		"half a pair in a reason":  {"POST", "/api/v1/pools/demo/cordon", `{"reason":"node \ud800 upgrades"}`, "body.reason"},
		"half a pair in a binding": {"POST", "/api/v1/projects/app/executor", `{"executorId":"pool:\ud800"}`, "body.executorId"},
		"control in a ref":         {"POST", "/api/v1/runs", `{"project":"app","command":["a"],"ref":"a\u0085b"}`, "body.ref"},
		"bidi in a ref":            {"POST", "/api/v1/runs", `{"project":"app","command":["a"],"ref":"a\u202eb"}`, "body.ref"},
		"label key":                {"POST", "/api/v1/pools", `{"name":"x","maxRunners":1,"labels":{"a b":"c"}}`, "body.labels"},
		"label value":              {"POST", "/api/v1/pools", `{"name":"x","maxRunners":1,"labels":{"a":"\u0000"}}`, "body.labels.a"},
		"audience":                 {"POST", "/api/v1/pools", `{"name":"x","maxRunners":1,"audience":["frob"]}`, "body.audience[0]"},
		"owner":                    {"POST", "/api/v1/pools", `{"name":"x","maxRunners":1,"owner":"me"}`, "body.owner"},
		"harness":                  {"POST", "/api/v1/pools", `{"name":"x","maxRunners":1,"harness":"A B"}`, "body.harness"},
		"owner of a change":        {"PATCH", "/api/v1/pools/demo", `{"owner":"a\u0000b"}`, "body.owner"},
		"a line in a cordon":       {"POST", "/api/v1/pools/demo/cordon", `{"reason":"a\u001b[31m"}`, "body.reason"},
		"a number beyond all":      {"POST", "/api/v1/pools", `{"name":"x","maxRunners":1e400}`, "body"},
		"tags in a cordon":         {"POST", "/api/v1/pools/demo/cordon", `{"reason":"upgrade\udb40\udc41"}`, "body.reason"},
		"a hidden space in a ref":  {"POST", "/api/v1/runs", `{"project":"app","command":["a"],"ref":"ma\u200bin"}`, "body.ref"},
		"a hidden space in a URL":  {"POST", "/api/v1/projects", `{"name":"a","remote":"https://git.example.com/\u200ba"}`, "body.remote"},
		"a user in a remote":       {"POST", "/api/v1/projects", `{"name":"a","remote":"https://bot:pw@git.example.com/a"}`, "body.remote"},
		"a token in a query":       {"POST", "/api/v1/projects", `{"name":"a","remote":"https://git.example.com/a.git?access_token=x"}`, "body.remote"},
		"a private token":          {"POST", "/api/v1/projects", `{"name":"a","remote":"https://git.example.com/a.git?private_token=x"}`, "body.remote"},
		"a token in a fragment":    {"POST", "/api/v1/projects", `{"name":"a","remote":"https://git.example.com/a.git#x"}`, "body.remote"},
		"a forge's token":          {"POST", "/api/v1/projects", `{"name":"a","remote":"https://git.example.com/ghp_abcdefghijklmnopqrstuvwxyz/a"}`, "body.remote"},
		"a forge's escaped token":  {"POST", "/api/v1/projects", `{"name":"a","remote":"https://git.example.com/%67hp%5fabcdefghijklmnopqrstuvwxyz/a"}`, "body.remote"},
		"an escaped credential":    {"POST", "/api/v1/projects", `{"name":"a","remote":"https://git.example.com/%63loop_usr1_` + aSecret + `"}`, "body.remote"},
		"one escaped twice":        {"POST", "/api/v1/projects", `{"name":"a","remote":"https://git.example.com/%2563loop%255Fusr1_` + aSecret + `"}`, "body.remote"},
		"one escaped in a command": {"POST", "/api/v1/runs", `{"project":"app","command":["curl","https://h/%63loop_usr1_` + aSecret + `"]}`, "body.command[1]"},
		"blank cordon reason":      {"POST", "/api/v1/pools/demo/cordon", `{"reason":"  "}`, "body.reason"},
	} {
		t.Run(name, func(t *testing.T) {
			status, problem := r.raw(c.method, c.path, c.body)
			if status/100 != 4 || problem.Code != hubv1.CodeInvalid {
				t.Fatalf("answered %d %+v", status, problem)
			}
			if c.location == "" {
				return
			}
			for _, field := range problem.Errors {
				if field.Location == c.location {
					return
				}
			}
			t.Errorf("no error at %s: %+v", c.location, problem.Errors)
		})
	}
	if log := r.log.String(); strings.Contains(log, "panic") || strings.Contains(log, "level=ERROR") {
		t.Errorf("a bad request is logged as the hub's fault:\n%s", log)
	}
}

func TestRunsOfAProjectThatDoesNotExistAreNotAnEmptyList(t *testing.T) {
	r := serve(t, nil)
	_, err := r.admin.ListRuns(r.ctx(), "nope", 10)
	var problem *hubv1.Problem
	if !errors.As(err, &problem) || problem.Code != hubv1.CodeNotFound {
		t.Errorf("answered %v", err)
	}
}

func TestWhatAControllerSaysOfItselfIsFitToBeShown(t *testing.T) {
	r := serve(t, nil)
	_, controller := r.pool("demo", 1)
	for location, hello := range map[string]hubclient.Hello{
		"query.instance": {Instance: "a\x1b[31m"}, "query.build": {Build: "\xff"}, "query.features": {Features: []string{"a\u202e"}},
	} {
		for _, err := range controller.PoolWatch(r.ctx(), hello) {
			if p := wantCode(t, err, hubv1.CodeInvalid); len(p.Errors) != 1 || p.Errors[0].Location != location {
				t.Errorf("%s: %+v", location, p.Errors)
			}
			break
		}
	}
}
