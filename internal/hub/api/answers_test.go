package api_test

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/schemas"
)

// problemOf is what a request is refused with.
func (h *hub) problemOf(in request) (hubv1.Problem, http.Header) {
	h.t.Helper()
	answer := h.send(in)
	h.judge(in, answer)
	var p hubv1.Problem
	check(h.t, json.Unmarshal(answer.Body.Bytes(), &p))
	return p, answer.Header()
}

// parameter is one of a path.
var parameter = regexp.MustCompile(`\{[^}]*\}`)

func validatorOf(t *testing.T) *schemas.Validator {
	t.Helper()
	validator, err := schemas.NewValidator()
	check(t, err)
	return validator
}

func TestAKnownPathWithAnotherMethodSaysWhichItTakes(t *testing.T) {
	h := newHub(t, validatorOf(t), nil)
	takes, targets := map[string][]string{}, map[string]string{}
	for _, op := range operations(t, h.handler) {
		if strings.HasPrefix(op.path, "/webhooks/") {
			continue // beside this handler
		}
		// Two operations may name one part of a path differently.
		path := parameter.ReplaceAllString(op.path, "{}")
		targets[path], takes[path] = h.target(op, ""), append(takes[path], op.method)
		if op.method == http.MethodGet {
			takes[path] = append(takes[path], http.MethodHead)
		}
	}
	for path, methods := range takes {
		target := targets[path]
		for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"} {
			if slices.Contains(methods, method) {
				continue
			}
			p, header := h.problemOf(request{method: method, target: target})
			allow := strings.Split(header.Get("Allow"), ", ")
			slices.Sort(allow)
			slices.Sort(methods)
			if p.Status != http.StatusMethodNotAllowed || p.Code != hubv1.CodeMethodNotAllowed || !slices.Equal(allow, methods) {
				t.Errorf("%s %s, which takes %v, is answered %+v with Allow %v", method, target, methods, p, allow)
			}
		}
	}
	if p, header := h.problemOf(request{method: "GET", target: "/api/v1/nothing"}); p.Code != hubv1.CodeNotFound || header.Get("Allow") != "" {
		t.Errorf("a path that there is not is answered %+v", p)
	}
}

// plain is a sound request of an operation, with a token where people ask.
func (h *hub) plain(op operation) request {
	in := request{method: op.method, target: h.target(op, ""), contentType: op.contentType}
	if strings.HasPrefix(op.path, "/api/") {
		in.header = map[string]string{"Authorization": "Bearer " + h.tokens["/api/v1"]}
	}
	if op.sample != nil {
		in.body = encoded(op.sample)
	}
	return in
}

func TestAQueryThatAnOperationDoesNotTakeIsRefused(t *testing.T) {
	h := newHub(t, validatorOf(t), nil)
	for _, op := range operations(t, h.handler) {
		if strings.HasPrefix(op.path, "/webhooks/") {
			continue
		}
		in := h.plain(op)
		for query, want := range map[string]string{"actr=bob": "query.actr", "%zz": "query", "a;b": "query"} {
			asked := in
			asked.target += "?" + query
			p, _ := h.problemOf(asked)
			if p.Code != hubv1.CodeInvalid || len(p.Errors) != 1 || p.Errors[0].Location != want {
				t.Errorf("%s with %s is answered %+v", op.id, query, p)
			}
		}
		for _, name := range op.queries {
			asked := in
			asked.target += "?" + url.Values{name: {"1", "2"}}.Encode()
			if p, _ := h.problemOf(asked); p.Code != hubv1.CodeInvalid || !strings.Contains(p.Errors[0].Message, "once") {
				t.Errorf("%s with %s twice is answered %+v", op.id, name, p)
			}
		}
	}
	p, _ := h.problemOf(request{method: "GET", target: "/api/v1/audit/export?actr=bob"})
	if !strings.Contains(p.Errors[0].Message, "it takes action, actor, ") {
		t.Errorf("what it takes is not said: %+v", p)
	}
}

// Every other test of the package that sends a request compares too.
func TestWhatAnyOperationMayBeAnsweredIsDescribed(t *testing.T) {
	h := newHub(t, validatorOf(t), nil)
	pool := request{method: "PATCH", target: "/api/v1/pools/gpu", contentType: "application/json", body: []byte(`{"maxRunners":2}`)}
	with := func(in request, change func(*request)) request { change(&in); return in }
	for _, c := range []struct {
		status int
		in     request
	}{
		{http.StatusPreconditionRequired, pool},
		{http.StatusPreconditionFailed, with(pool, func(r *request) { r.header = map[string]string{"If-Match": `"77"`} })},
		{http.StatusBadRequest, with(pool, func(r *request) { r.body = nil })},
		{http.StatusUnsupportedMediaType, with(pool, func(r *request) { r.contentType = "application/x-yaml" })},
		{http.StatusRequestEntityTooLarge, with(pool, func(r *request) { r.body = bytes.Repeat([]byte(" "), 2<<20) })},
	} {
		if answer := h.send(c.in); answer.Code != c.status {
			t.Errorf("%+.200v is answered %d %s, not %d", c.in, answer.Code, answer.Body, c.status)
		}
	}
	check(t, h.store.Close())
	for _, op := range operations(t, h.handler) {
		if strings.HasPrefix(op.path, "/webhooks/") {
			continue
		}
		in := h.plain(op)
		h.send(in) // compares what it says of a database that is closed
	}
	limited := newHub(t, validatorOf(t), func(o *api.Options) { o.Rates.Users = api.Rate{PerSecond: 0.001, Burst: 6} })
	for range 10 {
		limited.send(request{method: "GET", target: "/api/v1/pools"})
	}
}
