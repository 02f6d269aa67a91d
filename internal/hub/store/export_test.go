package store

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
)

// ForgetKeys is the statement that removes keys that are over.
const ForgetKeys = forgetKeys

// Fill leaves the database room for a few more pages, as a disk that is nearly
// full does, until the returned function is called.
func Fill(t testing.TB, s *Store) (free func()) {
	t.Helper()
	pragma := func(text string) (n int64) {
		t.Helper()
		if err := s.update(context.Background(), func(tx *Tx) (err error) {
			n, _, err = first(tx.ctx, tx, scanInt, "PRAGMA "+text)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return n
	}
	pragma(fmt.Sprintf("max_page_count=%d", pragma("page_count")+100))
	return func() { pragma("max_page_count=1073741823") }
}

// HoldsOf is what a volume of the pool holds of a project.
func HoldsOf(pool string, project hubv1.Project) string {
	return holdsOf(pool, project.ID, project.Owner)
}

// Prepare brings a PostgreSQL database's schema up to date, and leaves nothing
// else there.
func Prepare(ctx context.Context, url string) error {
	p, err := openPostgres(ctx, url, "", nil)
	if err != nil {
		return err
	}
	return p.close()
}

// NumberArguments is what queries of tests need too.
var NumberArguments = numberArguments

// Beat is a sign of life, which with a clock of a test nobody else gives.
func (s *Store) Beat(ctx context.Context) error { return s.beat(ctx) }

// Alive is how long a member is believed to be alive.
const Alive = alive

// KeepTime is what a member does every second.
func (s *Store) KeepTime(ctx context.Context) error { return s.keepTime(ctx) }

// Unsettled says that nothing is removed because the clock was set by much.
func (s *Store) Unsettled() bool { return s.unsettled() }

// Vanish ends a member as a crash would: nobody is told.
func (s *Store) Vanish() {
	s.members.stop()
	s.members.done.Wait()
	s.closing.Do(func() { close(s.stop) })
	<-s.stopped
	_ = s.engine.close()
}

// Payloads are the notifications for topics.
func Payloads(member string, topics ...string) []string {
	all := map[string]struct{}{}
	for _, topic := range topics {
		all[topic] = struct{}{}
	}
	return payloads(member, all)
}

// MigrationsOf are the names of an engine's migrations.
func MigrationsOf(engine string) (names []string, err error) {
	all, err := migrationsOf(engine)
	for _, m := range all {
		names = append(names, m.name)
	}
	return names, err
}

// SettleListening hands out what waits for runners that listen to this member,
// as it does when it hears that a pool changed.
func (s *Store) SettleListening(ctx context.Context) error {
	for pool := range s.attachedPools() {
		if err := s.settleListening(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// Empower gives a subject a role although nobody made it a user or a group.
func (s *Store) Empower(ctx context.Context, subject, role string) error {
	return s.update(ctx, func(tx *Tx) error {
		_, err := tx.exec("INSERT INTO role_bindings (subject, role, project_id, created_at) VALUES (?, ?, '', 0)", subject, role)
		return err
	})
}

// HandOffWaits makes idle runners of one pool listen, and is how often the change
// that hands runs to them waits for the database.
func (s *Store) HandOffWaits(ctx context.Context, idle ...Runner) (waits int, err error) {
	s.attachedMu.Lock()
	for _, r := range idle {
		s.attached[r.ID] = attachment{pool: r.PoolID, watches: 1}
	}
	s.attachedMu.Unlock()
	err = s.update(ctx, func(tx *Tx) error {
		tx.conn = counting{tx.conn, &waits}
		tx.consider(idle[0].PoolID)
		return nil
	})
	return waits, err
}

// counting counts the statements whose outcome is waited for.
type counting struct {
	connection
	waits *int
}

func (c counting) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	*c.waits++
	return c.connection.QueryContext(ctx, query, args...)
}

func (c counting) QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row {
	*c.waits++
	return c.connection.QueryRowContext(ctx, query, args...)
}

func (c counting) exec(ctx context.Context, query string, args ...any) (int64, error) {
	*c.waits++
	return c.connection.exec(ctx, query, args...)
}

// Tests apply documents a few at a time, so that each shows that it does not matter.
func init() { documentsAtOnce = 3 }

// DocumentsAtOnce has so many documents applied in one transaction.
func DocumentsAtOnce(n int) { documentsAtOnce = n }
