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

	"cloop.dev/cloop/internal/fleet/closure"
)

// objects is where the contents of a commit's tree are.
type objects interface {
	// tree lists all of a commit.
	tree(ctx context.Context, commit string) (*closure.Commit, error)
	close()
}

// library reads objects with go-git.
type library struct{ closure.Library }

func (library) close() {}

func (l library) tree(ctx context.Context, commit string) (*closure.Commit, error) {
	return l.Commit(ctx, commit)
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

func (p *program) tree(ctx context.Context, commit string) (*closure.Commit, error) {
	out, err := git(ctx, p.dir, "ls-tree", "-r", "-t", "-z", "--full-tree", commit)
	if err != nil {
		return nil, err
	}
	t := closure.NewCommit(p)
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
		if _, err := t.Add(name, closure.Entry{Kind: closure.KindOfMode(mode), Hash: fields[2]}); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// Blob is that of closure.Contents.
func (p *program) Blob(hash string, limit int64) ([]byte, error) {
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
