package controllers

import (
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/secret"
)

// fakeCredential has the shape of a pool credential.
var fakeCredential = whole("cloop_pool1_0123456789abcdefghijABCDEFGHIJ")

// whole is the text with its checksum.
func whole(text string) string { return text + secret.Sum(text) }

// fakeHub speaks the wire types of one pool and keeps its rules: the maximum,
// idempotent mints, and that a busy runner is never retired.
type fakeHub struct {
	server *httptest.Server

	mu         sync.Mutex // guards what follows
	id         string
	revision   int64
	max        int32
	queued     int32
	runners    []*fakeRunner // in the order of minting
	credential string
	// end is why the pool drains.
	end *hubv1.PoolEnd
	// source is where the hub has the pool from.
	source *hubv1.Provenance
	// earlier are older credentials that are live: → whether the controller has
	// shown that it had them.
	earlier  map[string]bool
	refusals []string
	gone     map[string]hubv1.GoneRequest
	changed  chan struct{} // closed and replaced at each change
	closed   bool
	// duplicate is what the hub says of another ExecutorPool, and hello what the
	// controller said of itself last.
	duplicate string
	hello     url.Values
	// starts counts new runners, mints every token.
	starts, mints int
	// answering is called when a request was served and its answer is not sent yet.
	answering func(*http.Request)
}

type fakeRunner struct {
	hubv1.PoolRunner
	token, credential string
}

func newFakeHub(t testing.TB, maxRunners int32) *fakeHub {
	h := &fakeHub{
		id: "pool-1", revision: 1, max: maxRunners, credential: fakeCredential, changed: make(chan struct{}),
		gone: map[string]hubv1.GoneRequest{}, earlier: map[string]bool{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /pool/v1/watch", h.watch)
	mux.HandleFunc("POST /pool/v1/runners", h.mint)
	mux.HandleFunc("POST /pool/v1/runners/{id}/retire", h.retire)
	mux.HandleFunc("POST /pool/v1/runners/{id}/gone", h.goneRunner)
	mux.HandleFunc("PUT /pool/v1/refusal", h.refusal)
	mux.HandleFunc("POST /pool/v1/predecessor", h.predecessor)
	h.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		_, known := h.earlier[bearer(r)]
		known = known || bearer(r) == h.credential
		h.mu.Unlock()
		if !known {
			problem(w, http.StatusUnauthorized, hubv1.CodeUnauthenticated, "the credential is not known")
			return
		}
		mux.ServeHTTP(w, r)
		h.mu.Lock()
		answering := h.answering
		h.mu.Unlock()
		if answering != nil {
			answering(r)
		}
	}))
	t.Cleanup(func() {
		h.change(func() { h.closed = true })
		h.server.Close()
	})
	return h
}

// bundle is the hub's certificate.
func (h *fakeHub) bundle() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.server.Certificate().Raw}))
}

// change makes a change and wakes every watch.
func (h *fakeHub) change(act func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	act()
	h.revision++
	close(h.changed)
	h.changed = make(chan struct{})
}

func (h *fakeHub) queue(n int32) { h.change(func() { h.queued += n }) }

// revoke makes the credential unknown, in open watches too.
func (h *fakeHub) revoke() { h.change(func() { h.credential = "none" }) }

// enroll redeems a token, once.
func (h *fakeHub) enroll(token string) (id string, ok bool) {
	h.change(func() {
		for _, r := range h.runners {
			if r.token == token && r.State == hubv1.RunnerStarting {
				r.State, r.EnrolledAt, r.token = hubv1.RunnerIdle, new(time.Now()), ""
				id, ok = r.ID, true
			}
		}
	})
	return id, ok
}

// rotate makes another credential; the one before stays live.
func (h *fakeHub) rotate(next string) {
	h.change(func() { h.earlier[h.credential], h.credential = false, next })
}

func bearer(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// own says whether a runner is for the controller with the credential to judge.
func (h *fakeHub) own(r *fakeRunner, credential string) bool {
	return r.credential == credential || credential == h.credential && h.earlier[r.credential]
}

func (h *fakeHub) predecessor(w http.ResponseWriter, r *http.Request) {
	var request hubv1.Predecessor
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusUnprocessableEntity, hubv1.CodeInvalid, err.Error())
		return
	}
	h.change(func() {
		if _, live := h.earlier[request.Credential]; !live {
			problem(w, http.StatusConflict, hubv1.CodeConflict, "no live credential")
			return
		}
		h.earlier[request.Credential] = true
		w.WriteHeader(http.StatusNoContent)
	})
}

// asked finds the runner of a request that only its controller may make.
func (h *fakeHub) asked(w http.ResponseWriter, r *http.Request) *fakeRunner {
	runner := h.find(r.PathValue("id"))
	switch {
	case runner == nil:
		problem(w, http.StatusNotFound, hubv1.CodeNotFound, "no such runner")
		return nil
	case !h.own(runner, bearer(r)) && runner.State != hubv1.RunnerRetired:
		problem(w, http.StatusForbidden, hubv1.CodeForbidden, "another credential's runner")
		return nil
	}
	return runner
}

// handOff gives the runner a queued run.
func (h *fakeHub) handOff(id string) {
	h.change(func() { h.queued--; h.find(id).State = hubv1.RunnerBusy })
}

// settle ends the runner's run and retires it.
func (h *fakeHub) settle(id string) {
	h.change(func() { h.find(id).State = hubv1.RunnerRetired })
}

func (h *fakeHub) find(id string) *fakeRunner {
	for _, r := range h.runners {
		if r.ID == id {
			return r
		}
	}
	return nil
}

