package source_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/hub/source"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/sandbox"
)

type stage struct {
	git    *fleettest.Server
	clock  *testclock.FakeClock
	reader *source.Reader
	dir    string
}

func newStage(t *testing.T, hosts ...string) *stage {
	t.Helper()
	s := &stage{git: fleettest.Serve(t), clock: testclock.NewFakeClock(time.Now()), dir: t.TempDir()}
	s.git.Create("app")
	var err error
	s.reader, err = source.New(source.Options{Dir: s.dir, Certificates: s.git.CABundle(), Hosts: hosts, Clock: s.clock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stage) read(t *testing.T, ref string) (store.Source, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return s.reader.Read(ctx, s.git.URL("app"), ref)
}

func (s *stage) found(t *testing.T, ref string) store.Source {
	t.Helper()
	found, err := s.read(t, ref)
	if err != nil {
		t.Fatalf("%s: %v", ref, err)
	}
	return found
}

func refusal(t *testing.T, err error, code hubv1.Code) *hubv1.Problem {
	t.Helper()
	var p *hubv1.Problem
	if !errors.As(err, &p) || p.Code != code {
		t.Fatalf("got %v, want %s", err, code)
	}
	return p
}

const asks = "capabilities: {hypervisor: true}\n"

func TestARefIsACommitThatAsksForSomething(t *testing.T) {
	s := newStage(t)
	plain := s.git.Commit("app", map[string]string{"README": "hello"})
	s.git.Tag("app", "v1", plain)
	demanding := s.git.Commit("app", map[string]string{sandbox.Path: asks})
	s.git.CommitTo("app", "v1", map[string]string{"a": "a branch named as the tag"})
	for ref, want := range map[string]store.Source{
		"main":            {Commit: demanding, Requirements: &hubv1.Requirements{Capabilities: map[string]bool{"hypervisor": true}}},
		"":                {Commit: demanding, Requirements: &hubv1.Requirements{Capabilities: map[string]bool{"hypervisor": true}}},
		"refs/heads/main": {Commit: demanding, Requirements: &hubv1.Requirements{Capabilities: map[string]bool{"hypervisor": true}}},
		"refs/tags/v1":    store.Undemanding(plain),
		plain:             store.Undemanding(plain),
	} {
		if got := s.found(t, ref); !reflect.DeepEqual(got, want) {
			t.Errorf("%q is %+v", ref, got)
		}
	}
	if got := s.found(t, "v1"); got.Commit == plain || got.Requirements == nil {
		t.Errorf("a tag stands in for the branch of its name: %+v", got)
	}
	_, err := s.read(t, "nowhere")
	_ = refusal(t, err, hubv1.CodeRefNotFound)
	if left, err := os.ReadDir(s.dir); err != nil || len(left) > 0 {
		t.Errorf("%d directories are left over, %v", len(left), err)
	}
}

func TestACommitIsReadOnce(t *testing.T) {
	s := newStage(t)
	commit := s.git.Commit("app", map[string]string{sandbox.Path: asks})
	s.found(t, "main")
	before := s.git.Fetches()
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { s.found(t, "main") })
	}
	group.Wait()
	if now := s.git.Fetches(); now != before {
		t.Errorf("it was fetched %d times more", now-before)
	}
	// A commit that is named in full is not even asked for.
	s.git.Close()
	if got := s.found(t, commit); got.Requirements == nil {
		t.Errorf("with the server away: %+v", got)
	}
}

func TestAFileThatIsNotValidIsRefusedWithItsLines(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"a mistake":           {map[string]string{sandbox.Path: "capabilities:\n  a: maybe\nimage: x\n"}, ".cloop/sandbox.yaml:2"},
		"a link":              {map[string]string{sandbox.Path: fleettest.Symlink("../x"), "x": asks}, "no regular file"},
		"a linked directory":  {map[string]string{".cloop": fleettest.Symlink("x"), "x/sandbox.yaml": asks}, "no regular file"},
		"a directory":         {map[string]string{sandbox.Path + "/x": asks}, "no regular file"},
		"more than it may be": {map[string]string{sandbox.Path: strings.Repeat("#", sandbox.MaxBytes+1)}, "longer than"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			s.git.Commit("app", test.files)
			for range 2 { // the second from what is remembered
				_, err := s.read(t, "main")
				if p := refusal(t, err, hubv1.CodeRequirementsInvalid); !strings.Contains(p.Error(), test.want) {
					t.Errorf("refused with %v", p)
				}
			}
		})
	}
}

