package store

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/internal/printable"
)

// sqlite is a file that one hub uses.
type sqlite struct {
	path         string
	writer, read *sql.DB
	time         clock.PassiveClock
	// held is the writer's connection while it is of use.
	held  *sqliteConnection
	place place
	// made is the database if it was made now.
	made fs.FileInfo
}

// openSQLite opens or makes hub.db in the directory.
func openSQLite(ctx context.Context, dir string, clock clock.PassiveClock) (*sqlite, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the hub's data directory: %w", err)
	}
	path, link, err := trueName(filepath.Join(dir, "hub.db"))
	if err != nil {
		return nil, err
	}
	if err := complete(path); err != nil {
		return nil, err
	}
	if err := belongs(path); err != nil {
		return nil, err
	}
	s := &sqlite{path: path, time: clock, place: place{link: link}}
	if s.made, err = found(ctx, path); err != nil {
		return nil, opening(path, err)
	}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(opening(path, err), s.close(), s.unmake())
	}
	return s, nil
}

// trueName is the name by which SQLite goes, beside which the journal is, where the
// database's own is a link. Links of its directory are left in the name, so that it
// shows when they lead elsewhere.
func trueName(path string) (name, link string, err error) {
	if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeSymlink == 0 {
		return path, "", nil //nolint:nilerr // opening it says what is wrong
	}
	if name, err = filepath.EvalSymlinks(path); err != nil {
		return "", "", fmt.Errorf("open %s, which is a link: what it leads to cannot be used (%w): put that back; or, to begin with a new hub instead, without pools, users and runs, remove the link", path, err)
	}
	return name, path, nil
}

func (s *sqlite) open(ctx context.Context) (err error) {
	if err := s.check(ctx); err != nil {
		return err
	}
	const pragmas = "_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_pragma=foreign_keys(1)"
	if s.read, err = connectTo(s.path, pragmas+"&_pragma=query_only(1)", &s.place); err != nil {
		return err
	}
	s.read.SetMaxOpenConns(1 + max(4, runtime.GOMAXPROCS(0))) // one of them is the place's anchor
	s.read.SetMaxIdleConns(2)
	// Before any other has the files open: the last one to close them removes the journal.
	if err := s.place.settle(ctx, s.read, s.path); err != nil {
		return err
	}
	if s.writer, err = connectTo(s.path, pragmas, &s.place); err != nil {
		return err
	}
	s.writer.SetMaxOpenConns(1)
	return migrate(ctx, s)
}

func (s *sqlite) migrations() string { return "sqlite" }

func (s *sqlite) shared() bool { return false }

// patience has no end: a context that can end costs a goroutine a statement,
// and a file does not go silent.
func (s *sqlite) patience() (context.Context, context.CancelFunc) {
	return context.Background(), func() {}
}

func (s *sqlite) reader() reader { return reader{db: s.read, bound: bound{q: s.read}} }

func (s *sqlite) snapshot() *sql.TxOptions { return &sql.TxOptions{ReadOnly: true} }

func (s *sqlite) close() error {
	var errs []error
	if s.held != nil {
		errs = append(errs, s.held.close())
	}
	if s.writer != nil {
		errs = append(errs, s.writer.Close())
	}
	if s.read != nil {
		s.read.SetMaxIdleConns(-1) // all but the anchor
	}
	errs = append(errs, s.place.leave())
	if s.read != nil {
		errs = append(errs, s.read.Close())
	}
	return errors.Join(errs...)
}

func (s *sqlite) there() error { return s.place.check() }

