package agent

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/gitserver"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// Credentials of every test; none may ever be seen anywhere.
const (
	testToken   = "cloop_run1_TokenCanary0123456789"
	testSession = "cloop_ses1_SessionCanary987654321"
)

// fakeHub is a hub of one runner and one run. Every exported-looking field is
// read and written under mu; changed is closed and replaced on each change.
type fakeHub struct {
	mu      sync.Mutex
	changed chan struct{}

	heartbeat, lease, margin float64 // seconds

	enrolled   int
	snapshot   hubv1.RunnerSnapshot
	log        []byte
	appends    int
	started    *hubv1.StartedRequest
	result     *hubv1.ResultRequest
	bye        string
	heartbeats int

	// down makes every call fail as if the network were gone.
	down bool
	// fault is asked before a call is carried out and after: an error before
	// is a request that was lost, one after an answer that was lost.
	fault func(call string, after bool) error
}

func newFakeHub() *fakeHub {
	return &fakeHub{
		changed: make(chan struct{}), heartbeat: 1, lease: 60, margin: 10,
		snapshot: hubv1.RunnerSnapshot{Revision: 1, State: hubv1.RunnerIdle},
	}
}

var errNetwork = fmt.Errorf("%w: the network is gone", hubclient.ErrUnavailable)

func refused(status int, code hubv1.Code) error {
	return &hubv1.Problem{Status: status, Code: code, Detail: "refused by the test"}
}

// update changes the hub's state.
func (h *fakeHub) update(change func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change()
	h.snapshot.Revision++
	close(h.changed)
	h.changed = make(chan struct{})
}

// await returns when the condition holds, which is read under the lock.
func (h *fakeHub) await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		h.mu.Lock()
		done, changed := holds(), h.changed
		h.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			t.Fatalf("waited in vain until %s", what)
		}
	}
}

func (h *fakeHub) assign(run hubv1.Assignment) {
	h.update(func() { h.snapshot.Run, h.snapshot.State = &run, hubv1.RunnerBusy })
}

func (h *fakeHub) call(name string, carryOut func() error) error {
	h.mu.Lock()
	down, fault := h.down, h.fault
	h.mu.Unlock()
	if down {
		return errNetwork
	}
	if fault != nil {
		if err := fault(name, false); err != nil {
			return err
		}
	}
	var err error
	h.update(func() { err = carryOut() })
	if err == nil && fault != nil {
		return fault(name, true)
	}
	return err
}

func (h *fakeHub) Enroll(_ context.Context, in hubv1.EnrollRequest) (hubv1.EnrollResponse, error) {
	err := h.call("enroll", func() error {
		if h.enrolled++; h.enrolled > 1 || in.Token != testToken {
			return refused(401, hubv1.CodeTokenRefused)
		}
		return nil
	})
	return hubv1.EnrollResponse{
		RunnerID: "r1", Session: testSession, HeartbeatSeconds: h.heartbeat, LeaseSeconds: h.lease, MarginSeconds: h.margin,
	}, err
}

func (h *fakeHub) Session(token secret.String) session {
	if token.Reveal() != testSession {
		panic("the runner goes on with a credential that is not its session")
	}
	return h
}

func (h *fakeHub) RunnerWatch(ctx context.Context) iter.Seq2[hubv1.RunnerSnapshot, error] {
	return func(yield func(hubv1.RunnerSnapshot, error) bool) {
		for {
			if err := h.call("watch", func() error { return nil }); err != nil {
				yield(hubv1.RunnerSnapshot{}, err)
				return
			}
			h.mu.Lock()
			snapshot, changed := h.snapshot, h.changed
			h.mu.Unlock()
			if !yield(snapshot, nil) {
				return
			}
			for same := true; same; {
				select {
				case <-changed:
				case <-ctx.Done():
					yield(hubv1.RunnerSnapshot{}, ctx.Err())
					return
				}
				h.mu.Lock()
				now := h.snapshot
				same, changed = now.Run == snapshot.Run && now.State == snapshot.State && now.Cancel == snapshot.Cancel && !h.down, h.changed
				h.mu.Unlock()
			}
		}
	}
}

func (h *fakeHub) Heartbeat(context.Context) (out hubv1.HeartbeatResponse, err error) {
	err = h.call("heartbeat", func() error {
		h.heartbeats++
		out.State = h.snapshot.State
		return nil
	})
	return out, err
}

func (h *fakeHub) held(run string, attempt int32) error {
	if held := h.snapshot.Run; held == nil || held.RunID != run || attempt != 0 && held.Attempt != attempt {
		return refused(409, hubv1.CodeRunNotHeld)
	}
	return nil
}

func (h *fakeHub) RunStarted(_ context.Context, run string, in hubv1.StartedRequest) error {
	return h.call("started", func() error {
		if err := h.held(run, in.Attempt); err != nil {
			return err
		}
		h.started = &in
		return nil
	})
}

func (h *fakeHub) AppendLog(_ context.Context, run string, offset int64, data []byte) (next int64, err error) {
	err = h.call("append", func() error {
		if err := h.held(run, 0); err != nil {
			return err
		}
		have := int64(len(h.log))
		if h.started == nil {
			return refused(409, hubv1.CodeConflict)
		}
		if offset != have {
			problem := &hubv1.Problem{Status: 409, Code: hubv1.CodeLogOffset, Offset: &have}
			return problem
		}
		h.log = append(h.log, data...)
		h.appends++
		next = int64(len(h.log))
		return nil
	})
	return next, err
}

