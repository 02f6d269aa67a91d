package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"

	gitindex "github.com/go-git/go-git/v5/plumbing/format/index"

	"cloop.dev/cloop/internal/fleet/ignored"
)

var (
	// errGitDirectory keeps what Git keeps for itself out of every build: it is in no
	// commit, and forges have their jobs keep tokens there.
	errGitDirectory = errors.New("it is in Git's own directory, which no commit has")
	// errUntracked keeps out what a job has put beside the repository, such as a file
	// with a credential.
	errUntracked = errors.New("Git does not track it, so no commit has it")
)

// Tracked are the files of a work tree that Git tracks: what a commit has, and hub
// and clusters see. A nil Tracked has all.
type Tracked struct {
	files map[string]bool
	// dirs that have some of the files, at any depth.
	dirs map[string]bool
}

func newTracked() *Tracked {
	return &Tracked{files: map[string]bool{}, dirs: map[string]bool{".": true}}
}

func (t *Tracked) add(name string) {
	t.files[name] = true
	for dir := path.Dir(name); !t.dirs[dir]; dir = path.Dir(dir) {
		t.dirs[dir] = true
	}
}

// ReadTracked reads what Git tracks in the work tree at dir, from its index, or with
// the git program where that has a form that only it reads.
func ReadTracked(ctx context.Context, dir string) (*Tracked, error) {
	t := newTracked()
	file, err := OpenRegular(filepath.Join(dir, ".git", "index"))
	if err == nil {
		defer func() { _ = file.Close() }()
		read := &gitindex.Index{}
		if err = gitindex.NewDecoder(file).Decode(read); err == nil {
			for _, entry := range read.Entries {
				t.add(entry.Name)
			}
			return t, nil
		}
	}
	if errors.Is(err, errNoFile) {
		// The git program would wait for whoever writes to it.
		return nil, fmt.Errorf("tell what Git tracks in %s: %w: clone the repository again, or give --untracked to read every file", dir, err)
	}
	// A second work tree, SHA-256 names, a sparse or split index.
	listed, failed := exec.CommandContext(ctx, "git", "-C", dir, "ls-files", "-z").Output()
	if failed != nil {
		return nil, fmt.Errorf("tell what Git tracks in %s: %w: check a clone of the repository, or give --untracked to read every file", dir, errors.Join(err, failed))
	}
	for name := range bytes.SplitSeq(listed, []byte{0}) {
		t.add(string(name))
	}
	return t, nil
}

// has says whether a file, relative to the repository, is tracked.
func (t *Tracked) has(name string) bool { return t == nil || t.files[name] }

// hasIn says whether a directory, relative to the repository, has a tracked file. A
// submodule is tracked as a file is.
func (t *Tracked) hasIn(dir string) bool { return t == nil || t.dirs[dir] || t.files[dir] }

// gate says which files of a repository are read. It is safe for concurrent use, and
// takes directories for what they were when they were first met.
type gate struct {
	top  string
	root *os.Root
	// tracked: see Checking.
	tracked *Tracked
	// instead: file, relative to the repository → what it is taken to say.
	instead map[string][]byte
	// leaves is what Flux leaves out; nil: nothing is.
	leaves *ignored.Filter

	mu sync.Mutex // guards what follows
	// dirs: directory → where it leads to over symbolic links.
	dirs map[string]string
	// met: see meeting; nil: nobody asks.
	met map[string]bool
}

func newGate(top string, root *os.Root) *gate {
	return &gate{top: top, root: root, dirs: map[string]string{}}
}

// read reads a file of the repository, relative to it, within the bounds.
func (g *gate) read(name string) ([]byte, error) {
	if err := g.refuse(filepath.Join(g.top, filepath.FromSlash(name))); err != nil {
		return nil, err
	}
	if text, ok := g.instead[name]; ok {
		return text, nil
	}
	return readBounded(g.root, name)
}

// with is the gate with another text in the place of a file's.
func (g *gate) with(file string, text []byte) *gate {
	other := newGate(g.top, g.root)
	other.tracked, other.instead, other.leaves = g.tracked, map[string][]byte{file: text}, g.leaves
	return other
}

// real is where an absolute path leads to over symbolic links: itself where that is
// nowhere. Looking at each directory once is a small part of looking at all of a path
// for each of its files.
func (g *gate) real(name string) string {
	dir := filepath.Dir(name)
	g.mu.Lock()
	found, known := g.dirs[dir]
	g.mu.Unlock()
	if !known {
		var err error
		if found, err = filepath.EvalSymlinks(dir); err != nil {
			found = dir
		}
		g.mu.Lock()
		g.dirs[dir] = found
		g.mu.Unlock()
	}
	name = filepath.Join(found, filepath.Base(name))
	if info, err := os.Lstat(name); err == nil && info.Mode()&os.ModeSymlink != 0 {
		if linked, err := filepath.EvalSymlinks(name); err == nil {
			return linked
		}
	}
	return name
}

// refuse says why a file, also over symbolic links, is not read; nil: it is. What is
// not there is for whoever reads it to say.
func (g *gate) refuse(name string) error {
	real := g.real(name)
	inner, ok := Inside(g.top, real)
	if !ok {
		return nil // it leads out of the repository, and is refused for that
	}
	for part := range strings.SplitSeq(inner, "/") {
		if strings.EqualFold(part, ".git") {
			return errGitDirectory
		}
	}
	if !g.tracked.has(inner) {
		if _, err := os.Lstat(real); err == nil {
			return errUntracked
		}
		return nil
	}
	g.meet(inner)
	if _, written := g.instead[inner]; written {
		return nil
	}
	if err := g.leftOut(inner, false); err != nil {
		return err
	}
	if asked, ok := Inside(g.top, name); ok && asked != inner {
		return g.leftOut(asked, false)
	}
	return nil
}

// Inside is a path relative to a directory, with slashes; ok says whether it lies in
// it, or is it. Both are as the file system has them: absolute, without symbolic links.
func Inside(directory, path string) (relative string, ok bool) {
	relative, err := filepath.Rel(directory, path)
	if err != nil || !filepath.IsLocal(relative) {
		return "", false
	}
	return filepath.ToSlash(relative), true
}
