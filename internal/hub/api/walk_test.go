package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/hub/store/storetest"
	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

// hub is the API on a database of its own, without a network.
type hub struct {
	t       testing.TB
	store   *store.Store
	handler http.Handler
	// tokens: base path → a token that counts there.
	tokens map[string]string
	// dir holds the database.
	dir string
	// names: path parameter → something that is there.
	names map[string]string
}

// noSources reaches no repository.
type noSources struct{}

// Read knows nothing.
func (noSources) Read(context.Context, string, string) (store.Source, error) {
	return store.Source{Unknown: "no repository is reached"}, nil
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// newHub has a pool with a controller, a runner that waits, a project and a run.
func newHub(t testing.TB, validator *schemas.Validator, change func(*api.Options)) *hub {
	t.Helper()
	return newHubOn(t, "", validator, change)
}

// newHubOn is newHub on the PostgreSQL database of the URL, unless that is empty.
func newHubOn(t testing.TB, url string, validator *schemas.Validator, change func(*api.Options)) *hub {
	t.Helper()
	clock := testclock.NewFakeClock(time.Now())
	dir, err := os.MkdirTemp(t.TempDir(), "hub")
	check(t, err)
	if url == "" {
		storetest.Prepare(t, dir)
	}
	data, err := store.Open(t.Context(), store.Options{Dir: dir, URL: url, Clock: clock})
	check(t, err)
	t.Cleanup(func() { _ = data.Close() })
	stopping := make(chan struct{})
	close(stopping)
	o := api.Options{
		Store: data, Sources: noSources{}, Validator: validator, Clock: clock, Log: slog.New(slog.DiscardHandler), HeartbeatInterval: time.Second, Stopping: stopping,
		// The clock stands still, so what was taken would not come back.
		Rates:   api.Rates{Users: api.Rate{PerSecond: -1}, Machines: api.Rate{PerSecond: -1}, Failures: api.Rate{PerSecond: -1}},
		Examine: func(context.Context) (doctor.Snapshot, error) { return doctor.Snapshot{Now: clock.Now()}, nil },
	}
	if change != nil {
		change(&o)
	}
	h := &hub{t: t, dir: dir, store: data, handler: api.New(o), tokens: map[string]string{}, names: map[string]string{}}
	check(t, data.EnsureAdmin(t.Context(), func(token secret.String) error { h.tokens["/api/v1"] = token.Reveal(); return nil }))
	var pool hubv1.CreatePoolResponse
	h.must("POST", "/api/v1/pools", hubv1.CreatePoolRequest{Name: "gpu", PoolDefinition: hubv1.PoolDefinition{MaxRunners: 100}}, &pool)
	h.tokens["/pool/v1"] = pool.Credential.Secret
	var minted hubv1.MintResponse
	h.must("POST", "/pool/v1/runners", hubv1.MintRequest{Key: "runner-one"}, &minted)
	var enrolled hubv1.EnrollResponse
	h.must("POST", "/runner/v1/enroll", hubv1.EnrollRequest{Token: minted.Token, Name: "one", Build: "test"}, &enrolled)
	h.tokens["/runner/v1"] = enrolled.Session
	h.must("POST", "/api/v1/projects", hubv1.CreateProjectRequest{Name: "app", Remote: "https://git.example.com/app.git"}, nil)
	h.must("PUT|POST", "/api/v1/projects/app/executor", hubv1.BindRequest{ExecutorID: "pool:" + pool.Pool.ID}, nil)
	var run hubv1.Run
	h.must("POST", "/api/v1/runs", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, &run)
	h.names = map[string]string{"pool": "gpu", "project": "app", "run": run.ID, "runner": minted.RunnerID}
	return h
}

func (h *hub) must(methods, path string, body, out any) {
	h.t.Helper()
	data, err := json.Marshal(body)
	check(h.t, err)
	for method := range strings.SplitSeq(methods, "|") {
		answer := h.send(request{method: method, target: path, body: data, contentType: "application/json"})
		if answer.Code/100 != 2 {
			continue
		}
		if out != nil {
			check(h.t, json.Unmarshal(answer.Body.Bytes(), out))
		}
		return
	}
	h.t.Fatalf("%s %s is refused", methods, path)
}

type request struct {
	method, target, contentType string
	header                      map[string]string
	body                        []byte
	// anonymous sends no token.
	anonymous bool
}

// send carries a request out. A stream ends after its first snapshot.
func (h *hub) send(in request) *httptest.ResponseRecorder {
	h.t.Helper()
	r, err := http.NewRequestWithContext(h.t.Context(), in.method, "https://hub.example.com"+in.target, bytes.NewReader(in.body))
	if err != nil {
		h.t.Skipf("no such request: %v", err)
	}
	r.RemoteAddr = "192.0.2.1:1"
	for key, value := range in.header {
		r.Header.Set(key, value)
	}
	if in.contentType != "" {
		r.Header.Set("Content-Type", in.contentType)
	}
	for base, token := range h.tokens {
		if strings.HasPrefix(in.target, base) && !in.anonymous {
			r.Header.Set("Authorization", "Bearer "+token)
		}
	}
	answer := httptest.NewRecorder()
	defer func() {
		if fault := recover(); fault != nil && fault != http.ErrAbortHandler { //nolint:errorlint // it is that very value
			h.t.Fatalf("%s %s with %.300q panics: %v", in.method, in.target, in.body, fault)
		}
	}()
	h.handler.ServeHTTP(answer, r)
	h.described(in, answer)
	return answer
}

// described holds every answer that a test gets to what the description says of the
// operation.
func (h *hub) described(in request, answer *httptest.ResponseRecorder) {
	h.t.Helper()
	address, err := url.ParseRequestURI(in.target)
	if err != nil {
		return
	}
	description.once.Do(func() {
		description.answers, description.patterns = map[string][]string{}, http.NewServeMux()
		for _, op := range operations(h.t, h.handler) {
			description.answers[op.method+" "+op.path] = op.errors
			description.patterns.Handle(op.method+" "+op.path, http.NotFoundHandler())
		}
	})
	_, pattern := description.patterns.Handler(&http.Request{Method: in.method, URL: address})
	if known := description.answers[pattern]; known != nil && !slices.Contains(known, strconv.Itoa(answer.Code)) {
		h.t.Errorf("%s is answered %d, and described with %v: %.200s", pattern, answer.Code, known, answer.Body)
	}
}

// description is what the hub says of itself, which is the same for all.
var description struct {
	once sync.Once
	// answers: method and path → the statuses that it is described with.
	answers map[string][]string
	// patterns tells which of them a request is.
	patterns *http.ServeMux
}

// judge holds an answer to what every answer is: no failure of the hub's own, and
// a problem document wherever it is a refusal.
func (h *hub) judge(in request, answer *httptest.ResponseRecorder) {
	h.t.Helper()
	if answer.Code < 400 {
		return
	}
	var p hubv1.Problem
	err := json.Unmarshal(answer.Body.Bytes(), &p)
	switch {
	case err != nil, answer.Header().Get("Content-Type") != "application/problem+json":
		h.t.Fatalf("%s %s with %.300q is answered %d without a problem document: %.300s", in.method, in.target, in.body, answer.Code, answer.Body)
	case answer.Code >= 500:
		h.t.Fatalf("%s %s with %.300q is answered %d: %+v", in.method, in.target, in.body, answer.Code, p)
	case p.Status != answer.Code || p.Title == "" || p.Remedy == "" || !problem.Known(p.Code):
		h.t.Fatalf("%s %s with %.300q is answered %d with %+v", in.method, in.target, in.body, answer.Code, p)
	}
}

// operation is one of the API's description.
type operation struct {
	id, method, path string
	// secured says that it wants a bearer token.
	secured bool
	// queries and headers are its parameters' names.
	queries, headers []string
	contentType      string
	// sample is a body as the description has it, or nil.
	sample any
	errors []string
}

type schema struct {
	Ref                  string `json:"$ref"`
	Type                 any
	Format               string
	Enum                 []any
	Minimum              float64
	MinLength            int
	Properties           map[string]schema
	Items                *schema
	AdditionalProperties any
}

// operations reads the description that the hub serves.
func operations(t testing.TB, handler http.Handler) []operation {
	t.Helper()
	answer := httptest.NewRecorder()
	handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/openapi.json", nil))
	var document struct {
		Paths map[string]map[string]struct {
			OperationID string
			Parameters  []struct{ Name, In string }
			RequestBody *struct {
				Content map[string]struct{ Schema schema }
			}
			Responses map[string]any
			Security  []map[string][]string
		}
		Components struct{ Schemas map[string]schema }
	}
	check(t, json.Unmarshal(answer.Body.Bytes(), &document))
	var out []operation
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		for _, method := range slices.Sorted(maps.Keys(document.Paths[path])) {
			described := document.Paths[path][method]
			op := operation{id: described.OperationID, method: strings.ToUpper(method), path: path, secured: len(described.Security) > 0}
			for _, parameter := range described.Parameters {
				switch parameter.In {
				case "query":
					op.queries = append(op.queries, parameter.Name)
				case "header":
					op.headers = append(op.headers, parameter.Name)
				}
			}
			if described.RequestBody != nil {
				for _, contentType := range slices.Sorted(maps.Keys(described.RequestBody.Content)) {
					op.contentType = contentType
					op.sample = sample(document.Components.Schemas, described.RequestBody.Content[contentType].Schema, 0)
				}
			}
			op.errors = slices.Sorted(maps.Keys(described.Responses))
			out = append(out, op)
		}
	}
	return out
}

