package fleet_test

import (
	"context"
	"encoding/base64"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/secret"
)

const repository = "fleet"

func serve(t *testing.T) *fleettest.Server {
	t.Helper()
	server := fleettest.Serve(t)
	server.Create(repository)
	return server
}

func open(t *testing.T, server *fleettest.Server, dir string, auth fleet.Auth) *fleet.Git {
	t.Helper()
	auth.CABundle = server.CABundle()
	git, err := fleet.OpenGit(dir, server.URL(repository), auth)
	if err != nil {
		t.Fatalf("OpenGit: %v", err)
	}
	return git
}

func checkout(t *testing.T, git *fleet.Git, ref fleet.Ref) *fleet.Tree {
	t.Helper()
	tree, err := git.Checkout(t.Context(), ref)
	if err != nil {
		t.Fatalf("Checkout %s: %v", ref, err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return tree
}

func read(t *testing.T, tree *fleet.Tree, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(tree.Dir, name))
	if err != nil {
		t.Fatalf("read %s: %v", name, err)
	}
	return string(data)
}

// wantSource fails unless the error is ErrSource, names the repository and says
// each of the words.
func wantSource(t *testing.T, err error, words ...string) {
	t.Helper()
	if !errors.Is(err, fleet.ErrSource) {
		t.Fatalf("error %v is not ErrSource", err)
	}
	for _, word := range words {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not say %q", err, word)
		}
	}
}

func TestCheckoutFetchesOncePerRevision(t *testing.T) {
	server := serve(t)
	first := server.Commit(repository, map[string]string{"pool.yaml": "one", "dir/deep/x": "x"})
	git := open(t, server, t.TempDir(), fleet.Auth{})

	revision, err := git.Resolve(t.Context(), fleet.Ref{})
	if err != nil || revision.Commit != first {
		t.Fatalf("Resolve = %s, %v, want %s", revision, err, first)
	}
	if server.Fetches() != 0 {
		t.Fatalf("Resolve fetched %d packs", server.Fetches())
	}
	for range 3 {
		tree := checkout(t, git, fleet.Ref{Branch: "main"})
		if tree.Revision != first || read(t, tree, "pool.yaml") != "one" || read(t, tree, "dir/deep/x") != "x" {
			t.Fatalf("the tree of %s is not that of %s", tree.Revision, first)
		}
	}
	if server.Fetches() != 1 {
		t.Fatalf("three checkouts of one revision fetched %d packs, want 1", server.Fetches())
	}

	second := server.Commit(repository, map[string]string{"pool.yaml": "two", "dir/deep/x": fleettest.Removed})
	tree := checkout(t, git, fleet.Ref{})
	if tree.Revision != second || read(t, tree, "pool.yaml") != "two" {
		t.Fatalf("a new commit did not arrive")
	}
	if _, err := os.Stat(filepath.Join(tree.Dir, "dir")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a removed file's directory is still there: %v", err)
	}
}

func TestCheckoutOfATagAndACommit(t *testing.T) {
	server := serve(t)
	first := server.Commit(repository, map[string]string{"pool.yaml": "one"})
	server.Tag(repository, "v1", first)
	server.Commit(repository, map[string]string{"pool.yaml": "two"})
	git := open(t, server, t.TempDir(), fleet.Auth{})

	for _, ref := range []fleet.Ref{{Tag: "v1", Branch: "main"}, {Commit: first, Branch: "main"}} {
		if tree := checkout(t, git, ref); tree.Revision != first || read(t, tree, "pool.yaml") != "one" {
			t.Errorf("%s is at %s, want %s", ref, tree.Revision, first)
		}
	}
	_, err := git.Checkout(t.Context(), fleet.Ref{Commit: strings.Repeat("ab", 20)})
	wantSource(t, err, strings.Repeat("ab", 20), server.URL(repository))
	_, err = git.Resolve(t.Context(), fleet.Ref{Commit: "HEAD~1"})
	wantSource(t, err, "40 hexadecimal digits")
}

func TestForcePushIsFollowed(t *testing.T) {
	server := serve(t)
	server.Commit(repository, map[string]string{"pool.yaml": "one", "gone": "x"})
	git := open(t, server, t.TempDir(), fleet.Auth{})
	checkout(t, git, fleet.Ref{})

	replaced := server.Replace(repository, map[string]string{"pool.yaml": "another history"})
	tree := checkout(t, git, fleet.Ref{})
	if tree.Revision != replaced || read(t, tree, "pool.yaml") != "another history" {
		t.Fatalf("after a force-push the tree is at %s, want %s", tree.Revision, replaced)
	}
}

