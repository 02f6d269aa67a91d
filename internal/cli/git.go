package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"cloop.dev/cloop/internal/fleet"
)

// remoteTimeout bounds asking a remote for its branches: a comparison of what is
// live must not hang on a server that takes connections and says nothing. Tests
// shorten it.
var remoteTimeout = 20 * time.Second

// standing is how a work tree stands to the branch that hub and clusters
// follow: the upstream of the branch that is checked out.
type standing struct {
	// head is the commit that is checked out: 40 hexadecimal digits.
	head string
	// changed says that the work tree has changes which no commit has.
	changed bool
	// upstream names the remote and its branch, such as origin/main; empty where
	// there is none, and nothing else is known then.
	upstream string
	// tip is the commit that the upstream's branch is at, which may not be here; empty
	// where the remote could not be asked or has none.
	tip string
	// published is the newest commit of head's history that the upstream has;
	// empty where they share none or that is not known.
	published string
	// behind says that the upstream has commits which this clone has not.
	behind bool
	// unasked is why the remote could not be asked; what is known is then as old
	// as the last fetch.
	unasked error
}

// ahead says whether what is here differs from what the upstream has.
func (s standing) ahead() bool {
	return s.upstream != "" && (s.changed || s.published != s.head)
}

// notes are what a person must know of the repository to read a comparison.
func (s standing) notes() []string {
	var notes []string
	if s.changed {
		notes = append(notes, "the work tree has changes that are not committed; they were compared as if they were")
	}
	switch {
	case s.upstream == "":
		notes = append(notes, "the branch follows no remote, so whether its commits are pushed is not known: set one with `git branch --set-upstream-to`")
	case s.published != s.head:
		notes = append(notes, fmt.Sprintf("commit %s is not pushed to %s, which hub and clusters follow", fleet.Short(s.head), s.upstream))
	}
	if s.behind {
		notes = append(notes, fmt.Sprintf("%s has commits that this clone has not: run `git pull` and compare again", s.upstream))
	}
	if s.unasked != nil {
		notes = append(notes, fmt.Sprintf("the remote could not be asked, so %s is as old as the last fetch: %v", s.upstream, s.unasked))
	}
	return notes
}

// standingOf asks git, and the remote, how a work tree stands.
func standingOf(ctx context.Context, root string) (standing, error) {
	var s standing
	var err error
	if _, err = git(ctx, root, "rev-parse", "--git-dir"); err != nil {
		return s, fmt.Errorf("%s is no clone of a fleet repository: run this in one, or name one with --repo PATH: %w", root, err)
	}
	if s.head, err = git(ctx, root, "rev-parse", "--verify", "HEAD"); err != nil {
		return s, fmt.Errorf("%s has no commit yet: commit the fleet's files first, or name another clone with --repo PATH: %w", root, err)
	}
	status, err := git(ctx, root, "status", "--porcelain")
	if err != nil {
		return s, fmt.Errorf("find the changes of %s: %w", root, err)
	}
	s.changed = status != ""
	remote, branch := upstreamOf(ctx, root)
	if remote == "" {
		return s, nil
	}
	s.upstream = remote + "/" + branch
	fetched, err := git(ctx, root, "rev-parse", "--verify", "--quiet", "refs/remotes/"+s.upstream)
	if err != nil {
		fetched = ""
	}
	tip, err := tipOf(ctx, root, remote, branch)
	s.tip = tip
	if err != nil {
		s.unasked, tip = err, fetched
	}
	s.compare(ctx, root, tip, fetched)
	return s, ctx.Err()
}

// addressesOf are those of a clone's remotes, as they are written and as url.*.insteadOf
// has them; nil where it has none.
func addressesOf(ctx context.Context, root string) (addresses []string) {
	// Git fails where there is none.
	text, _ := git(ctx, root, "config", "--get-regexp", `^remote\..*\.url$`)
	used, _ := git(ctx, root, "remote", "--verbose")
	for line := range strings.Lines(text + "\n" + used) {
		if fields := strings.Fields(line); len(fields) > 1 {
			addresses = append(addresses, fields[1])
		}
	}
	return addresses
}

