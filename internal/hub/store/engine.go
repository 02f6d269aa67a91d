package store

import (
	"context"
	"database/sql"
	"strconv"
	"strings"
	"sync"
	"time"
)

// engine is a database that the hub can be kept in. The SQL of the rest of the
// package is the same for all of them.
type engine interface {
	// migrations names the directory of the schema's files.
	migrations() string
	// inTurn runs fn on a connection while no other hub brings the schema up to
	// date.
	inTurn(ctx context.Context, fn func(*sql.Conn) error) error
	// check refuses a database that is damaged or not as it must be.
	check(ctx context.Context) error
	// reader reads outside of changes, and snapshot is what a transaction needs
	// in which all that is read is of one moment.
	reader() reader
	snapshot() *sql.TxOptions
	// clock reads the clock that leases are by outside of a change, and by how
	// much they have followed it.
	clock(ctx context.Context) (at time.Time, followed time.Duration, err error)
	// connect gets the writer's connection for one batch of changes.
	connect(ctx context.Context) (connection, error)
	// there says whether what is changed is still where the next start will look
	// for it.
	there() error
	// persist brings what is committed to where it is seen of the database's files
	// alone.
	persist(ctx context.Context) error
	// patience bounds one batch of changes.
	patience() (context.Context, context.CancelFunc)
	// shared says that other hubs may use the database at the same time.
	shared() bool
	close() error
	// unmake removes the database after it was closed if it was made when it was
	// opened. The caller knows that nothing is in it.
	unmake() error
}

// connection is where the writer changes the database, in one transaction at a
// time and within it one change at a time.
type connection interface {
	querier
	// begin starts a transaction and its first change. Nobody else changes
	// anything until it ends.
	begin(ctx context.Context) error
	// clock reads the clock that leases are by, and by how much they have
	// followed it so far. Between begin and the transaction's end.
	clock(ctx context.Context) (at time.Time, followed time.Duration, err error)
	// exec runs a statement and returns how many rows it changed.
	exec(ctx context.Context, query string, args ...any) (int64, error)
	// send runs a statement whose outcome nobody needs before the change ends.
	send(ctx context.Context, query string, args ...any) error
	// keep ends a change and begins the next; undo does so without a trace of
	// it. After an error of either the transaction is of no use.
	keep(ctx context.Context) error
	undo(ctx context.Context) error
	// cause is the first thing that went wrong in the change, where the database
	// says of all that follows only that something did.
	cause() error
	// commit ends the transaction and wakes other members for the topics. An
	// error that is an errUnknown says that nobody knows whether it is kept.
	commit(ctx context.Context, topics map[string]struct{}) error
	rollback(ctx context.Context)
	// release gives the connection back. One that a transaction may be stuck in
	// is closed.
	release()
}

// reader reads with the package's own way of writing queries.
type reader struct {
	db *sql.DB
	bound
	// pulse is nil where the database does not go silent.
	pulse *pulse
}

// bound is a querier that takes ? for each argument.
type bound struct {
	q querier
	// bind is nil where the database takes them itself.
	bind func(query string, args []any) (string, []any)
	// ctx is the context of all that is read; nil where each query has its own.
	ctx context.Context //nolint:containedctx // a transaction's, which bounds its queries
}

func (b bound) context(ctx context.Context) context.Context {
	if b.ctx != nil {
		return b.ctx
	}
	return ctx
}

// QueryContext runs a query.
func (b bound) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	ctx = b.context(ctx)
	if b.bind == nil {
		return b.q.QueryContext(ctx, query, args...)
	}
	query, args = b.bind(query, args)
	return b.q.QueryContext(ctx, query, args...)
}

// QueryRowContext runs a query for its first row.
func (b bound) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	ctx = b.context(ctx)
	if b.bind == nil {
		return b.q.QueryRowContext(ctx, query, args...)
	}
	query, args = b.bind(query, args)
	return b.q.QueryRowContext(ctx, query, args...)
}

// QueryContext runs a query, again where the connection was lost meanwhile.
func (r reader) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return retried(func() (*sql.Rows, error) { return r.bound.QueryContext(ctx, query, args...) })
}

// QueryRowContext runs a query for its first row, again where the connection was
// lost meanwhile.
func (r reader) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	row, _ := retried(func() (*sql.Row, error) {
		row := r.bound.QueryRowContext(ctx, query, args...)
		return row, row.Err()
	})
	return row
}

// snapshot begins a transaction in which all that is read is of one moment.
func (r reader) snapshot(ctx context.Context, options *sql.TxOptions) (*sql.Tx, error) {
	return retried(func() (*sql.Tx, error) { return r.db.BeginTx(ctx, options) })
}

// readers is how many connections there are to read from at most, each of which
// may have been lost.
const readers = 8

// retried reads again where it failed because the connection was lost: a server
// that starts again, or a firewall, ends connections that nobody uses.
func retried[T any](read func() (T, error)) (T, error) {
	for tries := 0; ; tries++ {
		out, err := read()
		if err == nil || tries == readers || !lost(err) {
			return out, err
		}
	}
}

// numbered: query with ? → the same with $1, $2 and so on. There are as many as
// the code has queries.
var numbered sync.Map

// numberArguments writes a query's ? as PostgreSQL's $1, $2 and so on.
func numberArguments(query string) string {
	if known, ok := numbered.Load(query); ok {
		return known.(string)
	}
	var b strings.Builder
	quoted, n := false, 0
	for i := 0; i < len(query); i++ {
		switch c := query[i]; {
		case c == '\'':
			quoted = !quoted
			b.WriteByte(c)
		case c == '?' && !quoted:
			n++
			b.WriteByte('$')
			b.WriteString(strconv.Itoa(n))
		default:
			b.WriteByte(c)
		}
	}
	numbered.Store(query, b.String())
	return b.String()
}
