package dev

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Repository is a work tree whose remote is a repository of the system's Git
// server. It drives the git command, as a committer would.
type Repository struct {
	// Dir is the work tree.
	Dir string
	// URL is the remote.
	URL    string
	caFile string
}

// branch is the only branch that the system's repositories have.
const branch = "main"

// clone opens the work tree in dir and fills it from the remote as long as it
// has no commit. It is an error when the remote does not answer. It may be
// repeated after it failed half-way.
func clone(ctx context.Context, dir, url, caFile string) (*Repository, error) {
	r := &Repository{Dir: dir, URL: url, caFile: caFile}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if _, err := r.git(ctx, "init", "--quiet", "--initial-branch", branch); err != nil {
		return nil, err
	}
	heads, err := r.git(ctx, "ls-remote", "--heads", url, branch)
	if err != nil || heads == "" {
		return r, err
	}
	if _, err := r.Head(ctx); err == nil {
		return r, nil
	}
	_, err = r.git(ctx, "pull", "--quiet", url, branch)
	return r, err
}

// Write replaces files, given by their slash-separated path in the work tree.
// Nil content removes the file.
func (r *Repository) Write(files map[string][]byte) error {
	for name, content := range files {
		file := filepath.Join(r.Dir, filepath.FromSlash(name))
		if content == nil {
			if err := os.Remove(file); err != nil {
				return err
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(content, []byte("#!")) {
			mode = 0o755
		}
		if err := os.WriteFile(file, content, mode); err != nil {
			return err
		}
	}
	return nil
}

// Read returns the content of a file of the work tree.
func (r *Repository) Read(name string) ([]byte, error) {
	return fs.ReadFile(os.DirFS(r.Dir), name)
}

// Replace changes the one occurrence of old in a file of the work tree.
func (r *Repository) Replace(name, old, new string) error {
	content, err := r.Read(name)
	if err != nil {
		return err
	}
	if n := bytes.Count(content, []byte(old)); n != 1 {
		return fmt.Errorf("edit %s: %q stands there %d times, not once", name, old, n)
	}
	return r.Write(map[string][]byte{name: bytes.Replace(content, []byte(old), []byte(new), 1)})
}

// Commit commits the whole work tree and returns the revision, 40 hex digits.
func (r *Repository) Commit(ctx context.Context, message string) (string, error) {
	if _, err := r.git(ctx, "add", "--all"); err != nil {
		return "", err
	}
	if _, err := r.git(ctx, "commit", "--quiet", "--message", message); err != nil {
		return "", err
	}
	return r.Head(ctx)
}

// Revert undoes the newest commit with a new one and returns its revision.
func (r *Repository) Revert(ctx context.Context) (string, error) {
	if _, err := r.git(ctx, "revert", "--no-edit", "HEAD"); err != nil {
		return "", err
	}
	return r.Head(ctx)
}

// Push publishes the branch. Repeating it is harmless.
func (r *Repository) Push(ctx context.Context) error {
	_, err := r.git(ctx, "push", "--quiet", r.URL, "HEAD:"+branch)
	return err
}

// followRemote makes a plain git push and git pull work for a person in the
// work tree. Both go to the bare repository on disk: a certificate that only
// this system trusts would fail wherever the environment names others.
func (r *Repository) followRemote(ctx context.Context, bare string) error {
	for _, setting := range [][2]string{
		{"remote.origin.url", bare},
		{"remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"},
		{"branch." + branch + ".remote", "origin"},
		{"branch." + branch + ".merge", "refs/heads/" + branch},
	} {
		if _, err := r.git(ctx, "config", "--replace-all", setting[0], setting[1]); err != nil {
			return err
		}
	}
	// What is compared with origin/main must have one.
	_, err := r.git(ctx, "fetch", "--quiet", "origin")
	return err
}

// Head returns the newest revision, 40 hex digits.
func (r *Repository) Head(ctx context.Context) (string, error) {
	return r.git(ctx, "rev-parse", "--verify", "--quiet", "HEAD")
}

func (r *Repository) git(ctx context.Context, args ...string) (string, error) {
	return git(ctx, r.Dir, r.caFile, args...)
}

// git runs the git command with none of the machine's own configuration, so
// that a signing key or a hook of the person at the keyboard plays no part.
func git(ctx context.Context, dir, caFile string, args ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", args...)
	command.Dir = dir
	command.Env = append(os.Environ(),
		"GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1", "GIT_TERMINAL_PROMPT=0",
		"GIT_SSL_CAINFO="+caFile,
		"GIT_AUTHOR_NAME=Ada", "GIT_AUTHOR_EMAIL=ada@example.com",
		"GIT_COMMITTER_NAME=Ada", "GIT_COMMITTER_EMAIL=ada@example.com",
	)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return "", fmt.Errorf("git %s in %s: %w: %s", strings.Join(args, " "), dir, err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}

// createBare makes an empty bare repository that accepts pushes over HTTP.
func createBare(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "HEAD")); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--bare", "--initial-branch", branch},
		{"config", "http.receivepack", "true"},
		// A runner fetches the one commit that its run names.
		{"config", "uploadpack.allowAnySHA1InWant", "true"},
		// What became of the history is told without its files.
		{"config", "uploadpack.allowFilter", "true"},
	} {
		if _, err := git(ctx, dir, "", args...); err != nil {
			return err
		}
	}
	return nil
}