// unmake removes a database that was made now, in which nothing is, and that nobody has
// open: the next start must not find one that looks as if it had lost all.
func (s *sqlite) unmake() error {
	if s.made == nil {
		return nil
	}
	if now, err := os.Stat(s.path); err != nil || !os.SameFile(s.made, now) {
		return nil //nolint:nilerr // it is not this one's any more
	}
	for _, suffix := range []string{"-wal" + noteSuffix, "-wal", "-shm", ""} {
		if err := os.Remove(s.path + suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// persist brings what the journal holds into the file.
func (s *sqlite) persist(ctx context.Context) error {
	_, err := s.read.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
	return err
}

func (s *sqlite) clock(context.Context) (time.Time, time.Duration, error) {
	return s.time.Now(), 0, nil
}

func (s *sqlite) inTurn(ctx context.Context, fn func(*sql.Conn) error) error {
	conn, err := s.writer.Conn(ctx)
	if err != nil {
		return err
	}
	return errors.Join(fn(conn), conn.Close())
}

// check looks for damage before anything is changed, a journal included. It only reads:
// another connection that is the last to be closed lays the journal over the database.
func (s *sqlite) check(ctx context.Context) error {
	options := "?mode=ro&_pragma=busy_timeout(10000)"
	if absent(s.path+"-wal") && absent(s.path+"-journal") {
		options += "&immutable=1" // it would make a journal and leave it
	}
	db, err := sql.Open("sqlite", "file:"+s.path+options)
	if err != nil {
		return err
	}
	db.SetMaxOpenConns(1)
	if err = s.furnished(ctx, db); err == nil {
		err = whole(ctx, db)
	}
	return errors.Join(err, db.Close())
}

func absent(name string) bool {
	_, err := os.Lstat(name)
	return errors.Is(err, fs.ErrNotExist)
}

// whole looks at every table but that of the logs, which is large and whose damage
// shows when one is read.
func whole(ctx context.Context, db *sql.DB) error {
	tables, err := collect(ctx, db, scanText, "SELECT name FROM sqlite_schema WHERE type = 'table' AND name <> 'run_logs' AND name NOT LIKE 'sqlite_%'")
	if err != nil {
		return err
	}
	for _, table := range tables {
		found, err := collect(ctx, db, scanText, "SELECT * FROM pragma_quick_check(?)", table)
		if err != nil {
			return err
		}
		if len(found) != 1 || found[0] != "ok" {
			return fmt.Errorf("%w: table %s: %s", ErrDamaged, table, printable.Clip(fmt.Sprint(found), 512))
		}
	}
	return nil
}

// complete refuses a database whose file is gone while its journal is there or after
// a hub that did not end in order, and one whose file is empty: SQLite would make a
// new one, throw away what the journal holds, and the hub would begin as if nobody had
// ever used it.
func complete(path string) error {
	file, fileErr := os.Stat(path)
	journal, journalErr := os.Stat(path + "-wal")
	switch {
	case fileErr == nil && file.Size() > 0:
		return nil
	case journalErr == nil && journal.Size() > 0:
		return fmt.Errorf("open %s: %w: there is a journal, %s-wal, but no database to it", path, ErrDamaged, path)
	case errors.Is(fileErr, fs.ErrNotExist):
		used, err := noted(path + "-wal")
		if err == nil && used {
			err = fmt.Errorf("%[1]s is away, and the hub that used it did not end in order (there is %[1]s-wal%[2]s): put it back, with %[1]s-wal; or, to begin with a new hub instead, without pools, users and runs, move %[1]s-wal%[2]s to another directory (docs/operate.md, A database that is not where it was); then start the hub again", path, noteSuffix)
		}
		return err
	case fileErr == nil:
		return fmt.Errorf("open %s: %w: the file is empty, as no hub leaves it; to begin with a new hub instead, without pools, users and runs, remove it", path, ErrDamaged)
	}
	return nil // opening it says what is wrong
}

// found makes the database where there is none. It appears whole or not at all, with
// its schema in the file itself: neither an empty file nor one without a hub's tables
// is ever a hub that died at its first start.
func found(ctx context.Context, path string) (made fs.FileInfo, err error) {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// Made before SQLite does, so that nobody else may read it; its journals take
	// the same mode.
	draft, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".new-*")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(draft.Name()) }() // it has its other name by then, or is of no use
	made, err = draft.Stat()
	if err := errors.Join(err, draft.Close()); err != nil {
		return nil, err
	}
	// Nobody goes on with a draft, so the disk is waited for once.
	db, err := sql.Open("sqlite", "file:"+draft.Name()+"?_pragma=journal_mode(MEMORY)&_pragma=synchronous(OFF)&_pragma=foreign_keys(1)")
	if err != nil {
		return nil, err
	}
	if err := errors.Join(migrate(ctx, &sqlite{writer: db}), db.Close(), synced(draft.Name())); err != nil {
		return nil, err
	}
	// Not a rename: another hub may have made its own meanwhile.
	if err := os.Link(draft.Name(), path); err != nil {
		if errors.Is(err, fs.ErrExist) {
			err = nil
		}
		return nil, err
	}
	return made, nil
}

// synced waits until what was written to the file is on the disk.
func synced(name string) error {
	file, err := os.Open(name) //nolint:gosec // the hub's own
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// furnished refuses a database without a hub's tables, as found leaves none: what is
// missing is somewhere else, and a hub that made the tables would begin as if nobody had
// ever used it.
func (s *sqlite) furnished(ctx context.Context, db *sql.DB) error {
	known, _, err := first(ctx, db, scanInt, "SELECT COUNT(*) FROM sqlite_schema WHERE name = 'schema_version'")
	if err == nil && known > 0 {
		known, _, err = first(ctx, db, scanInt, "SELECT COUNT(*) FROM schema_version")
	}
	if err == nil && known == 0 {
		err = fmt.Errorf("%w: it has none of a hub's tables: if its journal, %s-wal, was moved, put that back with the files beside it; to begin with a new hub instead, without pools, users and runs, move the file to another directory", ErrDamaged, s.path)
	}
	return err
}

// connect returns the one connection, with the statements that it has prepared.
func (s *sqlite) connect(ctx context.Context) (connection, error) {
	if s.held == nil {
		conn, err := s.writer.Conn(ctx)
		if err != nil {
			return nil, err
		}
		s.held = &sqliteConnection{sqlite: s, conn: conn, prepared: map[string]*sql.Stmt{}}
	}
	return s.held, nil
}

// sqliteConnection is a connection whose changes are savepoints.
type sqliteConnection struct {
	sqlite *sqlite
	conn   *sql.Conn
	// prepared: query → its statement.
	prepared map[string]*sql.Stmt
	// stuck says that a transaction may be open that cannot be ended.
	stuck bool
}

func (c *sqliteConnection) statement(ctx context.Context, query string) (*sql.Stmt, error) {
	if s := c.prepared[query]; s != nil {
		return s, nil
	}
	s, err := c.conn.PrepareContext(ctx, query)
	if err == nil {
		c.prepared[query] = s
	}
	return s, err
}

// QueryContext makes the connection a querier.
func (c *sqliteConnection) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	s, err := c.statement(ctx, query) //nolint:sqlclosecheck // it is kept for the next time
	if err != nil {
		return nil, err
	}
	return s.QueryContext(ctx, args...)
}

// QueryRowContext is like QueryContext.
func (c *sqliteConnection) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	s, err := c.statement(ctx, query) //nolint:sqlclosecheck // it is kept for the next time
	if err != nil {
		return c.conn.QueryRowContext(ctx, query, args...) // says the same
	}
	return s.QueryRowContext(ctx, args...)
}