// sample is a value of a schema.
func sample(known map[string]schema, s schema, depth int) any {
	if name := strings.TrimPrefix(s.Ref, "#/components/schemas/"); name != s.Ref {
		s = known[name]
	}
	if len(s.Enum) > 0 {
		return s.Enum[0]
	}
	kind := fmt.Sprint(s.Type)
	switch {
	case strings.Contains(kind, "object"):
		out := map[string]any{}
		for name, property := range s.Properties {
			out[name] = sample(known, property, depth+1)
		}
		if len(s.Properties) == 0 {
			out["key"] = "value"
		}
		return out
	case strings.Contains(kind, "array") && s.Items != nil:
		return []any{sample(known, *s.Items, depth+1)}
	case strings.Contains(kind, "integer"), strings.Contains(kind, "number"):
		return max(1, s.Minimum)
	case strings.Contains(kind, "boolean"):
		return true
	case s.Format == "date-time":
		return "2026-01-02T03:04:05Z"
	}
	return strings.Repeat("sample-a", max(1, (s.MinLength+7)/8))
}

// target is the operation's path with something that is there, or with the text.
func (h *hub) target(op operation, text string) string {
	path := op.path
	for {
		begin, end := strings.IndexByte(path, '{'), strings.IndexByte(path, '}')
		if begin < 0 || end < begin {
			return path
		}
		value := h.names[path[begin+1:end]]
		if text != "" || value == "" {
			value = url.PathEscape(text)
		}
		if value == "" {
			value = "some-name"
		}
		path = path[:begin] + value + path[end+1:]
	}
}

