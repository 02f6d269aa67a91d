package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// errUnknown says that the connection broke while a change was being committed:
// it may be kept or not. The callers must not be told either.
type errUnknown struct{ cause error }

func (e *errUnknown) Error() string {
	return "the connection to the hub's database broke while a change was committed: " + e.cause.Error()
}

func (e *errUnknown) Unwrap() error { return e.cause }

// problem is what the caller of a change is told.
func (e *errUnknown) problem() *hubv1.Problem {
	p := problem.New(hubv1.CodeUnavailable, "the connection to the hub's database broke: the change may or may not have been carried out")
	p.Remedy = "repeat it with the same Idempotency-Key, or look at what is there"
	return p
}

func (p *postgres) connect(ctx context.Context) (connection, error) {
	conn, err := p.writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	c := &postgresConnection{postgres: p, conn: conn, queue: &pgx.Batch{}}
	// The connection is this one's alone until it is released.
	err = conn.Raw(func(raw any) error { c.raw = raw.(*stdlib.Conn).Conn(); return nil })
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return c, nil
}

// postgresConnection sends statements whose outcome nobody waits for together
// with the next one: what costs is to wait for the server.
type postgresConnection struct {
	postgres *postgres
	conn     *sql.Conn
	raw      *pgx.Conn
	queue    *pgx.Batch
	// at and followed are what the begin read, until clock is asked again.
	at       time.Time
	followed time.Duration
	fresh    bool
	// touched says that the change in progress has sent something that it may
	// have to take back, and failure is the first thing that went wrong with it.
	touched bool
	failure error
}

const savepoint = "SAVEPOINT one"

// begin waits for this member's turn.
func (c *postgresConnection) begin(ctx context.Context) error {
	c.queue.Queue("BEGIN")
	c.queueClock()
	c.queue.Queue(savepoint)
	return c.flush(ctx)
}

func (c *postgresConnection) queueClock() {
	c.queue.Queue("SELECT at, followed FROM hub_begin()").QueryRow(func(row pgx.Row) error {
		var at, followed int64
		err := row.Scan(&at, &followed)
		c.at, c.followed, c.fresh = fromNano(at), time.Duration(followed), true
		return err
	})
}

func (c *postgresConnection) clock(ctx context.Context) (time.Time, time.Duration, error) {
	if !c.fresh {
		c.queueClock()
		if err := c.flush(ctx); err != nil {
			return time.Time{}, 0, err
		}
	}
	c.fresh = false
	if c.postgres.time != nil {
		c.at = c.postgres.time.Now()
	}
	return c.at, c.followed, nil
}

// flush sends what waits.
func (c *postgresConnection) flush(ctx context.Context) error {
	if c.queue.Len() == 0 {
		return nil
	}
	queue := c.queue
	c.queue = &pgx.Batch{}
	err := c.raw.SendBatch(ctx, queue).Close()
	if err != nil && c.failure == nil {
		c.failure = err
	}
	return err
}

// QueryContext makes the connection a querier.
func (c *postgresConnection) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	if err := c.flush(ctx); err != nil {
		return nil, err
	}
	query, args = bindPostgres(query, args)
	return c.conn.QueryContext(ctx, query, args...)
}

// QueryRowContext is like QueryContext. Where what was sent before it fails, the
// row has an error too, since the transaction is of no use any more; keep gives
// the first.
func (c *postgresConnection) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	_ = c.flush(ctx)
	query, args = bindPostgres(query, args)
	return c.conn.QueryRowContext(ctx, query, args...)
}

func (c *postgresConnection) send(_ context.Context, query string, args ...any) error {
	c.touched = true
	query, args = bindPostgres(query, args)
	c.queue.Queue(query, args...)
	return nil
}

func (c *postgresConnection) exec(ctx context.Context, query string, args ...any) (changed int64, err error) {
	c.touched = true
	query, args = bindPostgres(query, args)
	c.queue.Queue(query, args...).Exec(func(tag pgconn.CommandTag) error {
		changed = tag.RowsAffected()
		return nil
	})
	return changed, c.flush(ctx)
}

func (c *postgresConnection) keep(ctx context.Context) error {
	if c.failure != nil {
		return c.failure
	}
	if !c.touched {
		return nil
	}
	c.queue.Queue("RELEASE SAVEPOINT one")
	c.queue.Queue(savepoint)
	err := c.flush(ctx)
	c.touched = c.touched && err != nil
	return err
}

func (c *postgresConnection) cause() error { return c.failure }

func (c *postgresConnection) undo(ctx context.Context) error {
	c.queue = &pgx.Batch{}
	if !c.touched && c.raw.PgConn().TxStatus() == 'T' {
		c.failure = nil
		return nil
	}
	if err := c.simply(ctx, "ROLLBACK TO SAVEPOINT one"); err != nil {
		return err
	}
	c.touched, c.failure = false, nil
	return nil
}

// simply sends a statement that must not need to be prepared, since that fails
// in a transaction that is broken.
func (c *postgresConnection) simply(ctx context.Context, statement string) error {
	return c.raw.PgConn().Exec(ctx, statement).Close()
}

func (c *postgresConnection) commit(ctx context.Context, topics map[string]struct{}) error {
	for _, payload := range payloads(c.postgres.member, topics) {
		c.queue.Queue("SELECT pg_notify($1, $2)", channel, payload)
	}
	c.queue.Queue("COMMIT").Exec(func(tag pgconn.CommandTag) error {
		if tag.String() != "COMMIT" {
			return fmt.Errorf("the commit was answered %s", tag)
		}
		return nil
	})
	err := c.flush(ctx)
	var refused *pgconn.PgError
	switch {
	case err == nil, pgconn.SafeToRetry(err), !c.raw.IsClosed():
		return err // a connection that still works has the server's answer
	case errors.As(err, &refused) && refused.SeverityUnlocalized == "ERROR":
		return err
	}
	return &errUnknown{cause: err}
}

func (c *postgresConnection) rollback(ctx context.Context) {
	c.queue = &pgx.Batch{}
	c.touched, c.failure = false, nil
	if err := c.simply(ctx, "ROLLBACK"); err != nil {
		_ = c.raw.Close(ctx)
	}
}

func (c *postgresConnection) release() {
	if c.raw.IsClosed() || c.raw.PgConn().TxStatus() != 'I' {
		_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = c.conn.Close()
}

// channel is where members wake each other.
const channel = "cloop_hub"

// maxPayload is what a notification may hold, less than PostgreSQL's 8000 bytes.
const maxPayload = 7900

// payloads are the notifications for the topics: each is the member that they
// come from and topics, a line each.
func payloads(member string, topics map[string]struct{}) []string {
	var out []string
	var b strings.Builder
	for topic := range topics {
		if b.Len() > 0 && b.Len()+1+len(topic) > maxPayload {
			out = append(out, b.String())
			b.Reset()
		}
		if b.Len() == 0 {
			b.WriteString(member)
		}
		b.WriteByte('\n')
		b.WriteString(topic)
	}
	if b.Len() > 0 {
		out = append(out, b.String())
	}
	return out
}