// What cannot be read asks for something that nobody knows, never for nothing.
func TestWhatCannotBeReadIsUnknown(t *testing.T) {
	away := func(s *stage) { s.git.Close() }
	for name, test := range map[string]struct {
		hosts []string
		fail  func(*stage)
		want  string
	}{
		"the server is away":          {nil, away, "connect"},
		"it needs a credential":       {nil, func(s *stage) { s.git.RequireAuthorization("Basic x") }, "credential"},
		"the hub must not ask it":     {[]string{"*.example.com"}, func(*stage) {}, "configuration"},
		"a ref that servers may hide": {nil, nil, "no such branch"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t, test.hosts...)
			s.git.Commit("app", map[string]string{sandbox.Path: asks})
			ref := "main"
			if test.fail == nil {
				ref = "refs/pull/1/head"
			} else {
				test.fail(s)
			}
			got := s.found(t, ref)
			if got.Requirements != nil || !strings.Contains(got.Unknown, test.want) {
				t.Errorf("found %+v", got)
			}
		})
	}
}

func TestARemoteThatFailedIsLeftAloneForAWhile(t *testing.T) {
	s := newStage(t)
	s.git.Commit("app", map[string]string{sandbox.Path: asks})
	s.git.RequireAuthorization("Basic x")
	s.found(t, "main")
	s.git.RequireAuthorization("")
	if got := s.found(t, "main"); got.Requirements != nil {
		t.Fatalf("it was asked again at once: %+v", got)
	}
	s.clock.Step(time.Minute)
	if got := s.found(t, "main"); got.Requirements == nil {
		t.Fatalf("it is never asked again: %+v", got)
	}
}

func TestAServerThatLeadsElsewhereIsNotFollowed(t *testing.T) {
	s := newStage(t)
	s.git.Commit("app", map[string]string{"a": "b"})
	asked := false
	other := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer other.Close()
	lure := httptest.NewTLSServer(http.RedirectHandler(other.URL+"/app.git/info/refs?service=git-upload-pack", http.StatusFound))
	defer lure.Close()
	for _, remote := range []string{lure.URL + "/app.git", "https://169.254.169.254/app.git", "file:///etc", "http://127.0.0.1/app.git"} {
		reader, err := source.New(source.Options{Dir: t.TempDir(), Certificates: s.git.CABundle(), Clock: s.clock})
		if err != nil {
			t.Fatal(err)
		}
		got, err := reader.Read(context.Background(), remote, "main")
		if err != nil || got.Requirements != nil || got.Unknown == "" || asked {
			t.Errorf("%s: %+v, %v, the other server was asked: %t", remote, got, err, asked)
		}
	}
}

// A tree that is small to send may be huge on disk: nothing of it is kept in
// memory.
func TestAHugeTreeTakesNoMemory(t *testing.T) {
	// Garbage that nobody has collected yet counts, so what is once within the bound
	// keeps to it.
	var took []int64
	for range 3 {
		grown := takenByAHugeTree(t)
		if grown <= 16<<20 {
			return
		}
		took = append(took, grown>>20)
	}
	t.Errorf("it took %d MiB", took)
}

// takenByAHugeTree is by how much the heap grows while a huge tree is read.
func takenByAHugeTree(t *testing.T) int64 {
	t.Helper()
	s := newStage(t)
	s.git.AllowFilter("app", false)
	s.git.Commit("app", map[string]string{"zeros": strings.Repeat("\x00", 24<<20), sandbox.Path: asks})
	var peak atomic.Uint64
	stop, stopped := make(chan struct{}), make(chan struct{})
	runtime.GC()
	var before runtime.MemStats
	runtime.ReadMemStats(&before)
	go func() {
		defer close(stopped)
		for {
			var now runtime.MemStats
			runtime.ReadMemStats(&now)
			peak.Store(max(peak.Load(), now.HeapAlloc))
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	got := s.found(t, "main")
	close(stop)
	<-stopped
	if got.Commit == "" || got.Requirements != nil || !strings.Contains(got.Unknown, "too large") {
		t.Errorf("found %+v", got)
	}
	return int64(peak.Load()) - int64(before.HeapAlloc)
}
