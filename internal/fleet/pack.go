package fleet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/format/packfile"

	"cloop.dev/cloop/internal/count"
)

// packBounds are what a pack may come to once it is inflated, in bytes, and how many
// objects it may have. What reads a pack keeps whole objects in memory, and something
// of each of them: a pack of a megabyte may hold one of a gigabyte, or a hundred
// thousand.
type packBounds struct {
	object, total int64
	// made bounds an object that is made of another one, and that one: both are in
	// memory, each more than once.
	made    int64
	objects uint32
}

// Bounds on the objects of a commit, by what reading one takes: a few hundred MiB.
const (
	largestObject = 64 << 20
	largestMade   = 32 << 20
)

// These are variables for tests.
var (
	// treeBounds are for a commit without its history. Its trees are beside the files,
	// and who writes the files says more of there being too many.
	treeBounds = packBounds{object: largestObject, made: largestMade, total: maxTreeBytes + 64<<20, objects: 4 * maxTreeFiles}
	// wholeBounds are for all history, which is mostly what one commit has in common
	// with the one before.
	wholeBounds = packBounds{object: largestObject, made: largestMade, total: 8 << 30, objects: 500_000}
)

// maxDeltaHead is how much of a delta's beginning says how long its result is.
const maxDeltaHead = 2 * binary.MaxVarintLen64

// vetted is the pack of a reader as a file of the directory that has no name any
// more, once nothing in it is beyond the bounds. The caller closes it.
func vetted(ctx context.Context, dir string, from io.Reader, most packBounds) (file *os.File, err error) {
	file, err = os.CreateTemp(dir, "pack-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	if err := os.Remove(file.Name()); err != nil {
		return nil, err
	}
	if _, err := io.Copy(file, from); err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return nil, err
	}
	if err := most.check(ctx, file); err != nil {
		return nil, err
	}
	_, err = file.Seek(0, io.SeekStart)
	return file, err
}

// check reads a pack once, keeping nothing of it.
func (b packBounds) check(ctx context.Context, pack io.Reader) error {
	scanner := packfile.NewScanner(pack)
	_, objects, err := scanner.Header()
	if errors.Is(err, packfile.ErrEmptyPackfile) {
		return nil // whoever reads it says so
	}
	if err != nil {
		return err
	}
	if objects > b.objects {
		return fmt.Errorf("%w: it has %s, more than %d", errTooLarge, count.Of(int(objects), "object"), b.objects)
	}
	total := int64(0)
	for range objects {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		header, err := scanner.NextObjectHeader()
		if err != nil {
			return err
		}
		length := header.Length
		if length > b.object {
			return b.tooLong(length, b.object)
		}
		head := &headWriter{}
		if _, _, err := scanner.NextObject(head); err != nil {
			return err
		}
		if header.Type == plumbing.OFSDeltaObject || header.Type == plumbing.REFDeltaObject {
			from, to := head.lengths()
			if longest := max(length, from, to); longest > b.made {
				return b.tooLong(longest, b.made)
			}
			length = max(length, to)
		}
		if total += length; total > b.total {
			return fmt.Errorf("%w: its objects have more than %d MiB", errTooLarge, b.total>>20)
		}
	}
	return nil
}

func (packBounds) tooLong(length, most int64) error {
	return fmt.Errorf("%w: one of its objects has %s, more than %s", errTooLarge, mebibytes(length), mebibytes(most))
}

func mebibytes(n int64) string { return fmt.Sprintf("%.4g MiB", float64(n)/(1<<20)) }

// headWriter keeps the beginning of what is written.
type headWriter struct{ head bytes.Buffer }

// Write is io.Writer's.
func (w *headWriter) Write(p []byte) (int, error) {
	w.head.Write(p[:min(len(p), maxDeltaHead-w.head.Len())])
	return len(p), nil
}

// lengths are how long what a delta is made of and what it makes are; a delta that does
// not say is as good as too long.
func (w *headWriter) lengths() (from, to int64) {
	const unknown = 1 << 62
	base, n := binary.Uvarint(w.head.Bytes())
	if n <= 0 || base > unknown {
		return unknown, unknown
	}
	made, m := binary.Uvarint(w.head.Bytes()[n:])
	if m <= 0 || made > unknown {
		return unknown, unknown
	}
	return int64(base), int64(made)
}
