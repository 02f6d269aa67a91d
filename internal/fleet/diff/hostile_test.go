package diff_test

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// tree writes a tree object that git itself would not make: "MODE NAME" → hash.
func (r *repo) tree(entries ...[2]string) string {
	r.t.Helper()
	var b bytes.Buffer
	for _, e := range entries {
		raw, err := hex.DecodeString(e[1])
		if err != nil {
			r.t.Fatal(err)
		}
		b.WriteString(e[0] + "\x00" + string(raw))
	}
	command := exec.Command("git", "hash-object", "-w", "-t", "tree", "--literally", "--stdin")
	command.Dir, command.Stdin = r.dir, &b
	out, err := command.CombinedOutput()
	if err != nil {
		r.t.Fatalf("%v: %s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// A FIFO, in the place of a file that is read of Git's directory, keeps nobody.
func TestFIFOsInTheGitDirectory(t *testing.T) {
	t.Parallel()
	for _, name := range []string{".", "config", "HEAD", "packed-refs", "commondir", "refs/heads/other", "refs/remotes/origin/main"} {
		r := newRepo(t, fleetFiles())
		at := filepath.Join(r.dir, ".git", name)
		if err := errors.Join(os.RemoveAll(at), os.MkdirAll(filepath.Dir(at), 0o700)); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(at, 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := diff.OpenBase(t.Context(), r.dir, "HEAD")
		if err == nil || !strings.Contains(err.Error(), "no regular file") || !strings.Contains(err.Error(), "clone") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An object that is damaged is said to be, with what to do.
func TestADamagedObject(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	hash := r.git("rev-parse", "HEAD:pools/base/gpu.yaml")
	at := filepath.Join(r.dir, ".git", "objects", hash[:2], hash[2:])
	if err := errors.Join(os.Chmod(at, 0o600), os.WriteFile(at, []byte("junk"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := diff.OpenBase(t.Context(), r.dir, "HEAD"); err == nil || !strings.Contains(err.Error(), "git fsck") {
		t.Errorf("it says %v", err)
	}
}

// A tree may have any names and links: nothing is written beside the scratch
// directory, and what Git would not check out is not there.
func TestHostileTrees(t *testing.T) {
	t.Parallel()
	r := newRepo(t, fleetFiles())
	blob, sub := r.git("rev-parse", "HEAD:README.md"), r.git("rev-parse", "HEAD:clusters")
	outside := filepath.Join(t.TempDir(), "outside")
	var entries [][2]string
	for _, name := range []string{"..", ".", ".git", ".GIT", "a/b.yaml", "/x.yaml", "../x.yaml", `a\b.yaml`, "x.yaml/"} {
		entries = append(entries, [2]string{"100644 " + name, blob}, [2]string{"40000 " + name, sub})
	}
	for name, target := range map[string]string{"up.yaml": "../../../../etc/passwd", "absolute.yaml": outside, "loop.yaml": "loop.yaml", "dir": "..", "long.yaml": strings.Repeat("a/", 5_000)} {
		command := exec.Command("git", "hash-object", "-w", "--stdin")
		command.Dir, command.Stdin = r.dir, strings.NewReader(target)
		out, err := command.Output()
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, [2]string{"120000 " + name, strings.TrimSpace(string(out))})
	}
	for _, name := range []string{"clusters", "hub", "pools"} {
		entries = append(entries, [2]string{"40000 " + name, r.git("rev-parse", "HEAD:"+name)})
	}
	for _, order := range [][][2]string{entries, append(entries[len(entries)-3:len(entries):len(entries)], entries[:len(entries)-3]...)} {
		commit := r.git("commit-tree", "-m", "Hostile", r.tree(order...))
		if got := r.summary(commit); !strings.HasSuffix(got, "roots: no difference") {
			t.Error(got)
		}
	}
	if _, err := os.Lstat(outside); err == nil {
		t.Error("a link was written through")
	}
	// A tree of trees of trees: ten to the tenth of files.
	level := r.tree([2]string{"100644 f.yaml", blob})
	for range 10 {
		var ten [][2]string
		for i := range 10 {
			ten = append(ten, [2]string{fmt.Sprintf("40000 d%d", i), level})
		}
		level = r.tree(ten...)
	}
	if got := r.summary(r.git("commit-tree", "-m", "Bomb", level)); !strings.Contains(got, "the tree is too large: it has more than 100000 files, or is nested more than 64 deep: move what is no fleet definition to another repository") {
		t.Error(got)
	}
}

// What is no file, loops or leaves the repository is said of its overlay, and
// ends.
func TestHostileWorkTrees(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		make func(*repo)
		says string
	}{
		"a pipe": {func(r *repo) {
			r.write(map[string]string{"hub/gpu.yaml": fleettest.Removed})
			if err := syscall.Mkfifo(filepath.Join(r.dir, "hub/gpu.yaml"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "3 roots: no difference in 2, 1 not compared"},
		"a pipe for a kustomization": {func(r *repo) {
			r.write(map[string]string{"hub/kustomization.yaml": fleettest.Removed})
			if err := syscall.Mkfifo(filepath.Join(r.dir, "hub/kustomization.yaml"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "3 roots: no difference in 2, 1 not compared"},
		"a loop": {func(r *repo) {
			r.write(map[string]string{"hub/gpu.yaml": fleettest.Removed})
			r.write(map[string]string{"hub/gpu.yaml": fleettest.Symlink("gpu.yaml")})
		}, "3 roots: no difference in 2, 1 not compared"},
		"a way out": {func(r *repo) {
			r.write(map[string]string{"hub/gpu.yaml": fleettest.Removed})
			r.write(map[string]string{"hub/gpu.yaml": fleettest.Symlink("../../../../../../../etc/passwd")})
		}, "3 roots: no difference in 2, 1 not compared"},
		"a circle": {func(r *repo) {
			r.write(map[string]string{"pools/base/kustomization.yaml": "resources: [gpu.yaml, ../../clusters/eu]\n"})
		}, "3 roots: no difference in 1, 2 not compared"},
		"a huge file": {func(r *repo) {
			r.write(map[string]string{"hub/gpu.yaml": strings.Repeat("# x\n", 2<<20)})
		}, "3 roots: no difference in 2, 1 not compared"},
		"no UTF-8": {func(r *repo) {
			r.write(map[string]string{"hub/gpu.yaml": "\xff\xfe\x00a"})
		}, "3 roots: no difference in 2, 1 not compared"},
		"aliases": {func(r *repo) {
			bomb := "a: &a [x, x, x, x, x, x, x, x, x]\n"
			for c := 'b'; c < 'k'; c++ {
				bomb += fmt.Sprintf("%c: &%c [*%c, *%c, *%c, *%c, *%c, *%c, *%c, *%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
			}
			r.write(map[string]string{"hub/gpu.yaml": bomb})
		}, "3 roots: no difference in 2, 1 not compared"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRepo(t, fleetFiles())
			test.make(r)
			if got := r.summary("HEAD"); got != test.says {
				t.Errorf("%s, want %s", got, test.says)
			}
			// The same as the base, where Git takes it.
			if strings.HasPrefix(name, "a pipe") {
				return
			}
			r.git("add", "-A")
			r.git("commit", "-q", "-m", "Hostile")
			if got := r.summary("HEAD"); !strings.HasSuffix(got, "roots: no difference") {
				t.Error(got)
			}
		})
	}
}