// upstreamOf is the remote and the branch there that the checked-out branch
// follows. A detached head, as pipelines have, stands for the remote's main
// branch.
func upstreamOf(ctx context.Context, root string) (remote, branch string) {
	if name, err := git(ctx, root, "symbolic-ref", "--quiet", "--short", "HEAD"); err == nil {
		remote, _ = git(ctx, root, "config", "--get", "branch."+name+".remote")
		branch, _ = git(ctx, root, "config", "--get", "branch."+name+".merge")
		if branch = strings.TrimPrefix(branch, "refs/heads/"); remote != "" && branch != "" {
			return remote, branch
		}
		branch = name
	}
	remotes, err := git(ctx, root, "remote")
	if err != nil || remotes == "" {
		return "", ""
	}
	remote, _, _ = strings.Cut(remotes, "\n")
	if strings.Contains("\n"+remotes+"\n", "\norigin\n") {
		remote = "origin"
	}
	if head, err := git(ctx, root, "symbolic-ref", "--quiet", "--short", "refs/remotes/"+remote+"/HEAD"); err == nil && branch == "" {
		branch = strings.TrimPrefix(head, remote+"/")
	}
	if branch == "" {
		branch = "main"
	}
	return remote, branch
}

// tipOf asks a remote which commit a branch is at; empty where it has no such
// branch.
func tipOf(ctx context.Context, root, remote, branch string) (string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, remoteTimeout, fmt.Errorf("no answer within %s", remoteTimeout))
	defer cancel()
	line, err := git(ctx, root, "ls-remote", "--quiet", remote, "refs/heads/"+branch)
	if err != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	hash, _, _ := strings.Cut(line, "\t")
	return hash, nil
}

// compare fills in what the upstream has. A tip that this clone does not know
// was pushed since the last fetch, which then tells what was there before.
func (s *standing) compare(ctx context.Context, root, tip, fetched string) {
	if tip == "" {
		return
	}
	if _, err := git(ctx, root, "cat-file", "-e", tip+"^{commit}"); err != nil {
		s.behind = true
		tip = fetched
	}
	if tip == "" {
		return
	}
	s.published, _ = git(ctx, root, "merge-base", s.head, tip)
	s.behind = s.behind || s.published != tip
}

// exportTree writes a commit's files to a new directory, which the caller
// removes. Nothing in the repository changes: the index is one of its own.
func exportTree(ctx context.Context, root, revision string) (dir string, err error) {
	scratch, err := os.MkdirTemp("", "cloop-drift-")
	if err != nil {
		return "", fmt.Errorf("make room for revision %s: %w", fleet.Short(revision), err)
	}
	dir = filepath.Join(scratch, "tree")
	index := "GIT_INDEX_FILE=" + filepath.Join(scratch, "index")
	if _, err = gitWith(ctx, root, []string{index}, "read-tree", revision); err == nil {
		_, err = gitWith(ctx, root, []string{index}, "checkout-index", "--all", "--force", "--prefix="+dir+"/")
	}
	if err == nil {
		// A commit without a file makes no directory.
		err = os.MkdirAll(dir, 0o700)
	}
	if err != nil {
		return "", errors.Join(fmt.Errorf("read revision %s of %s: %w", fleet.Short(revision), root, err), os.RemoveAll(scratch))
	}
	return dir, nil
}

// removeTree removes what exportTree made.
func removeTree(dir string) { _ = os.RemoveAll(filepath.Dir(dir)) }

// git runs a reading git command. Optional locks are off, so that nothing in
// the work tree is written either, and nobody is asked for a password.
func git(ctx context.Context, directory string, arguments ...string) (string, error) {
	return gitWith(ctx, directory, nil, arguments...)
}

func gitWith(ctx context.Context, directory string, environment []string, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, "git", append([]string{"--no-optional-locks", "-C", directory}, arguments...)...)
	command.Env = append(append(os.Environ(), "GIT_TERMINAL_PROMPT=0"), environment...)
	// The helper that git starts for a remote goes with it: it would hang on.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGKILL) }
	output, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("git %s: %s", arguments[0], oneLine(string(exit.Stderr)))
	}
	return strings.TrimSpace(string(output)), err
}
