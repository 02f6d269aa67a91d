package agent

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// spool holds the log between the command, which must not wait for the hub
// needlessly, and the hub, which may be away. It is a ring in an unlinked file:
// the last size bytes can be read again, should the hub ask for them, and a
// writer that is size bytes ahead of the hub waits. One goroutine writes, one
// reads.
type spool struct {
	file *os.File
	size int64
	// grown gets a value when there may be something new to read.
	grown chan struct{}

	mu    sync.Mutex // guards all below
	freed *sync.Cond // of mu: acked, discarded changed
	// written and acked count bytes since the stream's beginning.
	written, acked int64
	closed         bool
	// discarded: nobody reads any more; writers go on for nothing.
	discarded bool
	// tail is the end of the stream when the disk was full and could not take
	// it; the writer waits until the hub has it.
	tail []byte
}

func newSpool(dir string, size int64) (*spool, error) {
	file, err := os.CreateTemp(dir, "log-*")
	if err != nil {
		return nil, fmt.Errorf("make the spool of the log: %w", err)
	}
	// Nobody else needs its name, and a killed agent leaves nothing.
	if err := os.Remove(file.Name()); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("unlink the spool of the log: %w", err)
	}
	s := &spool{file: file, size: size, grown: make(chan struct{}, 1)}
	s.freed = sync.NewCond(&s.mu)
	return s, nil
}

// Write appends, and waits while the spool is full. It never fails.
func (s *spool) Write(data []byte) (int, error) {
	total := len(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(data) > 0 {
		for !s.discarded && (s.written-s.acked >= s.size || s.tail != nil) {
			s.freed.Wait()
		}
		if s.discarded {
			return total, nil
		}
		part := data[:min(int64(len(data)), s.size-(s.written-s.acked))]
		if err := s.put(part); err != nil {
			s.tail = append([]byte(nil), part...)
		}
		s.written += int64(len(part))
		data = data[len(part):]
		s.wake()
	}
	return total, nil
}

// put writes at the ring's end; part is not longer than the ring.
func (s *spool) put(part []byte) error {
	at := s.written % s.size
	first := min(int64(len(part)), s.size-at)
	if _, err := s.file.WriteAt(part[:first], at); err != nil {
		return err
	}
	_, err := s.file.WriteAt(part[first:], 0)
	return err
}

// read fills buffer from the offset with what there is. The error says that
// the offset is not kept any more, or not yet written.
func (s *spool) read(offset int64, buffer []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if offset > s.written || offset < s.written-s.size {
		return 0, fmt.Errorf("log offset %d is not kept: have %d to %d", offset, max(0, s.written-s.size), s.written)
	}
	onDisk := s.written - int64(len(s.tail))
	if offset >= onDisk {
		return copy(buffer, s.tail[offset-onDisk:]), nil
	}
	at := offset % s.size
	n := min(int64(len(buffer)), onDisk-offset, s.size-at)
	if _, err := io.ReadFull(io.NewSectionReader(s.file, at, n), buffer[:n]); err != nil {
		return 0, fmt.Errorf("read the spool of the log: %w", err)
	}
	return int(n), nil
}

// ack says that the hub has everything before the offset.
func (s *spool) ack(offset int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked = max(s.acked, min(offset, s.written))
	if s.acked == s.written {
		s.tail = nil
	}
	s.freed.Broadcast()
}

// end says that the stream is complete.
func (s *spool) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.wake()
}

// discard lets writers go on although nobody reads.
func (s *spool) discard() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.discarded = true
	s.freed.Broadcast()
}

// state is how much was written, and whether that is all.
func (s *spool) state() (written int64, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.written, s.closed
}

func (s *spool) wake() {
	select {
	case s.grown <- struct{}{}:
	default:
	}
}

// close frees the disk.
func (s *spool) close() { _ = s.file.Close() }