func TestDeletedBranchIsAnError(t *testing.T) {
	server := serve(t)
	server.Commit(repository, map[string]string{"a": "a"})
	server.CommitTo(repository, "staging", map[string]string{"a": "b"})
	git := open(t, server, t.TempDir(), fleet.Auth{})
	checkout(t, git, fleet.Ref{Branch: "staging"})

	server.DeleteBranch(repository, "staging")
	_, err := git.Checkout(t.Context(), fleet.Ref{Branch: "staging"})
	wantSource(t, err, "branch staging", server.URL(repository))
}

func TestEmptyRepositoryIsAnError(t *testing.T) {
	server := serve(t)
	git := open(t, server, t.TempDir(), fleet.Auth{})
	_, err := git.Checkout(t.Context(), fleet.Ref{})
	wantSource(t, err, "push a first commit")
}

func TestUnreachableServerIsAnErrorAndComesBack(t *testing.T) {
	server := serve(t)
	revision := server.Commit(repository, map[string]string{"a": "a"})
	git := open(t, server, t.TempDir(), fleet.Auth{})
	checkout(t, git, fleet.Ref{})

	server.Close()
	_, err := git.Checkout(t.Context(), fleet.Ref{})
	wantSource(t, err, server.URL(repository), "can be reached")

	// The commit itself is in the clone, so nobody needs to be asked.
	if tree := checkout(t, git, fleet.Ref{Commit: revision}); read(t, tree, "a") != "a" {
		t.Error("the clone lost its commit")
	}
}

func TestCancelledContextEndsTheCheckout(t *testing.T) {
	server := serve(t)
	server.Commit(repository, map[string]string{"a": "a"})
	git := open(t, server, t.TempDir(), fleet.Auth{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond)
	defer cancel()
	<-ctx.Done()
	_, err := git.Checkout(ctx, fleet.Ref{})
	wantSource(t, err)
}

func TestAuthentication(t *testing.T) {
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:hunter2"))
	tests := []struct {
		name, header string
		auth         fleet.Auth
	}{
		{"basic", basic, fleet.Auth{Username: "robot", Password: secret.New("hunter2")}},
		{"bearer", "Bearer tok3n", fleet.Auth{Username: "robot", Bearer: secret.New("tok3n")}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := serve(t)
			server.Commit(repository, map[string]string{"a": "a"})
			server.RequireAuthorization(test.header)
			checkout(t, open(t, server, t.TempDir(), test.auth), fleet.Ref{})

			_, err := open(t, server, t.TempDir(), fleet.Auth{Username: "robot", Password: secret.New("wr0ng")}).
				Resolve(t.Context(), fleet.Ref{})
			wantSource(t, err, "give a credential")
			if strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("error %q shows the password", err)
			}
		})
	}
}

func TestUntrustedCertificateIsAnError(t *testing.T) {
	server := serve(t)
	git, err := fleet.OpenGit(t.TempDir(), server.URL(repository), fleet.Auth{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = git.Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err, "CA bundle")
}

func TestOpenGitRefusesOtherURLs(t *testing.T) {
	for name, url := range map[string]string{
		"plain http":        "http://git.example.com/fleet.git",
		"git":               "git://git.example.com/fleet.git",
		"a password of ssh": "ssh://git:hunter2@git.example.com/fleet.git",
		"ssh without path":  "ssh://git@git.example.com",
		"scp style":         "git@git.example.com:fleet.git",
		"a path":            "/srv/fleet.git",
		"user information":  "https://robot:hunter2@git.example.com/fleet.git",
		"broken":            "https://robot:hunter2@git.example.com:port/fleet.git",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := fleet.OpenGit(t.TempDir(), url, fleet.Auth{})
			wantSource(t, err)
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("error %q shows the password", err)
			}
		})
	}
	_, err := fleet.OpenGit(t.TempDir(), "https://git.example.com/fleet.git", fleet.Auth{CABundle: []byte("no PEM")})
	wantSource(t, err, "PEM")
}

