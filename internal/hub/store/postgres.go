package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"k8s.io/utils/clock"
)

const (
	// connectTimeout bounds one attempt to reach the database.
	connectTimeout = 5 * time.Second
	// turnTimeout bounds the wait for another member's change to end.
	turnTimeout = 15 * time.Second
	// silentTimeout is how long a change may stand still before the database
	// breaks it off: a member that hangs must not keep the others waiting.
	silentTimeout = 10 * time.Second
	// changeTimeout bounds one batch of changes, and readTimeout one query.
	changeTimeout = 40 * time.Second
	readTimeout   = 30 * time.Second
)

// postgres is a database that several hubs may use at the same time.
type postgres struct {
	config       *pgx.ConnConfig
	writer, read *sql.DB
	pulse        *pulse
	// time is a test's clock; nil where the database's own counts.
	time clock.PassiveClock
	// member is this hub's id, which its wake-ups carry.
	member string
}

// ErrURL says that the database's URL is none. Its text holds nothing of it.
var ErrURL = errors.New("the database URL is not valid: write postgres://USER@HOST:5432/DATABASE?sslmode=verify-full, with a password percent-encoded")

// HasPassword says whether a database's URL holds a password, which then must
// not be seen by others.
func HasPassword(text string) bool {
	u, err := url.Parse(text)
	if err != nil {
		return strings.Contains(text, "@") // nobody knows what is before it
	}
	_, has := u.User.Password()
	return has || strings.Contains(strings.ToLower(text), "password")
}

// databaseConfig reads a URL. No part of it is in an error, since it may hold a
// password where none belongs.
func databaseConfig(text string) (*pgx.ConnConfig, error) {
	if !strings.HasPrefix(text, "postgres://") && !strings.HasPrefix(text, "postgresql://") {
		return nil, ErrURL
	}
	config, err := pgx.ParseConfig(text)
	if err != nil {
		// A file that the URL names, or the environment, is another matter.
		var missing *os.PathError
		if errors.As(err, &missing) {
			return nil, fmt.Errorf("read a file that the database URL names: %w", missing)
		}
		return nil, ErrURL
	}
	if config.ConnectTimeout == 0 || config.ConnectTimeout > connectTimeout {
		config.ConnectTimeout = connectTimeout
	}
	// A server that is gone without a word is noticed.
	dialer := &net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3}}
	config.DialFunc = dialer.DialContext
	set := func(name, value string) {
		if _, given := config.RuntimeParams[name]; !given {
			config.RuntimeParams[name] = value
		}
	}
	set("application_name", "cloop hub")
	set("tcp_keepalives_idle", "5")
	set("tcp_keepalives_interval", "2")
	set("tcp_keepalives_count", "3")
	// A plan for each value of an argument would cost more than the statements.
	set("plan_cache_mode", "force_generic_plan")
	// Whatever the server's default is: what is answered with success is on disk.
	config.RuntimeParams["synchronous_commit"] = "on"
	return config, nil
}

func milliseconds(d time.Duration) string { return fmt.Sprint(d.Milliseconds()) }

// openPostgres connects to the database and brings its schema up to date.
func openPostgres(ctx context.Context, text, member string, clock clock.PassiveClock) (*postgres, error) {
	config, err := databaseConfig(text)
	if err != nil {
		return nil, err
	}
	p := &postgres{config: config, member: member, time: clock, pulse: &pulse{config: config}}
	p.writer = p.pool(map[string]string{
		"lock_timeout": milliseconds(turnTimeout), "idle_in_transaction_session_timeout": milliseconds(silentTimeout),
		"statement_timeout": milliseconds(readTimeout), "default_transaction_isolation": "read committed",
	})
	p.writer.SetMaxOpenConns(1)
	p.read = p.pool(map[string]string{
		"default_transaction_read_only": "on", "statement_timeout": milliseconds(readTimeout),
		"idle_in_transaction_session_timeout": milliseconds(readTimeout),
	})
	// A connection is a process of the server and costs milliseconds to make, so
	// what a burst of questions needs stays for a while.
	p.read.SetMaxOpenConns(readers)
	p.read.SetMaxIdleConns(readers)
	p.read.SetConnMaxIdleTime(time.Minute)
	err = p.check(ctx)
	if err == nil {
		err = migrate(ctx, p)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the hub's database: %w", sayPostgres(err)), p.close())
	}
	return p, nil
}