func (c *sqliteConnection) exec(ctx context.Context, query string, args ...any) (int64, error) {
	s, err := c.statement(ctx, query) //nolint:sqlclosecheck // it is kept for the next time
	if err != nil {
		return 0, err
	}
	result, err := s.ExecContext(ctx, args...)
	if err != nil {
		return 0, err
	}
	return result.RowsAffected()
}

func (c *sqliteConnection) send(ctx context.Context, query string, args ...any) error {
	_, err := c.exec(ctx, query, args...)
	return err
}

func (c *sqliteConnection) begin(ctx context.Context) error {
	if _, err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		c.stuck = true
		return err
	}
	if err := c.send(ctx, "SAVEPOINT one"); err != nil {
		c.rollback(ctx)
		return err
	}
	return nil
}

func (c *sqliteConnection) clock(context.Context) (time.Time, time.Duration, error) {
	return c.sqlite.time.Now(), 0, nil
}

func (c *sqliteConnection) keep(ctx context.Context) error {
	if err := c.send(ctx, "RELEASE one"); err != nil {
		return err
	}
	return c.send(ctx, "SAVEPOINT one")
}

func (c *sqliteConnection) cause() error { return nil }

func (c *sqliteConnection) undo(ctx context.Context) error { return c.send(ctx, "ROLLBACK TO one") }

// commit ends the transaction together with the savepoint in it.
func (c *sqliteConnection) commit(ctx context.Context, _ map[string]struct{}) error {
	// What would be in a file that nobody finds again is not kept.
	if err := c.sqlite.there(); err != nil {
		return err
	}
	return c.send(ctx, "COMMIT")
}

// rollback ends a transaction that SQLite may have ended itself, as it does when
// the disk is full: then there is none, which is as wanted.
func (c *sqliteConnection) rollback(ctx context.Context) { _ = c.send(ctx, "ROLLBACK") }

func (c *sqliteConnection) release() {
	if c.stuck {
		c.drop()
	}
}

// drop closes a connection of which nobody knows what it is in.
func (c *sqliteConnection) drop() {
	_ = c.forget()
	_ = c.conn.Raw(func(any) error { return driver.ErrBadConn })
	_ = c.conn.Close() // it is closed already
}

func (c *sqliteConnection) close() error { return errors.Join(c.forget(), c.conn.Close()) }

// forget closes the statements.
func (c *sqliteConnection) forget() error {
	c.sqlite.held = nil
	var errs []error
	for _, s := range c.prepared {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}