func TestSymbolicLinks(t *testing.T) {
	tests := []struct {
		name    string
		files   map[string]string
		refused string
	}{
		{"inside", map[string]string{"base/a": "a", "eu/a": fleettest.Symlink("../base/a")}, ""},
		{"dangling", map[string]string{"a": fleettest.Symlink("nowhere")}, ""},
		{"absolute", map[string]string{"a": fleettest.Symlink("/etc/passwd")}, "/etc/passwd"},
		{"upwards", map[string]string{"eu/a": fleettest.Symlink("../../../../etc/passwd")}, "leaves the repository"},
		// d is the root, so d/../x is outside although it reads as inside.
		{"over another link", map[string]string{"p/q/r/d": fleettest.Symlink("../../.."), "p/q/r/e": fleettest.Symlink("d/../x")}, "p/q/r/e"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			server := serve(t)
			server.Commit(repository, test.files)
			git := open(t, server, t.TempDir(), fleet.Auth{})
			tree, err := git.Checkout(t.Context(), fleet.Ref{})
			if test.refused == "" {
				if err != nil {
					t.Fatalf("Checkout: %v", err)
				}
				_ = tree.Close()
				return
			}
			// A commit that cannot be had would be asked for again.
			if !errors.Is(err, fleet.ErrBuild) || errors.Is(err, fleet.ErrSource) {
				t.Errorf("%v is not the commit's fault", err)
			}
			text := err.Error()
			if !strings.Contains(text, test.refused) || strings.Count(text, "check out") != 1 || !strings.HasSuffix(text, "commit a tree without it") {
				t.Errorf("it says %s", text)
			}
		})
	}
}

// A process that is killed leaves half a clone, a whole one that the disk
// damaged, or trees that nobody closes.
func TestCheckoutAfterAKilledProcess(t *testing.T) {
	server := serve(t)
	server.Commit(repository, map[string]string{"pool.yaml": "one"})
	tests := []struct {
		name  string
		harm  func(t *testing.T, clone string)
		packs int
	}{
		{"nothing happened", func(*testing.T, string) {}, 0},
		{"the clone is gone", func(t *testing.T, clone string) {
			if err := os.RemoveAll(clone); err != nil {
				t.Fatal(err)
			}
		}, 1},
		{"the packs are empty", func(t *testing.T, clone string) {
			damage(t, filepath.Join(clone, "objects", "pack", "*.pack"))
		}, 1},
		{"the references are empty", func(t *testing.T, clone string) {
			damage(t, filepath.Join(clone, "refs", "heads", "*"))
		}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if _, err := open(t, server, dir, fleet.Auth{}).Checkout(t.Context(), fleet.Ref{}); err != nil {
				t.Fatal(err)
			}
			clones, err := filepath.Glob(filepath.Join(dir, "*", "clone"))
			if err != nil || len(clones) != 1 {
				t.Fatalf("clones are %v, %v", clones, err)
			}
			half := filepath.Join(filepath.Dir(clones[0]), "fetching-1")
			if err := os.Mkdir(half, 0o700); err != nil {
				t.Fatal(err)
			}
			test.harm(t, clones[0])
			before := server.Fetches()

			git := open(t, server, dir, fleet.Auth{})
			if tree := checkout(t, git, fleet.Ref{}); read(t, tree, "pool.yaml") != "one" {
				t.Error("the tree is not whole")
			}
			if packs := server.Fetches() - before; packs != test.packs {
				t.Errorf("fetched %d packs, want %d", packs, test.packs)
			}
			left, err := os.ReadDir(filepath.Dir(clones[0]))
			if err != nil || len(left) != 2 {
				t.Errorf("the directory holds %v (%v), want the clone and one tree", left, err)
			}
		})
	}
}

func damage(t *testing.T, pattern string) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("nothing matches %s: %v", pattern, err)
	}
	for _, file := range files {
		if err := os.Chmod(file, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(file, 0); err != nil {
			t.Fatal(err)
		}
	}
}

// A repository whose objects have SHA-256 names is told so: it cannot be read.
func TestARepositoryOfSHA256IsAnError(t *testing.T) {
	server := fleettest.Serve(t)
	server.CreateSHA256(repository)
	git := open(t, server, t.TempDir(), fleet.Auth{})
	_, err := git.Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err, "SHA-256", "git init --object-format=sha1")
	_, err = git.Checkout(t.Context(), fleet.Ref{})
	wantSource(t, err, "SHA-256")
}