// state is where a runner is, empty for one that does not exist.
func (h *fakeHub) state(id string) hubv1.RunnerState {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r := h.find(id); r != nil {
		return r.State
	}
	return ""
}

// started counts the runners that were ever minted.
func (h *fakeHub) started() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.starts
}

// alive counts runners that are not retired.
func (h *fakeHub) alive() (n int32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.aliveLocked()
}

func (h *fakeHub) aliveLocked() (n int32) {
	for _, r := range h.runners {
		if r.State != hubv1.RunnerRetired {
			n++
		}
	}
	return n
}

func (h *fakeHub) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	h.mu.Lock()
	h.hello = r.URL.Query()
	h.mu.Unlock()
	for {
		h.mu.Lock()
		snapshot, wait, over := h.snapshot(bearer(r)), h.changed, h.closed || h.credential == "none"
		h.mu.Unlock()
		if over {
			return
		}
		data, err := json.Marshal(snapshot)
		if err != nil {
			return
		}
		if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", snapshot.Revision, data); err != nil {
			return
		}
		w.(http.Flusher).Flush()
		select {
		case <-wait:
		case <-r.Context().Done():
			return
		}
	}
}

func (h *fakeHub) snapshot(credential string) hubv1.PoolSnapshot {
	s := hubv1.PoolSnapshot{
		Revision: h.revision, Features: []string{hubv1.FeatureRunnerStates, hubv1.FeatureRunnerGone}, Queued: h.queued, Duplicate: h.duplicate,
		Pool: hubv1.Pool{
			ID: h.id, Name: "gpu", State: hubv1.PoolActive,
			PoolDefinition: hubv1.PoolDefinition{MaxRunners: h.max}, Source: h.source,
		},
	}
	if h.end != nil {
		s.Pool.State, s.Pool.End = hubv1.PoolDraining, h.end
	}
	for _, r := range h.runners {
		switch {
		case r.State == hubv1.RunnerRetired:
		case h.own(r, credential):
			s.Runners = append(s.Runners, r.PoolRunner)
		case r.State == hubv1.RunnerStarting, r.State == hubv1.RunnerIdle:
			s.OthersAvailable++
		}
	}
	return s
}

func (h *fakeHub) mint(w http.ResponseWriter, r *http.Request) {
	var request hubv1.MintRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusUnprocessableEntity, hubv1.CodeInvalid, err.Error())
		return
	}
	h.change(func() {
		h.mints++
		token := fmt.Sprintf("cloop_run1_token%d", h.mints)
		at := slices.IndexFunc(h.runners, func(f *fakeRunner) bool { return f.Key == request.Key && h.own(f, bearer(r)) })
		switch {
		case at >= 0 && h.runners[at].State == hubv1.RunnerStarting:
			h.runners[at].token = token
		case at >= 0 && h.runners[at].State == hubv1.RunnerRetired:
			problem(w, http.StatusGone, hubv1.CodeRunnerRetired, "the runner is retired")
			return
		case at >= 0:
			problem(w, http.StatusConflict, hubv1.CodeTokenRedeemed, "the token is redeemed")
			return
		case h.aliveLocked() >= h.max:
			problem(w, http.StatusConflict, hubv1.CodePoolAtMaximum, "the pool is at its maximum")
			return
		default:
			h.starts++
			at = len(h.runners)
			h.runners = append(h.runners, &fakeRunner{token: token, credential: bearer(r), PoolRunner: hubv1.PoolRunner{
				ID: fmt.Sprintf("runner-%d", at), Key: request.Key, State: hubv1.RunnerStarting, CreatedAt: time.Now(),
			}})
		}
		answer(w, hubv1.MintResponse{RunnerID: h.runners[at].ID, Token: token, ExpiresAt: time.Now().Add(time.Hour)})
	})
}

func (h *fakeHub) retire(w http.ResponseWriter, r *http.Request) {
	h.change(func() {
		runner := h.asked(w, r)
		if runner == nil {
			return
		}
		switch runner.State {
		case hubv1.RunnerStarting:
			runner.State = hubv1.RunnerRetired
		case hubv1.RunnerIdle:
			runner.State = hubv1.RunnerRetiring
		}
		answer(w, hubv1.RetireResponse{State: runner.State})
	})
}

func (h *fakeHub) goneRunner(w http.ResponseWriter, r *http.Request) {
	var request hubv1.GoneRequest
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusUnprocessableEntity, hubv1.CodeInvalid, err.Error())
		return
	}
	h.change(func() {
		runner := h.asked(w, r)
		if runner == nil {
			return
		}
		runner.State = hubv1.RunnerRetired
		if _, told := h.gone[runner.ID]; !told { // a hub keeps what it is told first
			h.gone[runner.ID] = request
		}
		answer(w, hubv1.RetireResponse{State: runner.State})
	})
}

func (h *fakeHub) refusal(w http.ResponseWriter, r *http.Request) {
	var request hubv1.Refusal
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		problem(w, http.StatusUnprocessableEntity, hubv1.CodeInvalid, err.Error())
		return
	}
	h.mu.Lock()
	h.refusals = append(h.refusals, request.Message)
	h.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// told says whether the hub was told a refusal that contains the text.
func (h *fakeHub) told(text string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.refusals, func(m string) bool { return strings.Contains(m, text) })
}

func answer(w http.ResponseWriter, body any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}

func problem(w http.ResponseWriter, status int, code hubv1.Code, detail string) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(hubv1.Problem{Status: status, Code: code, Detail: detail})
}
