package hub

import (
	"context"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// files reads the files that the hub's options name, again and again while it
// serves. Whoever reads one waits neither for the writer of a pipe nor for a mount
// that hangs: the system lets nobody break such a read off.
type files struct {
	// patience is how long a read may take.
	patience time.Duration
	// read reads a file to its end, however long that takes.
	read func(name string) ([]byte, error)

	mu sync.Mutex // guards what follows
	// under: name → how many reads of it have not come back.
	under map[string]int
}

const (
	filePatience = 5 * time.Second
	// maxStuck bounds the reads of one file that never come back, each of which
	// holds a thread.
	maxStuck = 4
	// maxFile is far above any bundle of certificates.
	maxFile = 16 << 20
)

var disk = &files{patience: filePatience, read: readRegular, under: map[string]int{}}

// readFile reads a whole file.
func readFile(ctx context.Context, name string) ([]byte, error) { return disk.readFile(ctx, name) }

func (f *files) readFile(ctx context.Context, name string) ([]byte, error) {
	if !f.begin(name) {
		return nil, fmt.Errorf("read %s: %d earlier reads of it have not come back: is it on a mount that hangs?", name, maxStuck)
	}
	type outcome struct {
		data []byte
		err  error
	}
	done := make(chan outcome, 1)
	// Nobody can wait for it: it may never end.
	go func() {
		defer f.end(name)
		data, err := f.read(name)
		done <- outcome{data, err}
	}()
	late := time.NewTimer(f.patience) // the system's time: the disk goes by no other
	defer late.Stop()
	select {
	case out := <-done:
		return out.data, out.err
	case <-late.C:
		return nil, fmt.Errorf("read %s: it takes longer than %s: is it on a mount that hangs?", name, f.patience)
	case <-ctx.Done():
		return nil, fmt.Errorf("read %s: %w", name, ctx.Err())
	}
}

func (f *files) begin(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.under[name] >= maxStuck {
		return false
	}
	f.under[name]++
	return true
}

func (f *files) end(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.under[name]--; f.under[name] == 0 {
		delete(f.under, name)
	}
}

// readRegular reads a regular file. A pipe is not even opened in earnest: that
// would wait for somebody who writes.
func readRegular(name string) ([]byte, error) {
	file, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0) //nolint:gosec // the operator's own file
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	switch {
	case info.IsDir():
		return nil, fmt.Errorf("%s is a directory: name a file", name)
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is a pipe or a device, and what it holds must be there each time that it is read: name a file", name)
	case info.Size() > maxFile:
		return nil, fmt.Errorf("%s is larger than the %d bytes that any such file has: name another", name, maxFile)
	}
	return io.ReadAll(io.LimitReader(file, maxFile))
}
