package diff

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/filemode"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
)

// objects is where the contents of a commit's tree are.
type objects interface {
	// tree lists all of a commit.
	tree(ctx context.Context, commit string) (*commitTree, error)
	// blob returns at most limit bytes of a content.
	blob(hash string, limit int64) ([]byte, error)
	close()
}

// library reads objects with go-git.
type library struct{ store storer.EncodedObjectStorer }

func (l *library) close() {}

func (l *library) tree(ctx context.Context, commit string) (*commitTree, error) {
	found, err := object.GetCommit(l.store, plumbing.NewHash(commit))
	if err != nil {
		return nil, err
	}
	t := newCommitTree(l)
	return t, l.walk(ctx, t, found.TreeHash, ".")
}

func (l *library) walk(ctx context.Context, t *commitTree, hash plumbing.Hash, dir string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	tree, err := object.GetTree(l.store, hash)
	if err != nil {
		return fmt.Errorf("read directory %s: %w", dir, err)
	}
	for i := range tree.Entries {
		e := &tree.Entries[i]
		name := strings.TrimPrefix(dir+"/"+e.Name, "./")
		if strings.Contains(e.Name, "/") {
			continue
		}
		added, err := t.add(name, entry{kind: kindOfMode(e.Mode), hash: e.Hash.String()})
		if err != nil {
			return err
		}
		if added && e.Mode == filemode.Dir {
			if err := l.walk(ctx, t, e.Hash, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func kindOfMode(mode filemode.FileMode) kind {
	switch mode {
	case filemode.Dir:
		return directory
	case filemode.Submodule:
		return module
	case filemode.Symlink:
		return link
	case filemode.Regular, filemode.Executable, filemode.Deprecated:
		return regular
	}
	return odd
}

func (l *library) blob(hash string, limit int64) (data []byte, err error) {
	blob, err := object.GetBlob(l.store, plumbing.NewHash(hash))
	if err != nil {
		return nil, err
	}
	reader, err := blob.Reader()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	return io.ReadAll(io.LimitReader(reader, limit))
}

// program reads objects with the git program: of repositories in a format that
// go-git does not know, such as those with SHA-256 names.
type program struct {
	dir string
	// batch is a running `git cat-file --batch`, once a content was asked for.
	batch  *exec.Cmd
	ask    io.WriteCloser
	answer *bufio.Reader
}

// gitCommand reads: it takes no lock, asks nobody for a password, and fetches
// nothing that a partial clone lacks.
func gitCommand(ctx context.Context, dir string, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "git", append([]string{"--no-optional-locks", "-C", dir}, args...)...)
	command.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_NO_LAZY_FETCH=1")
	return command
}

func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	out, err := gitCommand(ctx, dir, args...).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil, fmt.Errorf("git %s: %s", args[0], strings.Join(strings.Fields(string(exit.Stderr)), " "))
	}
	return out, err
}

func (p *program) tree(ctx context.Context, commit string) (*commitTree, error) {
	out, err := git(ctx, p.dir, "ls-tree", "-r", "-t", "-z", "--full-tree", commit)
	if err != nil {
		return nil, err
	}
	t := newCommitTree(p)
	for line := range bytes.SplitSeq(out, []byte{0}) {
		// MODE TYPE HASH, a tab and the path.
		facts, name, ok := strings.Cut(string(line), "\t")
		fields := strings.Fields(facts)
		if !ok || len(fields) != 3 {
			continue
		}
		mode, err := filemode.New(fields[0])
		if err != nil {
			continue
		}
		if _, err := t.add(name, entry{kind: kindOfMode(mode), hash: fields[2]}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

func (p *program) blob(hash string, limit int64) ([]byte, error) {
	if p.batch == nil {
		if err := p.start(); err != nil {
			return nil, err
		}
	}
	if _, err := io.WriteString(p.ask, hash+"\n"); err != nil {
		return nil, err
	}
	header, err := p.answer.ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("git cat-file: %w", err)
	}
	fields := strings.Fields(header)
	if len(fields) != 3 {
		return nil, fmt.Errorf("%w: %s", plumbing.ErrObjectNotFound, strings.TrimSpace(header))
	}
	size, err := strconv.ParseInt(fields[2], 10, 64)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(p.answer, min(size, limit)))
	if err != nil {
		return nil, err
	}
	// The rest, and the line break behind it.
	_, err = io.CopyN(io.Discard, p.answer, size-int64(len(data))+1)
	return data, err
}

// start runs until close; no context ends it in the middle of an answer.
func (p *program) start() error {
	batch := gitCommand(context.Background(), p.dir, "cat-file", "--batch")
	ask, err := batch.StdinPipe()
	if err != nil {
		return err
	}
	answer, err := batch.StdoutPipe()
	if err != nil {
		return err
	}
	if err := batch.Start(); err != nil {
		return err
	}
	p.batch, p.ask, p.answer = batch, ask, bufio.NewReader(answer)
	return nil
}

func (p *program) close() {
	if p.batch != nil {
		_ = p.ask.Close()
		_ = p.batch.Wait()
	}
}