// nasty are values that no schema here expects.
var nasty = []any{
	nil, "", "\x00", "\xff\xfe", "../..", "a\nb\x1b[31m", strings.Repeat("x", 5000), -1, 1e308, 1 << 60,
	[]any{nil}, map[string]any{"\x00": "x"},
}

// bodies are an operation's sample with each property replaced by each nasty
// value or left out, and bodies that are no object.
func bodies(op operation) [][]byte {
	if op.contentType == "" {
		return [][]byte{nil, []byte("{}")}
	}
	out := [][]byte{nil, []byte("null"), []byte("[]"), []byte(`"x"`), []byte("{"), []byte(`{"a":1e999}`), []byte("{}{}"), []byte("\xff"),
		[]byte(strings.Repeat("[", 20000)), []byte(`{"name":"a","name":"b"}`), encoded(op.sample)}
	object, ok := op.sample.(map[string]any)
	if !ok {
		return out
	}
	for name := range object {
		without := maps.Clone(object)
		delete(without, name)
		out = append(out, encoded(without))
		for _, value := range nasty {
			with := maps.Clone(object)
			with[name] = value
			out = append(out, encoded(with))
		}
	}
	return out
}

func encoded(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}

// TestEveryOperationRefusesWithAProblem is about whatever is registered, so that
// an operation that comes later is held to it too.
func TestEveryOperationRefusesWithAProblem(t *testing.T) {
	validator, err := schemas.NewValidator()
	check(t, err)
	ops := operations(t, newHub(t, validator, nil).handler)
	if len(ops) < 30 {
		t.Fatalf("the description has %d operations", len(ops))
	}
	// What only reads leaves the hub as it was for the next.
	shared := newHub(t, validator, nil)
	for _, op := range ops {
		t.Run(op.id, func(t *testing.T) {
			h := &hub{}
			if op.method == http.MethodGet {
				*h = *shared
				h.t = t
			} else {
				h = newHub(t, validator, nil)
			}
			if op.secured {
				in := request{method: op.method, target: h.target(op, ""), contentType: op.contentType, body: encoded(op.sample), anonymous: true}
				answer := h.send(in)
				h.judge(in, answer)
				if answer.Code != http.StatusUnauthorized {
					t.Fatalf("%s %s without a token is answered %d", op.method, in.target, answer.Code)
				}
			}
			try := func(in request) {
				in.method = op.method
				h.judge(in, h.send(in))
			}
			for _, body := range bodies(op) {
				try(request{target: h.target(op, ""), contentType: op.contentType, body: body})
			}
			try(request{target: h.target(op, ""), contentType: "text/plain", body: encoded(op.sample)})
			for _, value := range nasty {
				text := fmt.Sprint(value)
				try(request{target: h.target(op, text), contentType: op.contentType, body: encoded(op.sample)})
				for _, name := range op.queries {
					try(request{target: h.target(op, "") + "?" + url.Values{name: {text}}.Encode(), contentType: op.contentType, body: encoded(op.sample)})
				}
				for _, name := range op.headers {
					try(request{target: h.target(op, ""), contentType: op.contentType, body: encoded(op.sample), header: map[string]string{name: text}})
				}
			}
		})
	}
}

