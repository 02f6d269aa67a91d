package fleet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// Bounds on what one root may read. kustomize reads a base once for every time
// it is referred to, so a chain of directories that each name the next one twice
// doubles with every link; the bounds hold for that as well.
const (
	maxVisits     = 500
	maxNesting    = 32
	maxFile       = 4 << 20
	maxRootBytes  = 32 << 20
	maxPlainFiles = 20_000
)

// maxRootValues bounds the values of all that is read for a root: kustomize and the
// scan have each of them as nodes, of some hundred bytes.
var maxRootValues = 600_000

var (
	errBounds = errors.New("beyond the bounds")
	// errFile is one file beyond them, which says nothing of the others.
	errFile = fmt.Errorf("a file %w", errBounds)
	// errNoFile is a directory, a FIFO, a device or a socket.
	errNoFile = errors.New("it is no regular file")
)

// readBounded reads a file that is not too large. It waits for nobody: what is
// no file, such as a FIFO, is an error.
func readBounded(root *os.Root, name string) ([]byte, error) {
	file, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, errNoFile
	case info.Size() > maxFile:
		return nil, fileBeyond(name, "%s is larger than %d MiB", name, maxFile>>20)
	}
	// It may grow meanwhile.
	return io.ReadAll(io.LimitReader(file, maxFile))
}

// OpenRegular opens a file that this process reads by itself, and waits for nobody:
// what is no file, such as a FIFO, is an error.
func OpenRegular(name string) (*os.File, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(&fs.PathError{Op: "read", Path: name, Err: cmp.Or(err, errNoFile)}, file.Close())
	}
	return file, nil
}

// ReadRegular reads a file as OpenRegular opens it.
func ReadRegular(name string) ([]byte, error) {
	file, err := OpenRegular(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return io.ReadAll(file)
}

// read reads a file within the bounds.
func (s *scan) read(name string) ([]byte, error) {
	data, known := s.replaced[name]
	if !known {
		var err error
		if data, err = s.gate.read(name); err != nil {
			return nil, err
		}
	}
	s.reads++
	if s.bytes += int64(len(data)); s.bytes > maxRootBytes {
		return nil, fmt.Errorf("%w: what is read for this root is together larger than %d MiB", errBounds, maxRootBytes>>20)
	}
	values := valuesIn(data)
	if values > maxValues {
		return nil, fileBeyond(name, "%s has more than %d values", name, maxValues)
	}
	if s.values += values; s.layered && s.values > maxRootValues {
		return nil, fmt.Errorf("%w: what is read for this root has together more than %d values", errBounds, maxRootValues)
	}
	s.growth.references += int64(bytes.Count(data, []byte("$(")))
	if err := s.noteComments(name, data); err != nil {
		return nil, err
	}
	before := s.aliased.bytes
	err := s.aliased.add(name, data)
	s.bytes += max(s.aliased.bytes-before, 0)
	return data, err
}

// noteComments notes those of a file as it is, whatever it is taken to say.
func (s *scan) noteComments(name string, data []byte) error {
	if _, taken := s.gate.instead[name]; taken && s.comments != nil {
		var err error
		data, err = readBounded(s.root, name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // Flux writes it
		}
		if err != nil {
			return err
		}
	}
	s.comments.note(name, data)
	return nil
}
