package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// maxBatch bounds how many transactions share one commit, so that the first of
// them does not wait for long.
const maxBatch = 64

type request struct {
	fn   func(*Tx) error
	tx   *Tx
	err  error
	done chan struct{} // closed by the writer
}

// Tx is one change in progress. Only the writer's goroutine uses it.
type Tx struct {
	store *Store
	conn  *sql.Conn
	now   time.Time
	// settle holds the ids of pools to settle before the commit; fed those
	// whose watchers may see a difference.
	settle, fed map[string]struct{}
	topics      map[string]struct{}
	events      []Event
	names       map[string]string // pool id → name
	hurry       bool              // the change may have brought a nearer deadline
	wrote       bool              // some row changed
}

// update runs fn in a transaction and returns when it is on disk. Several wait
// for one commit; each is rolled back alone if its fn returns an error.
func (s *Store) update(ctx context.Context, fn func(*Tx) error) error {
	r := &request{fn: fn, done: make(chan struct{})}
	select {
	case s.requests <- r:
	case <-ctx.Done():
		return ctx.Err()
	case <-s.stop:
		return errClosed()
	}
	// Once it is taken it is carried out: the caller must learn what became of
	// it, so its context does not count any more.
	select {
	case <-r.done:
		return r.err
	case <-s.stopped:
		select {
		case <-r.done:
			return r.err
		default:
			return errClosed()
		}
	}
}

func errClosed() *hubv1.Problem { return problem.New(hubv1.CodeUnavailable, "the hub is stopping") }

// write is the one goroutine that changes the database.
func (s *Store) write() {
	defer close(s.stopped)
	for {
		select {
		case first := <-s.requests:
			batch := s.runBatch(first)
			s.note(batch)
			for _, r := range batch {
				s.publish(r)
			}
		case <-s.stop:
			return
		}
	}
}

// runBatch runs the first request and those that wait behind it, and commits.
func (s *Store) runBatch(first *request) []*request {
	ctx := context.Background()
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return failed([]*request{first}, fmt.Errorf("connect to the hub's database: %w", err))
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		drop(conn)
		return failed([]*request{first}, fmt.Errorf("begin a change: %w", err))
	}
	batch := []*request{first}
	by, now := s.jump()
	if by != 0 {
		// Before anything is decided by the new time.
		s.leapt(by, now)
		batch = []*request{{fn: follow(by), done: make(chan struct{})}, first}
		if !s.runOne(ctx, conn, batch[0]) || batch[0].err != nil {
			rollback(ctx, conn)
			return failed(batch, fmt.Errorf("follow the clock, which was set: %w", batch[0].err))
		}
	}
	for whole := s.runOne(ctx, conn, first); ; {
		if !whole {
			// Some of a change that failed may still be there.
			rollback(ctx, conn)
			return failed(batch, fmt.Errorf("a change beside this one broke off: %w", batch[len(batch)-1].err))
		}
		if len(batch) == maxBatch {
			break
		}
		select {
		case next := <-s.requests:
			batch = append(batch, next)
			whole = s.runOne(ctx, conn, next)
			continue
		default:
		}
		break
	}
	if _, err := conn.ExecContext(ctx, "COMMIT"); err != nil {
		rollback(ctx, conn)
		return failed(batch, fmt.Errorf("commit a change: %w", err))
	}
	s.followed(now)
	return batch
}

// rollback ends a transaction that SQLite may have ended itself, as it does when
// the disk is full: then there is none, which is as wanted.
func rollback(ctx context.Context, conn *sql.Conn) { _, _ = conn.ExecContext(ctx, "ROLLBACK") }

// drop makes the next change use a connection of its own: this one may be stuck
// in a transaction.
func drop(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// runOne runs one request in a savepoint. The transaction around it is whole
// unless SQLite itself gave it up, as it does when the disk is full.
func (s *Store) runOne(ctx context.Context, conn *sql.Conn, r *request) (whole bool) {
	if _, err := conn.ExecContext(ctx, "SAVEPOINT one"); err != nil {
		r.err = fmt.Errorf("begin a change: %w", err)
		return false
	}
	r.tx = &Tx{
		store: s, conn: conn, now: s.clock.Now().UTC(), settle: map[string]struct{}{}, fed: map[string]struct{}{},
		topics: map[string]struct{}{}, names: map[string]string{},
	}
	r.err = r.fn(r.tx)
	if r.err == nil {
		r.err = r.tx.finish()
	}
	end := "RELEASE one"
	if r.err != nil {
		end = "ROLLBACK TO one; RELEASE one"
	}
	if _, err := conn.ExecContext(ctx, end); err != nil {
		r.err = errors.Join(r.err, fmt.Errorf("end a change: %w", err))
		return false
	}
	return true
}

// failed fails every request of the batch that has not failed on its own.
func failed(batch []*request, err error) []*request {
	for _, r := range batch {
		if r.err == nil {
			r.err = err
		}
	}
	return batch
}

// publish tells the caller, the watchers and the observer, in this order: the
// caller and the watchers are on the way of a run.
func (s *Store) publish(r *request) {
	if r.err == nil {
		s.Bus.publish(r.tx.topics)
	}
	close(r.done)
	if r.err != nil {
		return
	}
	if r.tx.hurry {
		select {
		case s.deadline <- struct{}{}:
		default:
		}
	}
	for _, event := range r.tx.events {
		s.observe(event)
	}
}

// exec runs a statement and returns how many rows it changed.
func (tx *Tx) exec(query string, args ...any) (int64, error) {
	result, err := tx.conn.ExecContext(context.Background(), query, args...)
	if err != nil {
		return 0, fmt.Errorf("change the hub's database: %w", err)
	}
	changed, err := result.RowsAffected()
	tx.wrote = tx.wrote || changed > 0
	return changed, err
}

// QueryContext makes Tx a querier, with the background context: a caller that
// goes away must not break the transaction that it shares.
func (tx *Tx) QueryContext(_ context.Context, query string, args ...any) (*sql.Rows, error) {
	return tx.conn.QueryContext(context.Background(), query, args...)
}

// QueryRowContext is like QueryContext.
func (tx *Tx) QueryRowContext(_ context.Context, query string, args ...any) *sql.Row {
	return tx.conn.QueryRowContext(context.Background(), query, args...)
}

// consider settles the pool at the end of the transaction.
func (tx *Tx) consider(pool string) { tx.settle[pool] = struct{}{} }

// touch settles the pool and wakes its watchers.
func (tx *Tx) touch(pool string) {
	tx.settle[pool] = struct{}{}
	tx.fed[pool] = struct{}{}
}

func (tx *Tx) wake(topic string) { tx.topics[topic] = struct{}{} }

// finish settles the pools that changed and counts their feed.
func (tx *Tx) finish() error {
	for pool := range tx.settle {
		if err := tx.settlePool(pool); err != nil {
			return err
		}
	}
	for pool := range tx.fed {
		if _, err := tx.exec("UPDATE pools SET feed = feed + 1 WHERE id = ?", pool); err != nil {
			return err
		}
		tx.wake(PoolTopic(pool))
	}
	return nil
}