// pool makes connections with more parameters.
func (p *postgres) pool(parameters map[string]string) *sql.DB {
	config := p.config.Copy()
	for name, value := range parameters {
		config.RuntimeParams[name] = value
	}
	return stdlib.OpenDB(*config)
}

func (p *postgres) migrations() string { return "postgres" }

func (p *postgres) shared() bool { return true }

func (p *postgres) there() error { return nil }

func (p *postgres) unmake() error { return nil }

func (p *postgres) persist(context.Context) error { return nil }

func (p *postgres) patience() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.Background(), changeTimeout)
	ctx, stop := p.pulse.watched(ctx)
	return ctx, func() { stop(); cancel() }
}

func (p *postgres) reader() reader {
	return reader{db: p.read, bound: bound{q: p.read, bind: bindPostgres}, pulse: p.pulse}
}

func (p *postgres) snapshot() *sql.TxOptions {
	return &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
}

func (p *postgres) clock(ctx context.Context) (time.Time, time.Duration, error) {
	row, _, err := first(ctx, p.reader(), scanClock, "SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT * 1000, followed FROM hub_clock")
	if err == nil && p.time != nil {
		row.at = p.time.Now()
	}
	return row.at, row.followed, err
}

type clockRow struct {
	at       time.Time
	followed time.Duration
}

func scanClock(row scanner) (clockRow, error) {
	var at, followed int64
	err := row.Scan(&at, &followed)
	return clockRow{fromNano(at), time.Duration(followed)}, err
}

func (p *postgres) close() error { return errors.Join(p.read.Close(), p.writer.Close()) }

// bindPostgres writes a query and its arguments as PostgreSQL takes them: flags
// are integers in every database, and text has no zero byte.
func bindPostgres(query string, args []any) (string, []any) {
	for i, arg := range args {
		switch v := arg.(type) {
		case bool:
			args[i] = int64(0)
			if v {
				args[i] = int64(1)
			}
		case string:
			if strings.IndexByte(v, 0) >= 0 {
				args[i] = strings.ReplaceAll(v, "\x00", "\uFFFD")
			}
		}
	}
	return numberArguments(query), args
}

// turn is the key of the lock that whoever changes anything has.
const turn int64 = 4877012285021413

func (p *postgres) inTurn(ctx context.Context, fn func(*sql.Conn) error) error {
	conn, err := p.writer.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	// A schema may take longer than any change, at another member too.
	if _, err := conn.ExecContext(ctx, "SET lock_timeout = 0; SET statement_timeout = 0"); err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "SELECT pg_advisory_lock($1)", turn); err != nil {
		return err
	}
	err = fn(conn)
	ctx = context.WithoutCancel(ctx)
	_, unlocked := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1)", turn)
	_, reset := conn.ExecContext(ctx, "RESET lock_timeout; RESET statement_timeout")
	return errors.Join(err, unlocked, reset)
}

// check refuses a database in which text is not what it is elsewhere.
func (p *postgres) check(ctx context.Context) error {
	encoding, _, err := first(ctx, p.writer, scanText, "SHOW server_encoding")
	if err == nil && encoding != "UTF8" {
		err = fmt.Errorf("its encoding is %s: make one with CREATE DATABASE %s TEMPLATE template0 ENCODING 'UTF8'", encoding, pgx.Identifier{p.config.Database}.Sanitize())
	}
	if err != nil {
		return err
	}
	version, _, err := first(ctx, p.writer, scanInt, "SELECT current_setting('server_version_num')::BIGINT")
	if err == nil && version < oldestPostgres*10000 {
		err = fmt.Errorf("the server is PostgreSQL %d: the hub needs %d or newer", version/10000, oldestPostgres)
	}
	return err
}

// oldestPostgres is the oldest major version that is still maintained.
const oldestPostgres = 14
