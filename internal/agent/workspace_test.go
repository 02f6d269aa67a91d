package agent

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/removal/removaltest"
)

// checkedOut prepares a workspace and checks the assignment out.
func checkedOut(t *testing.T, caFile string, a hubv1.Assignment) (*workspace, string, error) {
	t.Helper()
	o := testOptions(t)
	o.GitCAFile = caFile
	w, err := prepare(t.Context(), o.withDefaults())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.close)
	commit, err := w.checkout(t.Context(), a)
	return w, commit, err
}

func TestWhatIsCheckedOut(t *testing.T) {
	r := testRepository(t)
	for name, test := range map[string]struct {
		assignment hubv1.Assignment
		want, err  string
	}{
		"branch":                   {assignment: hubv1.Assignment{Ref: "main"}, want: r.main},
		"full name":                {assignment: hubv1.Assignment{Ref: "refs/heads/v-branch"}, want: r.main},
		"annotated tag":            {assignment: hubv1.Assignment{Ref: "v1"}, want: r.tagged},
		"light tag":                {assignment: hubv1.Assignment{Ref: "main-tag"}, want: r.main},
		"default":                  {want: r.main},
		"commit":                   {assignment: hubv1.Assignment{Ref: "main", Commit: r.older}, want: r.older},
		"commit as ref":            {assignment: hubv1.Assignment{Ref: r.older}, want: r.older},
		"no such branch":           {assignment: hubv1.Assignment{Ref: "nope"}, err: "no such branch, tag or commit"},
		"no such commit":           {assignment: hubv1.Assignment{Commit: strings.Repeat("ab", 20)}, err: "no such branch, tag or commit"},
		"an option for a ref":      {assignment: hubv1.Assignment{Ref: "--upload-pack=x"}, err: "no legal name"},
		"a refspec for a ref":      {assignment: hubv1.Assignment{Ref: "main:refs/heads/x"}, err: "no legal name"},
		"part of a commit":         {assignment: hubv1.Assignment{Commit: "abc"}, err: "not a full object id"},
		"another protocol":         {assignment: hubv1.Assignment{Remote: "file:///etc", Ref: "main"}, err: "not an https URL"},
		"another program":          {assignment: hubv1.Assignment{Remote: "ext::sh -c id", Ref: "main"}, err: "not an https URL"},
		"an option for a remote":   {assignment: hubv1.Assignment{Remote: "--upload-pack=id", Ref: "main"}, err: "not an https URL"},
		"a password in the remote": {assignment: hubv1.Assignment{Remote: "https://u:p@host/x", Ref: "main"}, err: "not an https URL"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if test.assignment.Remote == "" {
				test.assignment.Remote = r.url
			}
			w, commit, err := checkedOut(t, r.caFile, test.assignment)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) || strings.Contains(err.Error(), "u:p") {
					t.Fatalf("error %v, want %q", err, test.err)
				}
				return
			}
			if err != nil || commit != test.want {
				t.Fatalf("commit %s, %v; want %s", commit, err, test.want)
			}
			if head, err := w.run(t.Context(), "rev-parse", "HEAD"); err != nil || head != test.want {
				t.Errorf("HEAD is %s, %v", head, err)
			}
			if status, err := w.run(t.Context(), "status", "--porcelain"); err != nil || status != "" {
				t.Errorf("the checkout differs from the commit: %s, %v", status, err)
			}
			if _, err := w.run(t.Context(), "fsck", "--connectivity-only"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A server of an older generation, one that redirects, and one that fails now
// and then are left to git itself.
func TestServersThatNeedGitItself(t *testing.T) {
	r := testRepository(t)
	inner, err := url.Parse(r.url)
	if err != nil {
		t.Fatal(err)
	}
	upstream := r.handler
	for name, wrap := range map[string]func(http.ResponseWriter, *http.Request) bool{
		"protocol version 0": func(_ http.ResponseWriter, request *http.Request) bool {
			request.Header.Del("Git-Protocol")
			return false
		},
		"redirect": func(w http.ResponseWriter, request *http.Request) bool {
			if strings.HasPrefix(request.URL.Path, "/moved") {
				return false
			}
			if request.Method == http.MethodPost {
				http.NotFound(w, request)
				return true
			}
			http.Redirect(w, request, "/moved"+request.URL.RequestURI(), http.StatusMovedPermanently)
			return true
		},
		"fails twice": failing(2),
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
				if wrap(w, request) {
					return
				}
				request.URL.Path = strings.TrimPrefix(request.URL.Path, "/moved")
				upstream.ServeHTTP(w, request)
			}))
			defer server.Close()
			// Every test server has the same certificate.
			_, commit, err := checkedOut(t, r.caFile, hubv1.Assignment{Remote: server.URL + inner.Path, Ref: "v1"})
			if err != nil || commit != r.tagged {
				t.Errorf("commit %s, %v; want %s", commit, err, r.tagged)
			}
		})
	}
}

