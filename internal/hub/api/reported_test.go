package api_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/hub/token"
	"cloop.dev/cloop/schemas"
)

// explained are the texts in which machines explain something, or which are kept
// nowhere: a credential in them is taken out, whatever else they are is shown so
// that a terminal obeys none of it. Every other text of their APIs is refused
// where it is not what it is for, also one that is new.
var explained = map[string]bool{
	"enroll body.token": true, "succeed-credential body.credential": true, "bye body.reason": true, "run-result body.error": true,
	"runner-gone body.reason": true, "runner-gone body.message": true, "set-refusal body.message": true,
}

// paths are where the texts of a sample are.
func paths(at string, value any) (out []string) {
	switch value := value.(type) {
	case string:
		return []string{at}
	case []any:
		for _, item := range value {
			out = append(out, paths(at, item)...)
		}
	case map[string]any:
		for key, item := range value {
			out = append(out, paths(at+"."+key, item)...)
		}
	}
	return out
}

// put is a copy of a sample with another text at a path.
func put(value any, path, at, text string) any {
	switch value := value.(type) {
	case string:
		if at == path {
			return text
		}
	case []any:
		out := []any{}
		for _, item := range value {
			out = append(out, put(item, path, at, text))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for key, item := range value {
			out[key] = put(item, path, at+"."+key, text)
		}
		return out
	}
	return value
}

func TestWhatMachinesReportIsHeldToWhatItIsFor(t *testing.T) {
	validator, err := schemas.NewValidator()
	check(t, err)
	h := newHub(t, validator, nil)
	tried := map[string]bool{}
	for _, op := range operations(t, h.handler) {
		if !strings.HasPrefix(op.path, "/pool/") && !strings.HasPrefix(op.path, "/runner/") || op.contentType != "" && op.contentType != "application/json" {
			continue
		}
		refused := func(where, text string, in request) {
			t.Helper()
			tried[op.id+" "+where] = true
			in.method, in.contentType = op.method, op.contentType
			answer := h.send(in)
			if answer.Code != http.StatusUnprocessableEntity && answer.Code != http.StatusBadRequest || !strings.Contains(answer.Body.String(), where) {
				t.Errorf("%s with %q at %s is answered %d %.300s", op.id, text, where, answer.Code, answer.Body)
			}
		}
		credential := token.New(token.Runner).Reveal()
		for _, text := range []string{credential, "x" + credential, "a\x1b[31m", "a\nb"} {
			for _, name := range op.queries {
				refused("query", text, request{target: h.target(op, "") + "?" + url.Values{name: {text}}.Encode()})
			}
			for _, path := range paths("body", op.sample) {
				if !explained[op.id+" "+path] {
					refused(path, text, request{target: h.target(op, ""), body: encoded(put(op.sample, path, "body", text))})
				}
			}
		}
	}
	for _, want := range []string{"enroll body.name", "enroll body.build", "enroll body.features", "run-started body.commit", "run-result body.signal",
		"mint-runner body.key", "controller-watch query"} {
		if !tried[want] {
			t.Errorf("%s is not tried", want)
		}
	}
	for _, commit := range []string{"abc", strings.Repeat("g", 40), strings.Repeat("a", 41), "HEAD"} {
		in := request{method: "POST", target: "/runner/v1/runs/" + h.names["run"] + "/started", contentType: "application/json",
			body: encoded(map[string]any{"attempt": 1, "commit": commit, "startedAt": "2026-01-02T03:04:05Z"})}
		if answer := h.send(in); answer.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Body.String(), "the hash of a commit") {
			t.Errorf("commit %s is answered %d %s", commit, answer.Code, answer.Body)
		}
	}
}