func (h *fakeHub) RunResult(_ context.Context, run string, in hubv1.ResultRequest) error {
	return h.call("result", func() error {
		if h.result != nil {
			return nil
		}
		if err := h.held(run, in.Attempt); err != nil {
			return err
		}
		h.result = &in
		h.snapshot.State, h.snapshot.Run = hubv1.RunnerRetiring, nil
		return nil
	})
}

func (h *fakeHub) Bye(_ context.Context, reason string) error {
	return h.call("bye", func() error {
		h.bye = reason
		h.snapshot.State = hubv1.RunnerRetired
		return nil
	})
}

// repository is one Git server and one repository for all tests.
type repository struct {
	url, caFile string
	handler     http.Handler
	// main is the commit of the branch main; older its parent; tagged what the
	// annotated tag v1 names.
	main, older, tagged string
}

var theRepository = sync.OnceValues(newRepository)

func newRepository() (repository, error) {
	root, err := os.MkdirTemp("", "cloop-agent-test-")
	if err != nil {
		return repository{}, err
	}
	script := `
set -e
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=t GIT_AUTHOR_EMAIL=t@t GIT_COMMITTER_NAME=t GIT_COMMITTER_EMAIL=t@t
git init -q -b main src && cd src
mkdir -p .githooks && printf '#!/bin/sh\ntouch /tmp/cloop-agent-test-hook-ran\n' > .githooks/post-checkout && chmod +x .githooks/post-checkout
for d in a b c d; do mkdir -p $d; for i in 1 2 3 4 5 6 7 8 9 10; do echo "$d $i some text that stands for a source file" > $d/file$i; done; done
printf '#!/bin/sh\necho from the repository\n' > hello && chmod +x hello && echo plain > plain && printf '#!/no/interpreter\n' > dangling && chmod +x dangling
git add -A && git commit -qm first && git tag -am annotated v1
echo 2 > version && git add -A && git commit -qm second
git branch v-branch && git tag main-tag
cd .. && git clone -q --bare src project.git`
	command := exec.Command("/bin/sh", "-c", script)
	command.Dir = root
	if out, err := command.CombinedOutput(); err != nil {
		return repository{}, fmt.Errorf("%w: %s", err, out)
	}
	handler := gitserver.Handler(root)
	server := httptest.NewTLSServer(handler)
	r := repository{handler: handler, url: server.URL + "/project.git", caFile: filepath.Join(root, "ca.pem")}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(r.caFile, certificate, 0o600); err != nil {
		return repository{}, err
	}
	for name, target := range map[string]*string{"main": &r.main, "main~1": &r.older, "v1^{commit}": &r.tagged} {
		out, err := exec.Command("git", "-C", filepath.Join(root, "project.git"), "rev-parse", name).Output()
		if err != nil {
			return repository{}, err
		}
		*target = strings.TrimSpace(string(out))
	}
	return r, nil
}

func testRepository(t testing.TB) repository {
	t.Helper()
	r, err := theRepository()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// life is a runner under test.
type life struct {
	t       testing.TB
	hub     *fakeHub
	options Options
	logged  *lockedBuffer
	stop    context.CancelFunc
	ended   chan error
}

type lockedBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}

func testOptions(t testing.TB) Options {
	t.Helper()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	if err := os.WriteFile(token, []byte(testToken+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Options{
		TokenFile: token, Name: "demo-runner", Home: filepath.Join(dir, "home"), Workspace: filepath.Join(dir, "workspace"),
		Tmp: filepath.Join(dir, "tmp"), TerminationLog: filepath.Join(dir, "termination-log"),
		Environ: []string{"PATH=" + os.Getenv("PATH"), "FROM_POD=yes", EnvTokenFile + "=" + token, EnvHubURL + "=https://hub"},
	}
}

// begin starts a runner's life; the test's end stops it.
func begin(t testing.TB, h *fakeHub, change ...func(*Options)) *life {
	t.Helper()
	o := testOptions(t)
	o.GitCAFile = testRepository(t).caFile
	l := &life{t: t, hub: h, logged: &lockedBuffer{}, ended: make(chan error, 1)}
	o.Log = slog.New(slog.NewTextHandler(io.MultiWriter(l.logged, t.Output()), &slog.HandlerOptions{Level: slog.LevelDebug}))
	for _, apply := range change {
		apply(&o)
	}
	l.options = o.withDefaults()
	ctx, cancel := context.WithCancel(context.Background())
	l.stop = cancel
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		l.ended <- finish(l.options, live(ctx, l.options, h))
	}()
	t.Cleanup(func() {
		cancel()
		<-finished
	})
	return l
}

// run gives the runner a shell script to run.
func (l *life) run(script string) { l.command("sh", "-c", script) }

func (l *life) command(argv ...string) { l.hub.assign(l.assignment(argv...)) }

func (l *life) assignment(argv ...string) hubv1.Assignment {
	r := testRepository(l.t)
	return hubv1.Assignment{RunID: "run1", Attempt: 1, Project: "demo", Remote: r.url, Ref: "main", Command: argv}
}

// end returns what Run returned.
func (l *life) end() error {
	l.t.Helper()
	select {
	case err := <-l.ended:
		return err
	case <-time.After(patience):
		l.t.Fatal("the runner does not end")
		return nil
	}
}

func (l *life) terminationLog() string {
	data, err := os.ReadFile(l.options.TerminationLog)
	if err != nil {
		l.t.Fatal(err)
	}
	return string(data)
}

func (l *life) awaitLog(text string) {
	l.t.Helper()
	l.hub.await(l.t, fmt.Sprintf("the log has %q", text), func() bool { return bytes.Contains(l.hub.log, []byte(text)) })
}

func (h *fakeHub) logText() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return string(h.log)
}