func failing(times int32) func(http.ResponseWriter, *http.Request) bool {
	var seen atomic.Int32
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if seen.Add(1) > times {
			return false
		}
		http.Error(w, "try again", http.StatusBadGateway)
		return true
	}
}

func TestNothingOfARepositoryIsExecuted(t *testing.T) {
	r := testRepository(t)
	const mark = "/tmp/cloop-agent-test-hook-ran"
	w, _, err := checkedOut(t, r.caFile, hubv1.Assignment{Remote: r.url, Ref: "main"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("a hook of the repository ran")
	}
	if _, err := os.Stat(w.dir + "/.git/hooks"); err == nil {
		t.Error("the repository has hooks from a template")
	}
}

// A workspace may outlive its Pod, on a claim.
func TestWhatAnEarlierRunClosedIsTakenAway(t *testing.T) {
	removaltest.Unprivileged(t, func(dir string) {
		o := Options{Workspace: filepath.Join(dir, "workspace"), Home: filepath.Join(dir, "home"), Tmp: filepath.Join(dir, "tmp")}
		w := &workspace{dir: filepath.Join(o.Workspace, checkoutName)}
		err := errors.Join(os.Mkdir(o.Home, 0o700), os.Mkdir(o.Tmp, 0o700), removaltest.Close(w.dir),
			os.Chmod(w.dir, 0o555), os.Chmod(o.Workspace, 0o555), os.Chmod(o.Home, 0), os.Chmod(o.Tmp, 0)) //nolint:gosec // closed on purpose
		if err != nil {
			t.Error(err)
			return
		}
		if err := w.vacate(o); err != nil {
			t.Errorf("the next runner fails: %v", err)
			return
		}
		left, err := os.ReadDir(w.dir)
		if err != nil || len(left) > 0 {
			t.Errorf("left are %v (%v)", left, err)
		}
		if err := os.WriteFile(filepath.Join(o.Home, "x"), nil, 0o600); err != nil {
			t.Error(err)
		}
		if err := removaltest.Close(w.scratch); err != nil {
			t.Error(err)
		}
		w.close()
		if _, err := os.Lstat(w.scratch); !os.IsNotExist(err) {
			t.Errorf("the agent's own files are still there (%v)", err)
		}
	})
}

func TestAnUntrustedGitServerIsRefused(t *testing.T) {
	r := testRepository(t)
	_, _, err := checkedOut(t, "", hubv1.Assignment{Remote: r.url, Ref: "main"})
	if err == nil || !strings.Contains(err.Error(), "certificate") || !strings.Contains(err.Error(), "hubCABundle of the ExecutorPool") {
		t.Errorf("got %v, want an error about the certificate, and what to do", err)
	}
}

func TestARepositoryThatAsksForALoginSaysSo(t *testing.T) {
	r := testRepository(t)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
		w.WriteHeader(http.StatusUnauthorized)
	}))
	defer server.Close()
	// Every test server has the same certificate.
	_, _, err := checkedOut(t, r.caFile, hubv1.Assignment{Remote: server.URL + "/team/app.git", Ref: "main"})
	if err == nil || !strings.Contains(err.Error(), "runners have no credential for projects' repositories") {
		t.Errorf("got %v, want what to do", err)
	}
}
