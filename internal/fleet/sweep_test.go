package fleet_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

func TestSweep(t *testing.T) {
	s := serve(t)
	s.Commit(repository, map[string]string{"a": "a"})
	dir := t.TempDir()
	clone := func(name string) *fleet.Git {
		git := open(t, s, filepath.Join(dir, name), fleet.Auth{})
		checkout(t, git, fleet.Ref{})
		return git
	}
	clone("kept")
	clone("gone")
	used := clone("used")
	for _, name := range []string{"other/file", "other-dir/0123456789abcdef-not/x", "mixed/0123456789abcdef/clone/x", "mixed/notes"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	// What no Git refers to any more is not in use.
	runtime.GC()
	runtime.GC()
	removed := map[string]bool{}
	for range 100 {
		gone, err := fleet.Sweep(dir, []string{"kept"})
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range gone {
			removed[filepath.Base(name)] = true
		}
		if len(removed) > 0 {
			break
		}
		runtime.GC()
		runtime.Gosched()
	}
	if len(removed) != 1 || !removed["gone"] {
		t.Errorf("removed %v, want gone alone", removed)
	}
	for _, name := range []string{"kept", "used", "other", "other-dir", "mixed"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
	checkout(t, used, fleet.Ref{})
	// A Git whose directory went all the same makes it again.
	if err := os.RemoveAll(filepath.Join(dir, "used")); err != nil {
		t.Fatal(err)
	}
	checkout(t, used, fleet.Ref{})
	if gone, err := fleet.Sweep(filepath.Join(dir, "nowhere"), nil); err != nil || len(gone) > 0 {
		t.Errorf("%v, %v", gone, err)
	}
}

// Who reads another repository keeps nothing of the one before, and of an artifact no
// clone.
func TestOneRepositoryIsKept(t *testing.T) {
	s := serve(t)
	s.Commit(repository, map[string]string{"a": "a"})
	s.Create("moved")
	s.Commit("moved", map[string]string{"a": "b"})
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	kept := func(want int) {
		t.Helper()
		if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != want+1 {
			t.Errorf("there is %v, want %d beside the notes", left, want)
		}
	}
	checkout(t, open(t, s, dir, fleet.Auth{}), fleet.Ref{})
	kept(1)
	git, err := fleet.OpenGit(dir, s.URL("moved"), fleet.Auth{CABundle: s.CABundle()})
	if err != nil {
		t.Fatal(err)
	}
	if tree := checkout(t, git, fleet.Ref{}); read(t, tree, "a") != "b" {
		t.Error("it is the repository before")
	}
	kept(1)
	tree, err := served(t, fleettest.Archive(t, map[string]string{"a": "c"})).Checkout(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	kept(1)
	if read(t, tree, "a") != "c" {
		t.Error("it is no artifact")
	}
	checkout(t, open(t, s, dir, fleet.Auth{}), fleet.Ref{})
	kept(1)
}

// With no room left nothing changes: the clone that is there stays good, and with
// room it goes on.
func TestAFullDisk(t *testing.T) {
	s := serve(t)
	first := s.Commit(repository, map[string]string{"a": "a"})
	dir, fill, free := smallDisk(t)
	git := open(t, s, dir, fleet.Auth{})
	checkout(t, git, fleet.Ref{})
	noise := make([]byte, 1<<20)
	for i, seed := 0, uint32(1); i < len(noise); i++ {
		seed = seed*1664525 + 1013904223
		noise[i] = 'a' + byte(seed>>24)%26
	}
	second := s.Commit(repository, map[string]string{"a": "b", "noise": string(noise)})
	fill()
	_, err := git.Checkout(t.Context(), fleet.Ref{})
	free()
	wantSource(t, err, "make room where "+dir, "it goes on by itself")
	if tree := checkout(t, git, fleet.Ref{Commit: first}); read(t, tree, "a") != "a" {
		t.Error("the clone is lost")
	}
	left, _ := filepath.Glob(filepath.Join(dir, "*", "*"))
	if len(left) != 3 {
		t.Errorf("there is %v left, want the clone and two trees", left)
	}
	if tree := checkout(t, git, fleet.Ref{}); tree.Revision != second {
		t.Error("it does not go on")
	}
}

// boundedFiles is what a quota looks like.
func boundedFiles(t *testing.T) (dir string, fill, free func()) {
	var was unix.Rlimit
	set := func(limit unix.Rlimit) {
		if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &was); err != nil {
		t.Fatal(err)
	}
	free = func() { set(was) }
	t.Cleanup(free)
	return t.TempDir(), func() { set(unix.Rlimit{Cur: 256 << 10, Max: was.Max}) }, free
}

// smallDisk is a disk of its own, where this machine can make one.
func smallDisk(t *testing.T) (dir string, fill, free func()) {
	dir = t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Logf("a full disk cannot be made here, only a bound on files: %v", err)
		return boundedFiles(t)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	return dir, func() {
			file, err := os.Create(ballast)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = file.Close() }()
			for chunk := make([]byte, 64<<10); err == nil; {
				_, err = file.Write(chunk)
			}
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatal(err)
			}
		}, func() {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		}
}
