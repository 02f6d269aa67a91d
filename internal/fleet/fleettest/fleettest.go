// Package fleettest serves Git repositories to tests over https and ssh, from
// within the test.
//
// A Server has a directory of bare repositories, a certificate authority of its
// own and helpers to create repositories and commit to them with the git command.
package fleettest

import (
	"cmp"
	"encoding/pem"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"cloop.dev/cloop/internal/gitserver"
)

// Server is a Git server on a free port of the loopback interface.
type Server struct {
	t    testing.TB
	root string
	http *httptest.Server
	// packs counts the fetches: the requests to git-upload-pack.
	packs atomic.Int64
	// authorization, where set, is the header that every request must carry.
	authorization atomic.Pointer[string]
}

// Serve starts a server that ends with the test.
func Serve(t testing.TB) *Server {
	t.Helper()
	s := &Server{t: t, root: t.TempDir()}
	backend := gitserver.Handler(s.root)
	s.http = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if want := s.authorization.Load(); want != nil && r.Header.Get("Authorization") != *want {
			w.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/git-upload-pack") {
			s.packs.Add(1)
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(s.http.Close)
	return s
}

// CABundle is the PEM certificate that clients trust the server by.
func (s *Server) CABundle() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
}

// URL of a repository that Create made.
func (s *Server) URL(repository string) string { return s.http.URL + "/" + repository + ".git" }

// Fetches says how many packs clients have asked for.
func (s *Server) Fetches() int { return int(s.packs.Load()) }

// RequireAuthorization refuses every request without this Authorization header.
func (s *Server) RequireAuthorization(header string) { s.authorization.Store(&header) }

// Close makes the server unreachable before the test ends.
func (s *Server) Close() { s.http.Close() }

// Create makes an empty bare repository whose default branch is main. A fetch may
// leave files out, as the large forges allow.
func (s *Server) Create(repository string) {
	s.t.Helper()
	s.git(s.root, "init", "-q", "--bare", "-b", "main", s.Path(repository))
	s.AllowFilter(repository, true)
}

// AllowFilter says whether a fetch may leave files out.
func (s *Server) AllowFilter(repository string, may bool) {
	s.t.Helper()
	s.git(s.Path(repository), "config", "uploadpack.allowFilter", strconv.FormatBool(may))
}

// CreateSHA256 makes a bare repository with a commit whose objects have SHA-256
// names.
func (s *Server) CreateSHA256(repository string) {
	s.t.Helper()
	s.git(s.root, "init", "-q", "--bare", "-b", "main", "--object-format=sha256", s.Path(repository))
	work := s.t.TempDir()
	s.git(work, "init", "-q", "-b", "main", "--object-format=sha256")
	s.git(work, "commit", "-q", "--allow-empty", "-m", "Begin")
	s.git(work, "push", "-q", s.Path(repository), "HEAD:refs/heads/main")
}

// Path is the directory of a repository.
func (s *Server) Path(repository string) string {
	return filepath.Join(s.root, repository+".git")
}

// Commit adds, replaces and, where the content is Removed, deletes files on
// branch main and returns the new commit's hash.
func (s *Server) Commit(repository string, files map[string]string) string {
	s.t.Helper()
	return s.CommitTo(repository, "main", files)
}

// Removed as a file's content deletes the file.
const Removed = "\x00removed"

// Symlink as a file's content makes it a symbolic link to target.
func Symlink(target string) string { return symlinkPrefix + target }

const symlinkPrefix = "\x00symlink:"

// CommitTo is Commit on a branch, which is made from nothing where it does not
// exist.
func (s *Server) CommitTo(repository, branch string, files map[string]string) string {
	s.t.Helper()
	work := s.t.TempDir()
	s.git(work, "init", "-q", "-b", branch)
	s.git(work, "remote", "add", "origin", s.Path(repository))
	if s.git(work, "ls-remote", "--heads", "origin", branch) != "" {
		s.git(work, "fetch", "-q", "origin", branch)
		s.git(work, "reset", "-q", "--hard", "FETCH_HEAD")
	}
	s.write(work, files)
	s.git(work, "add", "-A", "-f")
	s.git(work, "commit", "-q", "--allow-empty", "-m", "Change the fleet")
	s.git(work, "push", "-q", "origin", "HEAD:refs/heads/"+branch)
	return s.git(work, "rev-parse", "HEAD")
}

