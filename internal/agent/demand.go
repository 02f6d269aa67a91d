package agent

import (
	"context"
	"fmt"
	"path"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/sandbox"
)

// demand holds the pool to what the commit asks of its runners, which the hub
// could not read. It reads the commit's own object: a checkout may write other
// bytes, and follows links.
func (w *workspace) demand(ctx context.Context, commit string, pool hubv1.Declared) error {
	listed, err := w.run(ctx, "ls-tree", "-z", "-l", commit, "--", sandbox.Path)
	if err != nil {
		return fmt.Errorf("read what the project asks of its runners: %w", err)
	}
	if listed == "" {
		return w.noDemand(ctx, commit)
	}
	// Mode, type, object and size, then a tab and the name.
	about, _, _ := strings.Cut(listed, "\t")
	fields := strings.Fields(about)
	if len(fields) != 4 || fields[1] != "blob" || fields[0] != "100644" && fields[0] != "100755" {
		return fmt.Errorf("%s is no regular file: make it one, so that what it asks for can be held", sandbox.Path)
	}
	if len(fields[3]) > len(fmt.Sprint(sandbox.MaxBytes)) {
		return fmt.Errorf("%s is longer than %d bytes", sandbox.Path, sandbox.MaxBytes)
	}
	text, err := w.command(ctx, "cat-file", "blob", fields[2]).Output()
	if err != nil {
		return fmt.Errorf("read what the project asks of its runners: %w", err)
	}
	asked, err := sandbox.Parse(text)
	if err != nil {
		return fmt.Errorf("what the project asks of its runners cannot be held: %w", err)
	}
	if unmet := sandbox.Unmet(asked, pool); len(unmet) > 0 {
		return fmt.Errorf("the project asks in %s for what the pool does not have: %s: bind it to a pool that has, or declare it on this one",
			sandbox.Path, strings.Join(unmet, "; "))
	}
	return nil
}

// noDemand makes sure that a commit without the file does not lead to one: its
// directory may be a link.
func (w *workspace) noDemand(ctx context.Context, commit string) error {
	dir := path.Dir(sandbox.Path)
	listed, err := w.run(ctx, "ls-tree", "-z", commit, "--", dir)
	if err != nil {
		return fmt.Errorf("read what the project asks of its runners: %w", err)
	}
	if listed != "" && !strings.HasPrefix(listed, "040000 tree ") {
		return fmt.Errorf("%s is no directory: make it one, so that what the project asks for can be held", dir)
	}
	return nil
}
