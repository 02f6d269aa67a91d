package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	sqlite3 "modernc.org/sqlite"
	sqlite3lib "modernc.org/sqlite/lib"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// accessError is a failure of the database itself while something was done to
// it, such as "read".
type accessError struct {
	what string
	err  error
}

func (e *accessError) Error() string { return e.what + " the hub's database: " + e.err.Error() }

func (e *accessError) Unwrap() error { return e.err }

// Trouble says what is the matter with the place where the hub keeps its
// database, where that is why something failed; nil for any other error.
func Trouble(err error) *hubv1.Problem {
	if err == nil {
		return nil
	}
	if p := postgresTrouble(err); p != nil {
		return p
	}
	if away := (*awayError)(nil); errors.As(err, &away) {
		p := problem.Refusal(hubv1.CodeStorageUnavailable, "the hub's database was moved, removed or replaced while the hub runs, so it can change nothing")
		p.Remedy = "whoever runs the hub must put the files back, before the hub is stopped if they are gone: docs/operate.md, A database that is not where it was"
		return p
	}
	var failure *sqlite3.Error
	if !errors.As(err, &failure) {
		if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
			return noSpace()
		}
		return nil
	}
	switch failure.Code() & 0xff { // the low byte; the rest tells variants apart
	case sqlite3lib.SQLITE_FULL:
		return noSpace()
	case sqlite3lib.SQLITE_CORRUPT, sqlite3lib.SQLITE_NOTADB:
		return problem.New(hubv1.CodeStorageDamaged, "the hub's database is damaged")
	case sqlite3lib.SQLITE_IOERR, sqlite3lib.SQLITE_READONLY, sqlite3lib.SQLITE_CANTOPEN, sqlite3lib.SQLITE_PERM:
		return problem.New(hubv1.CodeStorageUnavailable, "the hub cannot read or write its database")
	}
	return nil
}

func noSpace() *hubv1.Problem {
	return problem.Refusal(hubv1.CodeStorageUnavailable, "the hub's disk is full, so it can change nothing")
}

// ErrDamaged says that the database cannot be used. Its text says what to do.
var ErrDamaged = errors.New("the database is damaged: move it and the files of the same name that end in -wal, -shm and -wal.of elsewhere, and put a backup in their place (docs/operate.md, A damaged database)")

// opening explains why the database at the path cannot be opened.
func opening(path string, err error) error {
	var failure *sqlite3.Error
	var denied *fs.PathError
	switch trouble := Trouble(err); {
	case trouble == nil && !errors.As(err, &denied):
		return fmt.Errorf("open %s: %w", path, err)
	case trouble != nil && trouble.Code == hubv1.CodeStorageDamaged:
		return fmt.Errorf("open %s: %w: %w", path, ErrDamaged, err)
	case errors.As(err, &failure) && failure.Code()&0xff == sqlite3lib.SQLITE_FULL, errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("open %s: its disk is full: make room, and start again: %w", path, err)
	default:
		return fmt.Errorf("open %s: it and its directory must be readable and writable, on a disk with room: %w", path, err)
	}
}

// note keeps whether changes can be written, and tells whoever wants to know
// when that begins and when it ends.
func (s *Store) note(batch []*request) {
	wrote := false
	for _, r := range batch {
		if trouble := Trouble(r.err); trouble != nil {
			s.failed = s.clock.Now()
			if s.failing.Swap(trouble) == nil {
				s.trouble(r.err)
			}
			return
		}
		// What changed nothing says nothing about the disk.
		wrote = wrote || r.err == nil && r.tx.wrote
	}
	if wrote {
		s.wroteAt.Store(nano(s.clock.Now()))
	}
	if wrote && s.failing.Load() != nil && s.clock.Since(s.failed) >= calm {
		s.failing.Store(nil)
		s.trouble(nil)
	}
}

// calm is how long no change must have failed before the trouble is over: on a
// disk that is nearly full small changes go through and large ones do not.
const calm = 10 * time.Second

// proveEvery is how long a change that was written shows that the next one can
// be. It bounds how often a hub that has nothing to do writes because it is
// asked how it is.
const proveEvery = time.Minute

// proven says whether a change was written lately, and none has failed since.
func (s *Store) proven() bool {
	since := s.clock.Since(fromNano(s.wroteAt.Load()))
	return s.engine.there() == nil && s.failing.Load() == nil && since >= 0 && since < proveEvery
}

// Ping says whether the database answers and changes can be written. Where
// nothing was changed for a minute, or a change has failed, it makes one that
// leaves nothing behind.
func (s *Store) Ping(ctx context.Context) error {
	if s.engine.there() == nil { // else the change says it, and so does the log
		if _, _, err := first(ctx, s.reader, scanInt, "SELECT 1"); err != nil {
			return err
		}
	}
	if s.proven() {
		return nil
	}
	return s.update(ctx, func(tx *Tx) error {
		// SQLite does not write what is the same as before.
		if _, err := tx.exec("INSERT INTO idempotency (actor, key, request, object, created_at) VALUES ('hub', 'ping', '', '', ?)", nano(tx.now)); err != nil {
			return err
		}
		_, err := tx.exec("DELETE FROM idempotency WHERE actor = 'hub' AND key = 'ping'")
		return err
	})
}
