package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/schemas"
)

// unbounded are the texts of requests that have no bound of their own, and why.
var unbounded = []string{
	"Last-Event-ID",                   // a header: the server bounds them all
	"POST /runner/v1/runs/{run}/logs", // bytes: the body's bound is theirs
}

func newBounded(t *testing.T) *hub {
	t.Helper()
	validator, err := schemas.NewValidator()
	check(t, err)
	return newHub(t, validator, nil)
}

func TestEverythingInARequestHasABound(t *testing.T) {
	h := newBounded(t)
	answer := httptest.NewRecorder()
	h.handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var document struct {
		Paths map[string]map[string]struct {
			Parameters []struct {
				Name   string
				Schema map[string]any
			}
			RequestBody struct {
				Content map[string]struct{ Schema map[string]any }
			}
		}
		Components struct{ Schemas map[string]map[string]any }
	}
	check(t, json.Unmarshal(answer.Body.Bytes(), &document))
	seen := map[string]bool{}
	looked := 0
	var walk func(at string, schema map[string]any)
	walk = func(at string, schema map[string]any) {
		if ref, isRef := schema["$ref"].(string); isRef {
			name := ref[strings.LastIndex(ref, "/")+1:]
			if !seen[name] {
				seen[name] = true
				walk(name, document.Components.Schemas[name])
			}
			return
		}
		lacks := func(bound string) {
			if schema[bound] == nil && !slices.Contains(unbounded, at) {
				t.Errorf("%s has no %s", at, bound)
			}
			looked++
		}
		types := fmt.Sprint(schema["type"]) // one, or with null
		if strings.Contains(types, "string") && schema["enum"] == nil && schema["format"] != "date-time" {
			lacks("maxLength")
		}
		if items, isList := schema["items"].(map[string]any); isList {
			lacks("maxItems")
			walk(at+"[]", items)
		}
		if values, isMap := schema["additionalProperties"].(map[string]any); isMap {
			lacks("maxProperties")
			walk(at+"{}", values)
		}
		properties, _ := schema["properties"].(map[string]any)
		for name, property := range properties {
			walk(at+"."+name, property.(map[string]any))
		}
	}
	for path, operations := range document.Paths {
		for method, operation := range operations {
			for _, parameter := range operation.Parameters {
				at := strings.ToUpper(method) + " " + path + " " + parameter.Name
				if slices.Contains(unbounded, parameter.Name) {
					at = parameter.Name
				}
				walk(at, parameter.Schema)
			}
			for _, content := range operation.RequestBody.Content {
				walk(strings.ToUpper(method)+" "+path, content.Schema)
			}
		}
	}
	if looked < 50 {
		t.Errorf("only %d bounds were looked for", looked)
	}
}

func TestACommandIsBounded(t *testing.T) {
	h := newBounded(t)
	start := func(command ...string) *httptest.ResponseRecorder {
		data, err := json.Marshal(hubv1.StartRunRequest{Project: "app", Command: command})
		check(t, err)
		return h.send(request{method: http.MethodPost, target: "/api/v1/runs", body: data, contentType: "application/json"})
	}
	long := strings.Repeat("<", hubv1.MaxCommandBytes/2-1)
	if got := start(long, long); got.Code != http.StatusCreated {
		t.Errorf("a command of the very bound is answered with %d %.300s", got.Code, got.Body)
	}
	for _, command := range [][]string{{long, long, ""}, {long + long + "<<"}, {strings.Repeat("ä", hubv1.MaxCommandBytes/2)}} {
		got := start(command...)
		if got.Code != http.StatusUnprocessableEntity || !strings.Contains(got.Body.String(), "body.command") {
			t.Errorf("a command of %d bytes is answered with %d %.300s", hubv1.CommandBytes(command), got.Code, got.Body)
		}
	}
	if got := start(long, long, ""); !strings.Contains(got.Body.String(), "takes 131073 bytes and may take 131072, each word and one behind it: put a longer script into a file of the project") {
		t.Errorf("it is told %.300s", got.Body)
	}
}

func TestAPageOfRunsLeadsToTheNext(t *testing.T) {
	h := newBounded(t)
	for range 3 {
		h.must("POST", "/api/v1/runs", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, nil)
	}
	var got []string
	next := int64(0)
	for range 2 {
		for _, query := range []string{"", "&project=app"} {
			var page hubv1.RunList
			h.must("GET", fmt.Sprintf("/api/v1/runs?limit=2&cursor=%d%s", next, query), nil, &page)
			if query == "" {
				for _, run := range page.Items {
					got = append(got, run.ID)
				}
				continue
			}
			next = page.Next
		}
	}
	slices.Sort(got)
	if len(slices.Compact(got)) != 4 || next != 0 {
		t.Errorf("the pages have %v, and %d is next", got, next)
	}
}

func TestARefusedBodyIsSpokenOfInItsOwnWords(t *testing.T) {
	h := newBounded(t)
	for _, c := range []struct {
		contentType, body, detail string
		code                      hubv1.Code
	}{
		{"application/json", strings.Repeat(" ", 1<<20+1), "the body has more than 1048576 bytes", hubv1.CodeTooLarge},
		{"text/plain", "{}", "the body's Content-Type is none that the hub takes here", hubv1.CodeMediaType},
	} {
		got := h.send(request{method: http.MethodPost, target: "/api/v1/runs", body: []byte(c.body), contentType: c.contentType})
		var p hubv1.Problem
		check(t, json.Unmarshal(got.Body.Bytes(), &p))
		if want := problem.New(c.code, "%s", c.detail); p.Code != c.code || p.Detail != c.detail || p.Remedy != want.Remedy || got.Code != want.Status {
			t.Errorf("%s is answered with %d %s", c.contentType, got.Code, got.Body)
		}
	}
}

// stalled is a body that does not arrive.
type stalled struct{}

// Read is over its time.
func (stalled) Read([]byte) (int, error) { return 0, os.ErrDeadlineExceeded }

func TestABodyThatDoesNotArriveIsSlowAndNotInvalid(t *testing.T) {
	h := newBounded(t)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://hub.example.com/api/v1/runs", stalled{})
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+h.tokens["/api/v1"])
	answer := httptest.NewRecorder()
	h.handler.ServeHTTP(answer, r)
	var p hubv1.Problem
	check(t, json.Unmarshal(answer.Body.Bytes(), &p))
	if answer.Code != http.StatusRequestTimeout || p.Code != hubv1.CodeTooSlow || p.Detail != "the body did not arrive within 30s" || !strings.Contains(p.Remedy, "send it again") {
		t.Errorf("it is answered with %d %s", answer.Code, answer.Body)
	}
}