// FuzzOperations looks for requests that the hub fails on: `go test -fuzz
// FuzzOperations ./internal/hub/api`.
func FuzzOperations(f *testing.F) {
	validator, err := schemas.NewValidator()
	check(f, err)
	h := newHub(f, validator, nil)
	ops := operations(f, h.handler)
	for i, op := range ops {
		f.Add(uint16(i), "", "", "", encoded(op.sample))
	}
	f.Fuzz(func(t *testing.T, which uint16, name, query, header string, body []byte) {
		op := ops[int(which)%len(ops)]
		in := *h
		in.t = t
		r := request{method: op.method, target: h.target(op, name), contentType: op.contentType, body: body}
		if query != "" {
			r.target += "?" + query
		}
		if header != "" && len(op.headers) > 0 {
			r.header = map[string]string{op.headers[int(which)%len(op.headers)]: header}
		}
		in.judge(r, in.send(r))
	})
}

func TestTheDescriptionIsWhole(t *testing.T) {
	validator, err := schemas.NewValidator()
	check(t, err)
	seen := map[string]bool{}
	for _, op := range operations(t, newHub(t, validator, nil).handler) {
		if op.id == "" || seen[op.id] {
			t.Errorf("%s %s has the id %q, which is empty or taken", op.method, op.path, op.id)
		}
		seen[op.id] = true
		if !slices.ContainsFunc(op.errors, func(status string) bool { return strings.HasPrefix(status, "4") }) {
			t.Errorf("%s says nothing of what it refuses", op.id)
		}
	}
}

// The one who does not read is cut off, and nobody waits for it meanwhile.
func TestAReaderThatStandsStillIsCutOff(t *testing.T) {
	validator, err := schemas.NewValidator()
	check(t, err)
	h := newHub(t, validator, func(o *api.Options) { o.Stopping, o.WriteTimeout = nil, 2*time.Second })
	cut := make(chan struct{})
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.handler.ServeHTTP(w, r)
		if r.URL.Query().Get("instance") == "asleep" {
			close(cut)
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.HTTP2 = &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10}
	defer transport.CloseIdleConnections()
	watch := func(instance string) io.ReadCloser {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/pool/v1/watch?instance="+instance, nil)
		check(t, err)
		r.Header.Set("Authorization", "Bearer "+h.tokens["/pool/v1"])
		response, err := transport.RoundTrip(r)
		check(t, err)
		if response.ProtoMajor != 2 {
			t.Fatalf("the connection is of HTTP/%d", response.ProtoMajor)
		}
		return response.Body
	}
	asleep, awake := watch("asleep"), watch("awake")
	defer func() { _ = asleep.Close() }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, awake)
	}()
	// Each mint is a larger snapshot; together they are many times the window.
	for i := range 99 {
		h.must("POST", "/pool/v1/runners", hubv1.MintRequest{Key: fmt.Sprintf("runner-%03d", i)}, nil)
	}
	select {
	case <-ended:
		t.Fatal("the one who reads was cut off")
	default:
	}
	_ = awake.Close()
	<-cut
	read := 0
	for buffer := make([]byte, 1<<20); ; {
		n, err := asleep.Read(buffer)
		if read += n; err == nil {
			continue
		}
		if err == io.EOF { //nolint:errorlint // it is that very value
			t.Error("the stream ended as if it were whole")
		}
		break
	}
	if read > 256<<10 {
		t.Errorf("it could read %d bytes, so so much was kept for it", read)
	}
}
