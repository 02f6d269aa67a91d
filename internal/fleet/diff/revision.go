package diff

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/go-git/go-billy/v5/osfs"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	gitconfig "github.com/go-git/go-git/v5/plumbing/format/config"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
	"github.com/go-git/go-git/v5/storage/filesystem/dotgit"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/closure"
)

// repository is what belongs to a work tree.
type repository struct {
	// dir is the work tree; dot its Git directory, and common the one that holds
	// objects and references, which is another one for a second work tree.
	dir, dot, common string
	settings         *gitconfig.Config
	objects          objects
	// store is nil where the git program reads.
	store *filesystem.Storage
}

// openRepository opens the repository of a work tree. Its errors say what to do.
func openRepository(dir string) (*repository, error) {
	r := &repository{dir: dir}
	if err := r.find(); err != nil {
		return nil, err
	}
	if r.foreign() {
		if _, err := exec.LookPath("git"); err != nil {
			return nil, fmt.Errorf("read the repository at %s, which has a form that only git itself reads, such as SHA-256 names: %w: install git", dir, err)
		}
		r.objects = &program{dir: dir}
		return r, nil
	}
	dot := dotgit.NewRepositoryFilesystem(osfs.New(r.dot), osfs.New(r.common))
	// Without KeepDescriptors a pack is opened anew for each of its objects.
	r.store = filesystem.NewStorageWithOptions(dot, cache.NewObjectLRU(16<<20), filesystem.Options{LargeObjectThreshold: 1 << 20, KeepDescriptors: true})
	r.objects = library{closure.Library{Store: r.store}}
	return r, nil
}

func (r *repository) close() {
	r.objects.close()
	if r.store != nil {
		_ = r.store.Close()
	}
}

// find looks for the Git directory.
func (r *repository) find() error {
	r.dot = filepath.Join(r.dir, ".git")
	info, err := os.Stat(r.dot)
	switch {
	case err == nil && info.IsDir():
	case err == nil:
		if err := r.follow(); err != nil {
			return err
		}
	case isGitDirectory(r.dir):
		return fmt.Errorf("%s is a bare repository, without a work tree to compare: make one with `git worktree add DIR` and run the command there", r.dir)
	default:
		return fmt.Errorf("%s is in no Git repository: run the command in a clone of the fleet repository", r.dir)
	}
	r.common = r.dot
	if text, err := fleet.ReadRegular(filepath.Join(r.dot, "commondir")); err == nil {
		r.common = absoluteIn(r.dot, strings.TrimSpace(string(text)))
	}
	if !isGitDirectory(r.common) {
		return fmt.Errorf("%s is no Git directory: run `git worktree repair`, or clone the repository again", r.common)
	}
	if err := r.regular(); err != nil {
		return err
	}
	r.settings = gitconfig.New()
	if text, err := fleet.ReadRegular(filepath.Join(r.common, "config")); err == nil {
		// What cannot be read of it settles nothing here.
		_ = gitconfig.NewDecoder(bytes.NewReader(text)).Decode(r.settings)
	}
	return nil
}

// regular refuses a Git directory in which something else stands for a file, such as
// a FIFO: whoever opens that waits for ever.
func (r *repository) regular() error {
	for _, name := range []string{"HEAD", "config", "packed-refs", "shallow", "commondir", "config.worktree", "FETCH_HEAD", "objects/info/alternates"} {
		for _, dir := range []string{r.dot, r.common} {
			if info, err := os.Stat(filepath.Join(dir, name)); err == nil && !info.Mode().IsRegular() {
				return fmt.Errorf("%s is no regular file: clone the repository again", filepath.Join(dir, name))
			}
		}
	}
	for _, dir := range []string{r.dot, r.common} {
		if err := regularBelow(filepath.Join(dir, "refs")); err != nil {
			return err
		}
	}
	return nil
}

// maxReferences bounds how many files of references are looked at.
const maxReferences = 100_000

// regularBelow is like regular, for all that lies below a directory.
func regularBelow(dir string) error {
	left := maxReferences
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		switch left--; {
		case left < 0:
			return fs.SkipAll
		case err != nil, entry.IsDir():
			return nil //nolint:nilerr // what cannot be read has nobody wait
		case entry.Type()&fs.ModeSymlink != 0:
			if info, err := os.Stat(name); err == nil && (info.Mode().IsRegular() || info.IsDir()) {
				return nil
			}
		case entry.Type().IsRegular():
			return nil
		}
		return fmt.Errorf("%s is no regular file: clone the repository again", name)
	})
	return err
}