// Replace is a force-push: branch main becomes one commit without a parent that
// holds only these files.
func (s *Server) Replace(repository string, files map[string]string) string {
	s.t.Helper()
	work := s.t.TempDir()
	s.git(work, "init", "-q", "-b", "main")
	s.write(work, files)
	s.git(work, "add", "-A", "-f")
	s.git(work, "commit", "-q", "--allow-empty", "-m", "Replace the fleet")
	s.git(work, "push", "-q", "--force", s.Path(repository), "HEAD:refs/heads/main")
	return s.git(work, "rev-parse", "HEAD")
}

// Tag names a commit.
func (s *Server) Tag(repository, tag, revision string) {
	s.t.Helper()
	s.git(s.Path(repository), "tag", "-f", "-a", "-m", tag, tag, revision)
}

// SetBranch has a branch name a commit, whatever it named.
func (s *Server) SetBranch(repository, branch, commit string) {
	s.t.Helper()
	s.git(s.Path(repository), "update-ref", "refs/heads/"+branch, commit)
}

// Merge has branch main name a merge of itself and another commit.
func (s *Server) Merge(repository, other string) string {
	s.t.Helper()
	path := s.Path(repository)
	merged := s.git(path, "commit-tree", "main^{tree}", "-p", other, "-p", s.git(path, "commit-tree", "main^{tree}", "-p", "main", "-m", "Change"), "-m", "Merge")
	s.SetBranch(repository, "main", merged)
	return merged
}

// Forget removes what no branch and no tag leads to.
func (s *Server) Forget(repository string) {
	s.t.Helper()
	s.git(s.Path(repository), "gc", "-q", "--prune=now")
}

// DeleteBranch removes a branch.
func (s *Server) DeleteBranch(repository, branch string) {
	s.t.Helper()
	s.git(s.Path(repository), "update-ref", "-d", "refs/heads/"+branch)
}

// WriteFiles writes files below dir; a content may be Removed or a Symlink.
func WriteFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	// What goes makes room for what comes, such as a directory of the same name.
	names := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return cmp.Or(removedFirst(files[a])-removedFirst(files[b]), cmp.Compare(a, b))
	})
	for _, name := range names {
		content := files[name]
		if err := writeFile(filepath.Join(dir, filepath.FromSlash(name)), content); err != nil {
			t.Fatalf("write %s: %v", name, err)
		}
	}
}

func removedFirst(content string) int {
	if content == Removed {
		return 0
	}
	return 1
}

func (s *Server) write(dir string, files map[string]string) {
	s.t.Helper()
	WriteFiles(s.t, dir, files)
}

func writeFile(path, content string) error {
	if content == Removed {
		return os.Remove(path)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if target, ok := strings.CutPrefix(content, symlinkPrefix); ok {
		return os.Symlink(target, path)
	}
	return os.WriteFile(path, []byte(content), 0o644)
}

// git runs the git command without the machine's configuration and returns what
// it printed.
func (s *Server) git(dir string, args ...string) string {
	s.t.Helper()
	return s.gitWith(dir, "", args...)
}

// store writes an object as it is, whatever is wrong with it.
func (s *Server) store(dir, kind, content string) string {
	s.t.Helper()
	return s.gitWith(dir, content, "hash-object", "-t", kind, "-w", "--literally", "--stdin")
}

func (s *Server) gitWith(dir, stdin string, args ...string) string {
	s.t.Helper()
	cmd := exec.CommandContext(s.t.Context(), "git", args...)
	cmd.Dir = dir
	cmd.Env, cmd.Stdin = gitEnvironment(), strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		s.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// gitEnvironment is this process's without the machine's configuration of Git.
func gitEnvironment() []string {
	return append(os.Environ(),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull,
		"GIT_AUTHOR_NAME=Fleet", "GIT_AUTHOR_EMAIL=fleet@example.com",
		"GIT_COMMITTER_NAME=Fleet", "GIT_COMMITTER_EMAIL=fleet@example.com")
}
