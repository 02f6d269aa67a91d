package store

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
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
	conn  connection
	ctx   context.Context //nolint:containedctx // the batch's, for every statement of it
	now   time.Time
	// settle holds the ids of pools to settle before the commit, and of those that
	// are the value of Store.opened by then; fed the pools whose watchers may see a
	// difference.
	settle map[string]int64
	fed    map[string]struct{}
	topics map[string]struct{}
	events []Event
	names  map[string]string // pool id → name
	// caller is the user that the change is made for; nil for everybody else's.
	caller *Caller
	people people
	hurry  bool // the change may have brought a nearer deadline
	wrote  bool // some row changed
	stirs  bool // what changed may matter to pools that were at rest
}

// update runs fn in a transaction and returns when it is on disk. Several wait
// for one commit; each is rolled back alone if its fn returns an error.
func (s *Store) update(ctx context.Context, fn func(*Tx) error) error {
	r := &request{fn: as(ctx, fn), done: make(chan struct{})}
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
	ctx, cancel := s.engine.patience()
	defer cancel()
	conn, err := s.begin(ctx)
	if err != nil {
		return failed(s.waiting(first), &accessError{"begin a change of", err})
	}
	defer conn.release()
	batch, now, err := s.followClock(ctx, conn)
	if err != nil {
		conn.rollback(ctx)
		return failed(append(batch, first), fmt.Errorf("follow the clock, which was set: %w", err))
	}
	s.current, s.rest = now, map[string]int64{}
	batch = append(batch, first)
	for whole := s.runOne(ctx, conn, first); ; {
		if !whole {
			// Some of a change that failed may still be there.
			conn.rollback(ctx)
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
	began := time.Now() // by the system's clock: it is measured, not decided by
	if err := conn.commit(ctx, topics(batch)); err != nil {
		conn.rollback(ctx)
		return failed(batch, &accessError{"commit a change of", err})
	}
	s.committed(len(batch), time.Since(began))
	s.followed(now)
	return batch
}

// begin starts a transaction. A connection that was lost since the last one is
// made again: nothing was asked of it yet.
func (s *Store) begin(ctx context.Context) (connection, error) {
	for again := false; ; again = true {
		conn, err := s.engine.connect(ctx)
		if err != nil {
			return nil, err
		}
		if err = conn.begin(ctx); err == nil {
			return conn, nil
		}
		conn.release()
		if again || !lost(err) {
			return nil, err
		}
	}
}

// waiting is the first request and all that wait behind it: what keeps the first
// from beginning keeps them too, and each would only find it out after a while.
func (s *Store) waiting(first *request) []*request {
	batch := []*request{first}
	for {
		select {
		case next := <-s.requests:
			batch = append(batch, next)
		default:
			return batch
		}
	}
}

// followClock makes leases and deadlines follow a clock that was set, before
// anything is decided by the new time.
func (s *Store) followClock(ctx context.Context, conn connection) (batch []*request, now reading, err error) {
	if now, err = s.look(ctx, conn.clock); err != nil {
		return nil, now, err
	}
	by := s.jump(now)
	s.leapt(now)
	if by == 0 {
		return nil, now, nil
	}
	r := &request{fn: follow(by), done: make(chan struct{})}
	if s.engine.shared() {
		now.followed += by // which the database keeps for other members
	}
	s.current = now
	if !s.runOne(ctx, conn, r) || r.err != nil {
		return []*request{r}, now, r.err
	}
	return []*request{r}, now, nil
}

// topics are what the changes that did not fail wake.
func topics(batch []*request) map[string]struct{} {
	all := map[string]struct{}{}
	for _, r := range batch {
		if r.err == nil {
			maps.Copy(all, r.tx.topics)
		}
	}
	return all
}

// runOne runs one request in a savepoint. The transaction around it is whole
// unless the database itself gave it up, as SQLite does when the disk is full.
func (s *Store) runOne(ctx context.Context, conn connection, r *request) (whole bool) {
	r.tx = &Tx{
		store: s, conn: conn, ctx: ctx, now: s.timeIn(s.current), settle: map[string]int64{}, fed: map[string]struct{}{},
		topics: map[string]struct{}{}, names: map[string]string{},
	}
	r.err = r.fn(r.tx)
	if r.err == nil {
		r.err = r.tx.finish()
	}
	end := conn.keep
	if r.err != nil {
		end = conn.undo
	}
	cause := conn.cause()
	err := end(ctx)
	if err == nil {
		if cause != nil {
			// What failed after it says nothing.
			r.err = &accessError{"change", cause}
		}
		if r.err == nil {
			r.tx.rested()
		}
		return true
	}
	kept := r.err == nil
	err = &accessError{"change", err}
	if !kept {
		err = fmt.Errorf("%w; %w", r.err, err)
	}
	r.err = err
	// What the database refuses only at the end of a change ends that alone.
	return kept && conn.undo(ctx) == nil
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
		s.wakeTimers()
	}
	for _, event := range r.tx.events {
		s.observe(event)
	}
}

// exec runs a statement and returns how many rows it changed.
func (tx *Tx) exec(query string, args ...any) (int64, error) {
	changed, err := tx.conn.exec(tx.ctx, query, args...)
	if err != nil {
		return 0, &accessError{"change", err}
	}
	tx.wrote, tx.stirs = tx.wrote || changed > 0, tx.stirs || changed > 0
	return changed, nil
}

// send runs a statement of which nobody needs to know how many rows it changed.
// It may go to the database together with the next one.
func (tx *Tx) send(query string, args ...any) error {
	if err := tx.conn.send(tx.ctx, query, args...); err != nil {
		return &accessError{"change", err}
	}
	tx.wrote, tx.stirs = true, true
	return nil
}

// QueryContext makes Tx a querier, with the transaction's own context: a caller
// that goes away must not break the transaction that it shares.
func (tx *Tx) QueryContext(_ context.Context, query string, args ...any) (*sql.Rows, error) {
	return tx.conn.QueryContext(tx.ctx, query, args...)
}

// QueryRowContext is like QueryContext.
func (tx *Tx) QueryRowContext(_ context.Context, query string, args ...any) *sql.Row {
	return tx.conn.QueryRowContext(tx.ctx, query, args...)
}

// consider settles the pool at the end of the transaction.
func (tx *Tx) consider(pool string) { tx.settle[pool] = 0 }

// touch settles the pool and wakes its watchers.
func (tx *Tx) touch(pool string) {
	tx.settle[pool] = 0
	tx.fed[pool] = struct{}{}
}

// changed is touch for a change of what is said of a pool: that matters to what
// waits for it, and where nothing waits there is nothing to settle.
func (tx *Tx) changed(pool poolRow) {
	if pool.Queued > 0 {
		tx.touch(pool.ID)
		return
	}
	tx.fed[pool.ID] = struct{}{}
}

func (tx *Tx) wake(topic string) { tx.topics[topic] = struct{}{} }

// finish settles the pools that changed and counts their feed.
func (tx *Tx) finish() error {
	for pool := range tx.settle {
		opened := tx.store.watchesOpened()
		if at, rests := tx.store.rest[pool]; !rests || at != opened || tx.stirs {
			if err := tx.settlePool(pool); err != nil {
				return err
			}
		}
		tx.settle[pool] = opened
	}
	for pool := range tx.fed {
		if err := tx.send("UPDATE pools SET feed = feed + 1 WHERE id = ?", pool); err != nil {
			return err
		}
		tx.wake(PoolTopic(pool))
	}
	return nil
}

// rested notes which pools the change has left at rest: of a hundred runners that
// begin to listen at once, the first gives all of them what there is.
func (tx *Tx) rested() {
	if tx.stirs {
		clear(tx.store.rest)
	}
	maps.Copy(tx.store.rest, tx.settle)
}