// follow reads a .git that is a file: that of a second work tree or a submodule.
func (r *repository) follow() error {
	text, err := fleet.ReadRegular(r.dot)
	if err != nil {
		return fmt.Errorf("find the repository: %w: clone it again", err)
	}
	target, ok := strings.CutPrefix(strings.TrimSpace(string(text)), "gitdir: ")
	if !ok {
		return fmt.Errorf("%s says no Git directory: clone the repository again", r.dot)
	}
	r.dot = absoluteIn(r.dir, target)
	if info, err := os.Stat(r.dot); err != nil || !info.IsDir() {
		return fmt.Errorf("the work tree's Git directory %s is not there: run `git worktree repair` in the main work tree", r.dot)
	}
	return nil
}

func absoluteIn(dir, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(dir, name)
}

func isGitDirectory(dir string) bool {
	for _, name := range []string{"HEAD", "objects"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// foreign says whether objects or references are kept in a way that go-git does
// not know, or not in full: of objects elsewhere it knows some.
func (r *repository) foreign() bool {
	if info, err := os.Stat(filepath.Join(r.common, "objects", "info", "alternates")); err == nil && info.Size() > 0 {
		return true
	}
	extensions := r.settings.Section("extensions")
	format, references := extensions.Option("objectformat"), extensions.Option("refstorage")
	return format != "" && !strings.EqualFold(format, "sha1") || references != "" && !strings.EqualFold(references, "files")
}

// Sparse says whether the work tree at a directory has only a part of what is
// committed, as far as Git says so.
func Sparse(dir string) bool {
	r := &repository{dir: dir}
	return r.find() == nil && r.sparse()
}

func (r *repository) sparse() bool {
	sparse := r.settings.Section("core").Option("sparsecheckout")
	if text, err := fleet.ReadRegular(filepath.Join(r.dot, "config.worktree")); err == nil {
		own := gitconfig.New()
		if gitconfig.NewDecoder(bytes.NewReader(text)).Decode(own) == nil && own.Section("core").HasOption("sparsecheckout") {
			sparse = own.Section("core").Option("sparsecheckout")
		}
	}
	return strings.EqualFold(sparse, "true")
}

// notes are what a reader must know of the work tree.
func (r *repository) notes() []string {
	if r.sparse() {
		return []string{"the checkout is sparse, and what is not checked out counts as removed: run `git sparse-checkout disable` for the whole answer"}
	}
	return nil
}

// wholeName is a commit's name in full, in either format.
var wholeName = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// resolve finds the commit that a revision names.
func (r *repository) resolve(ctx context.Context, revision string) (string, error) {
	if revision == "" {
		return "", errors.New("no revision to compare with: name one with --base, such as origin/main")
	}
	asked := revision
	if strings.EqualFold(revision, "FETCH_HEAD") {
		if fetched := r.fetched(); fetched != "" {
			revision = fetched
		}
	}
	if r.store != nil {
		if found, ok := named(r.store, revision); ok {
			return found.String(), nil
		}
	}
	// It knows more ways to name a commit, such as @{upstream}.
	for _, suffix := range []string{"", "^{commit}"} {
		out, err := git(ctx, r.dir, "rev-parse", "--verify", "--quiet", "--end-of-options", revision+suffix)
		if ctx.Err() != nil {
			return "", ctx.Err()
		}
		found := strings.TrimSpace(string(out))
		if err != nil || !wholeName.MatchString(found) {
			if kind, err := git(ctx, r.dir, "cat-file", "-t", revision); err == nil && suffix != "" {
				return "", fmt.Errorf("%s is a %s and no commit: correct --base, which is a branch, a tag or a commit", asked, strings.TrimSpace(string(kind)))
			}
			return "", r.missing(asked)
		}
		// What is a tag is then asked for its commit.
		revision = found
	}
	return revision, nil
}

// fetched is the commit that was fetched last; empty where none was.
func (r *repository) fetched() string {
	text, err := fleet.ReadRegular(filepath.Join(r.dot, "FETCH_HEAD"))
	if err != nil {
		return ""
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if found, _, _ := strings.Cut(lines.Text(), "\t"); wholeName.MatchString(found) {
			return found
		}
	}
	return ""
}

// hasCommit says whether a commit, by its whole name, is here already.
func (r *repository) hasCommit(ctx context.Context, commit string) bool {
	if r.store != nil {
		return len(commit) == shaOneDigits && r.store.HasEncodedObject(plumbing.NewHash(commit)) == nil
	}
	_, err := git(ctx, r.dir, "cat-file", "-e", commit)
	return err == nil
}

// missing says why a revision is not here and how to get it.
func (r *repository) missing(revision string) error {
	shallow := false
	if info, err := os.Stat(filepath.Join(r.common, "shallow")); err == nil && info.Size() > 0 {
		shallow = true
	}
	remote, branch := r.remoteOf(revision)
	name, steps := cutSteps(revision)
	switch {
	case r.unborn():
		return fmt.Errorf("%s is not there: the repository has no commit yet: commit first, and compare the next change", revision)
	case shallow && steps && branchName(name):
		return fmt.Errorf("%s is not in this clone, which is shallow: run `git fetch --deepen=10 %s`, or have the job check out with fetch-depth: 2, and compare again", revision, remote)
	case shallow && wholeName.MatchString(revision):
		return fmt.Errorf("%s is not in this clone, which is shallow: run `git fetch --depth=1 %s %s`, and compare again", revision, remote, revision)
	case shallow && partOfName.MatchString(revision):
		return fmt.Errorf("%s is not in this clone, which is shallow, and a remote finds no commit by a part of its name: give all of it", revision)
	case shallow && branchName(branch):
		return fmt.Errorf("%s is not in this clone, which is shallow: run `git fetch --depth=1 %s %s`, and compare with --base FETCH_HEAD", revision, remote, branch)
	}
	if near := "refs/remotes/" + remote + "/" + branch; remote+"/"+branch != revision && r.has(near) {
		return fmt.Errorf("there is no revision %s here: did you mean --base %s/%s?", revision, remote, branch)
	}
	if !steps && !branchName(branch) && !wholeName.MatchString(revision) {
		return fmt.Errorf("there is no revision %s here: correct --base, which is a branch, a tag or a commit", revision)
	}
	return fmt.Errorf("there is no revision %s here: correct --base, or run `git fetch %s` where the remote has it", revision, remote)
}

// partOfName may be the beginning of a commit's name.
var partOfName = regexp.MustCompile(`^[0-9a-f]{7,39}$`)

// cutSteps takes the steps to other commits, such as ~2 and ^1, from a revision.
func cutSteps(revision string) (name string, steps bool) {
	at := strings.IndexAny(revision, "~^")
	if at <= 0 || stepsOnly.FindString(revision[at:]) == "" {
		return revision, false
	}
	return revision[:at], true
}

var stepsOnly = regexp.MustCompile(`^([~^][0-9]*)+$`)

// branchName says whether Git allows a branch or tag to be called so, and a fetch
// to name it.
func branchName(name string) bool {
	return plumbing.ReferenceName("refs/heads/"+name).Validate() == nil && !strings.HasPrefix(name, "-")
}

func (r *repository) has(reference string) bool {
	if r.store == nil {
		return false
	}
	_, err := storer.ResolveReference(r.store, plumbing.ReferenceName(reference))
	return err == nil
}

// remoteOf is the remote that a revision names, and the rest of it; else the
// one that clones have.
func (r *repository) remoteOf(revision string) (remote, branch string) {
	remotes := map[string]bool{}
	for _, subsection := range r.settings.Section("remote").Subsections {
		remotes[subsection.Name] = true
	}
	branch = strings.TrimPrefix(strings.TrimPrefix(revision, "refs/heads/"), "refs/remotes/")
	if before, after, ok := strings.Cut(branch, "/"); ok && remotes[before] {
		return before, after
	}
	remote = "origin"
	if !remotes[remote] && len(remotes) == 1 {
		for only := range remotes {
			remote = only
		}
	}
	return remote, branch
}

// unborn says whether HEAD is a branch without a commit and there is no other.
func (r *repository) unborn() bool {
	if r.store == nil || r.has("HEAD") {
		return false
	}
	references, err := r.store.IterReferences()
	if err != nil {
		return false
	}
	defer references.Close()
	for {
		reference, err := references.Next()
		if err != nil {
			return true
		}
		if reference.Type() == plumbing.HashReference {
			return false
		}
	}
}

// absent explains an object of the base that is not there.
func (r *repository) absent(base string, err error) error {
	switch {
	case errors.Is(err, plumbing.ErrObjectNotFound) && r.partial():
		return fmt.Errorf("read %s: this clone is partial and lacks some of it: run `git archive %s >/dev/null`, which fetches that, and compare again", base, base)
	case errors.Is(err, plumbing.ErrObjectNotFound), errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("read %s: %w: run `git fsck`, or clone the repository again", base, err)
	case errors.Is(err, closure.ErrTooLarge):
		return fmt.Errorf("read %s: %w: move what is no fleet definition to another repository", base, err)
	}
	if where := (*fs.PathError)(nil); errors.As(err, &where) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("read %s: %w", base, err)
	}
	return fmt.Errorf("read %s: %w: the clone is damaged: run `git fsck`, or clone the repository again", base, err)
}

func (r *repository) partial() bool {
	if r.settings.Section("extensions").Option("partialclone") != "" {
		return true
	}
	for _, remote := range r.settings.Section("remote").Subsections {
		if strings.EqualFold(remote.Option("promisor"), "true") {
			return true
		}
	}
	return false
}
