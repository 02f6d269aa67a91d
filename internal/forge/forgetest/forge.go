// Package forgetest serves the commit-status APIs of GitHub, GitLab and Gitea
// over TLS, as their documentation describes them, for tests.
//
// A request that the real one refuses is refused here, with its status and its
// words, and recorded as malformed. It must never be more lenient than they are.
package forgetest

import (
	"cmp"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloop.dev/cloop/internal/forge"
)

// Token is the one that every forge accepts.
const Token = "forge-token-0123456789" //nolint:gosec // it opens nothing

// RepositoryPath is the repository that every forge has.
const RepositoryPath = "platform/fleet"

// Posted is a status that was taken.
type Posted struct {
	Revision, Context, State, Description, Link, Branch string
}

// Forge is a served API.
type Forge struct {
	Kind forge.Kind
	// URL is the address of the host.
	URL string

	server *httptest.Server
	mu     sync.Mutex
	posted []Posted
	// shown: revision → context → the latest status.
	shown map[string]map[string]Posted
	// order: revision → its contexts, oldest first.
	order     map[string][]string
	malformed []string
	requests  int
	// perPage is how many statuses a Gitea has on a page at most; 0: 50.
	perPage int
	// unknown are commits that the repository lacks.
	unknown map[string]bool
	answers []http.HandlerFunc
	// served is closed, and made anew, after each request.
	served chan struct{}
}

// PerPage has a Gitea show at most so many statuses at a time.
func (f *Forge) PerPage(most int) { f.perPage = most }

func (f *Forge) most() int { return cmp.Or(f.perPage, 50) }

// Serve serves a forge until the test ends.
func Serve(t testing.TB, kind forge.Kind) *Forge {
	f := &Forge{Kind: kind, shown: map[string]map[string]Posted{}, order: map[string][]string{}, unknown: map[string]bool{}, served: make(chan struct{})}
	f.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer f.announce()
		f.serve(w, r)
	}))
	f.URL = f.server.URL
	t.Cleanup(f.server.Close)
	return f
}

// Remote is the URL by which Git knows the repository.
func (f *Forge) Remote() string { return f.URL + "/" + RepositoryPath + ".git" }

// CABundle trusts the server.
func (f *Forge) CABundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.server.Certificate().Raw})
}

// Answer has the next requests, one each, answered otherwise; nil answers one as
// ever.
func (f *Forge) Answer(handlers ...http.HandlerFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers = append(f.answers, handlers...)
}

// With answers with a status, headers as "Name: value", and the body.
func With(status int, body string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for _, header := range headers {
			name, value, _ := strings.Cut(header, ": ")
			w.Header().Set(name, value)
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}
}

// Lacks makes a commit unknown to the repository.
func (f *Forge) Lacks(revision string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.unknown[revision] = true
}

// Posted lists what was taken, oldest first.
func (f *Forge) Posted() []Posted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Posted{}, f.posted...)
}

// patience bounds Await; nothing takes nearly as long.
const patience = time.Minute

// Await waits until a condition on the forge holds; it is looked at after each
// request.
func (f *Forge) Await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	over := time.After(patience)
	for {
		f.mu.Lock()
		served := f.served
		f.mu.Unlock()
		if holds() {
			return
		}
		select {
		case <-served:
		case <-over:
			t.Fatalf("%s: not so after %d requests, with %+v", what, f.Requests(), f.Posted())
		}
	}
}

func (f *Forge) announce() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.served)
	f.served = make(chan struct{})
}

// Requests counts all requests.
func (f *Forge) Requests() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.requests
}

// Malformed says what was refused that no client should send.
func (f *Forge) Malformed() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.malformed...)
}

func (f *Forge) serve(w http.ResponseWriter, r *http.Request) {
	if next := f.next(); next != nil {
		next(w, r)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.Kind {
	case forge.GitHub:
		f.github(w, r)
	case forge.GitLab:
		f.gitlab(w, r)
	case forge.Gitea:
		f.gitea(w, r)
	}
}

// next counts a request and returns what Answer has for it; nil: nothing.
func (f *Forge) next() http.HandlerFunc {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if len(f.answers) == 0 {
		return nil
	}
	next := f.answers[0]
	f.answers = f.answers[1:]
	return next
}

// refuse answers and records.
func (f *Forge) refuse(w http.ResponseWriter, r *http.Request, status int, body string) {
	f.malformed = append(f.malformed, fmt.Sprintf("%s %s: %d %s", r.Method, r.URL, status, body))
	answer(w, status, body)
}

func answer(w http.ResponseWriter, status int, body string) {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body) //nolint:gosec // JSON, for a client of a test
}

func answerJSON(w http.ResponseWriter, status int, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	answer(w, status, string(data))
}

// body reads a JSON object of texts, as every one of the three wants it.
func body(r *http.Request) (map[string]string, bool) {
	if !strings.HasPrefix(r.Header.Get("Content-Type"), "application/json") {
		return nil, false
	}
	fields := map[string]string{}
	return fields, json.NewDecoder(r.Body).Decode(&fields) == nil
}

func (f *Forge) keep(p Posted) {
	f.posted = append(f.posted, p)
	if f.shown[p.Revision] == nil {
		f.shown[p.Revision] = map[string]Posted{}
	}
	if _, old := f.shown[p.Revision][p.Context]; !old {
		f.order[p.Revision] = append(f.order[p.Revision], p.Context)
	}
	f.shown[p.Revision][p.Context] = p
}

// Show has a commit show a status that somebody else posted.
func (f *Forge) Show(p Posted) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keep(p)
	f.posted = f.posted[:len(f.posted)-1]
}

// page is a page of what a commit shows and keep takes, oldest first.
func (f *Forge) page(r *http.Request, revision, size string, most int, keep func(Posted) bool) []Posted {
	limit, page := 30, 1
	if n, err := strconv.Atoi(r.URL.Query().Get(size)); err == nil && n > 0 {
		limit = min(n, most)
	}
	if n, err := strconv.Atoi(r.URL.Query().Get("page")); err == nil && n > 0 {
		page = n
	}
	var all []Posted
	for _, context := range f.order[revision] {
		if s := f.shown[revision][context]; keep(s) {
			all = append(all, s)
		}
	}
	return all[min(len(all), (page-1)*limit):min(len(all), page*limit)]
}

func every(Posted) bool { return true }
