package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// errNoRef says that the remote answered and has no such branch, tag or commit.
var errNoRef = errors.New("the remote has no such branch, tag or commit")

// checkout brings the assignment's commit into the workspace and returns its
// id. It is called once.
func (w *workspace) checkout(ctx context.Context, a hubv1.Assignment) (string, error) {
	from, err := newSource(a)
	if err != nil {
		return "", err
	}
	commit, err := w.fetchQuickly(ctx, from)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNoRef) {
		// A server of another generation, a redirect, a broken connection: git
		// knows more ways than this package, and says better what is wrong.
		commit, err = w.fetchThoroughly(ctx, from)
	}
	if err != nil {
		return "", fmt.Errorf("fetch %s of %s: %w%s", from.what(), from.remote, err, fetchAdvice(err))
	}
	if err := w.remember(from); err != nil {
		return "", err
	}
	if a.Declared != nil {
		if err := w.demand(ctx, commit, *a.Declared); err != nil {
			return "", err
		}
	}
	// Everything the commit needs is read here, so a fetch that left something
	// out does not go unnoticed.
	if _, err := w.run(ctx, "read-tree", "-u", "--reset", commit); err != nil {
		return "", fmt.Errorf("check out %s: %w", commit, err)
	}
	return commit, nil
}

func (s source) what() string {
	if s.commit != "" {
		return "commit " + s.commit
	}
	return s.ref
}

// fetchQuickly fetches with as few round trips and processes as there can be:
// one request to resolve a name, one for the pack, into a process that waits.
func (w *workspace) fetchQuickly(ctx context.Context, from source) (string, error) {
	want, commit := from.commit, from.commit
	if commit == "" {
		var err error
		if want, commit, err = w.remote.resolve(ctx, from.remote, from.refs); err != nil {
			return "", err
		}
	}
	shallow, err := w.remote.fetch(ctx, from.remote, want, w.indexer.pack)
	if err != nil {
		return "", err
	}
	if err := w.indexer.finish(); err != nil {
		return "", err
	}
	if len(shallow) > 0 {
		if err := w.write("shallow", strings.Join(shallow, "\n")+"\n"); err != nil {
			return "", err
		}
	}
	return commit, w.write("HEAD", commit+"\n")
}

// Tries of the thorough way, and the pause before the second; it doubles.
const fetchTries = 3

// fetchThoroughly has git fetch, again where that may help.
func (w *workspace) fetchThoroughly(ctx context.Context, from source) (string, error) {
	var backoff hubclient.Backoff
	for try := 1; ; try++ {
		commit, err := w.fetchWithGit(ctx, from)
		if err == nil || ctx.Err() != nil || try == fetchTries || errors.Is(err, errNoRef) {
			return commit, err
		}
		select {
		case <-time.After(backoff.Next()):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

func (w *workspace) fetchWithGit(ctx context.Context, from source) (string, error) {
	refs := from.refs
	if from.commit != "" {
		refs = []string{from.commit}
	}
	var commit string
	var err error
	for _, ref := range refs {
		_, err = w.run(ctx, "fetch", "-q", "--depth=1", "--no-tags", "--no-auto-maintenance", "--", from.remote, ref)
		if err == nil || !noSuchRef(err) {
			break
		}
	}
	if from.commit != "" && err != nil && noSuchRef(err) && validRef(from.ref) && !isObjectID(from.ref) {
		// Some servers give no commit by its id: get the branch whole.
		_, err = w.run(ctx, "fetch", "-q", "--no-tags", "--no-auto-maintenance", "--", from.remote, from.ref)
	}
	if err != nil {
		if noSuchRef(err) {
			err = fmt.Errorf("%w: %w", errNoRef, err)
		}
		return "", err
	}
	name := from.commit
	if name == "" {
		name = "FETCH_HEAD"
	}
	if commit, err = w.run(ctx, "rev-parse", "--verify", "-q", name+"^{commit}"); err != nil {
		return "", fmt.Errorf("%w: %w", errNoRef, err)
	}
	return commit, w.write("HEAD", commit+"\n")
}

// fetchAdvice is what to do about a server that git cannot talk to, by git's words,
// which are stable under LC_ALL=C; empty: nothing that is known.
func fetchAdvice(err error) string {
	said := err.Error()
	switch {
	case strings.Contains(said, "certificate verification failed"), strings.Contains(said, "SSL certificate problem"):
		return ": add the authority of the Git server to hubCABundle of the ExecutorPool, which runners trust for Git too, or use an image that trusts it"
	case strings.Contains(said, "could not read Username"), strings.Contains(said, "could not read Password"), strings.Contains(said, "Authentication failed"):
		return ": the repository asks for a login, and runners have no credential for projects' repositories: let it be read without one, or correct the project's remote"
	}
	return ""
}

// noSuchRef reads git's words, which are stable under LC_ALL=C.
func noSuchRef(err error) bool {
	said := err.Error()
	return strings.Contains(said, "couldn't find remote ref") || strings.Contains(said, "not our ref") ||
		strings.Contains(said, "unadvertised object")
}

// remember lets the run itself use git as in any clone.
func (w *workspace) remember(from source) error {
	name := filepath.Join(w.dir, ".git", "config")
	config, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0) //nolint:gosec // our own repository
	if err != nil {
		return fmt.Errorf("record the remote: %w", err)
	}
	// The URL was checked: it holds nothing that would have to be escaped.
	_, err = fmt.Fprintf(config, "[remote \"origin\"]\n\turl = \"%s\"\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n", from.remote)
	if err := errors.Join(err, config.Close()); err != nil {
		return fmt.Errorf("record the remote: %w", err)
	}
	return nil
}

// write replaces a file of the repository.
func (w *workspace) write(name, text string) error {
	if err := os.WriteFile(filepath.Join(w.dir, ".git", name), []byte(text), 0o644); err != nil { //nolint:gosec // as git itself does
		return fmt.Errorf("write .git/%s: %w", name, err)
	}
	return nil
}
