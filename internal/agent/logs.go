package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/retry"
)

// How the log is cut into appends: the first bytes at once, then what came
// within batchPause or as soon as batchBytes are there; never more than
// appendBytes, which is a quarter of what the hub takes.
const (
	batchPause  = 20 * time.Millisecond
	batchBytes  = 32 << 10
	appendBytes = 256 << 10
)

// copyOutput moves the command's output into the spool, without credentials,
// until the last process that holds the pipe has let go of it.
func copyOutput(output io.Reader, credentials [][]byte, to *spool) {
	defer to.end()
	mask := masker{secrets: credentials}
	buffer := make([]byte, 64<<10)
	for {
		n, err := output.Read(buffer)
		_, _ = to.Write(mask.pass(buffer[:n])) // never fails
		if err != nil {
			_, _ = to.Write(mask.rest())
			return
		}
	}
}

// sender appends a run's log at the hub, in order and without gaps or repeats.
type sender struct {
	*runner
	run   string
	spool *spool
	// next is the offset that the hub is to get next.
	next int64
	// last is when the last append began.
	last   time.Time
	buffer []byte
}

func newSender(r *runner, run string, from *spool) *sender {
	return &sender{runner: r, run: run, spool: from, buffer: make([]byte, appendBytes)}
}

// send returns nil when the hub has the whole log. Otherwise the log's rest is
// lost: the context ended, the hub's lease on this runner is over, or the hub
// refused. It always lets the command go on.
func (s *sender) send(ctx context.Context) error {
	defer s.spool.discard()
	var backoff hubclient.Backoff
	for {
		more, err := s.batch(ctx)
		if err != nil || !more {
			return err
		}
		s.last = s.clock.Now()
		n, err := s.spool.read(s.next, s.buffer)
		if err != nil {
			return err
		}
		offset, err := s.session.AppendLog(ctx, s.run, s.next, s.buffer[:n])
		if moved, ok := movedTo(err); ok && moved != s.next {
			// An append whose answer was lost, or a hub that lost an append.
			offset, err = moved, nil
		}
		if err == nil {
			backoff.Reset()
			s.next = offset
			s.spool.ack(offset)
			continue
		}
		if _, refused := refusal(err); refused || ctx.Err() != nil {
			return err
		}
		if s.lease.over() {
			return fmt.Errorf("append to the log: %w: %w", errLeaseOver, err)
		}
		if !retry.Sleep(ctx, s.clock, min(backoff.Next(), s.heartbeat)) {
			return ctx.Err()
		}
	}
}

func movedTo(err error) (int64, bool) {
	var problem *hubv1.Problem
	if errors.As(err, &problem) && problem.Code == hubv1.CodeLogOffset && problem.Offset != nil {
		return *problem.Offset, true
	}
	return 0, false
}

// batch waits until there is something to append. It says false when the log
// is complete and the hub has all of it.
func (s *sender) batch(ctx context.Context) (bool, error) {
	var pause <-chan time.Time
	for {
		written, ended := s.spool.state()
		switch pending := written - s.next; {
		case pending == 0 && ended:
			return false, nil
		case pending > 0 && (ended || pending >= batchBytes || s.clock.Since(s.last) >= batchPause):
			return true, nil
		case pending > 0 && pause == nil:
			timer := s.clock.NewTimer(batchPause - s.clock.Since(s.last))
			defer timer.Stop()
			pause = timer.C()
		}
		select {
		case <-s.spool.grown:
		case <-pause:
			return true, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}
