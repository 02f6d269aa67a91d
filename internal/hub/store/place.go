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
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite"

	"cloop.dev/cloop/internal/atomicfile"
)

// place is the files that SQLite has open, and the names at which it found them.
// A file that is moved or removed stays open: SQLite goes on to write into it and
// reports success, and whoever starts next at the name finds none of that.
type place struct {
	files []opened
	// anchor is a connection that stays open for as long as the database is used.
	// Without it the journal would be another file after the last one was closed.
	anchor *sql.Conn
	left   sync.Once
}

// opened is a file that is open.
type opened struct {
	name     string
	dev, ino uint64
	// fd is a way to what the file holds that is good for as long as the hub runs,
	// whatever becomes of the name. It was made with O_PATH: closing any other
	// descriptor of the file would end SQLite's locks on it.
	fd int
}

// settle takes the files as they are now for those that SQLite has open.
func (p *place) settle(ctx context.Context, db *sql.DB, path string) (err error) {
	if p.anchor, err = db.Conn(ctx); err != nil {
		return err
	}
	// The journal is opened by the first that reads.
	if _, _, err = first(ctx, p.anchor, scanInt, "SELECT COUNT(*) FROM sqlite_schema"); err != nil {
		return err
	}
	for _, name := range []string{path, path + "-wal"} {
		fd, err := unix.Open(name, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return &os.PathError{Op: "open", Path: name, Err: err}
		}
		var s unix.Stat_t
		if err := unix.Fstat(fd, &s); err != nil {
			return errors.Join(&os.PathError{Op: "stat", Path: name, Err: err}, unix.Close(fd))
		}
		p.files = append(p.files, opened{name, s.Dev, s.Ino, fd})
	}
	return nil
}

// check says whether the files are still where they were. It costs a system call
// for each.
func (p *place) check() error {
	for _, file := range p.files {
		var now unix.Stat_t
		err := unix.Stat(file.name, &now)
		if err != nil || now.Dev != file.dev || now.Ino != file.ino {
			return &awayError{file.name, p.files, err}
		}
	}
	return nil
}

// leave closes the files. It comes after every other connection is closed: the last
// one brings what the journal holds into the database and removes the journal by
// its name, which must not be that of another database by then.
func (p *place) leave() (err error) {
	p.left.Do(func() {
		if p.anchor != nil {
			if p.check() != nil {
				err = errors.Join(p.anchor.Raw(func(conn any) error {
					_, err := conn.(sqlite3.FileControl).FileControlPersistWAL("main", 1)
					return err
				}), p.disown())
			}
			err = errors.Join(err, p.anchor.Close())
		}
		for _, file := range p.files {
			err = errors.Join(err, unix.Close(file.fd))
		}
	})
	return err
}

// ofSuffix is behind the name of a journal in the name of a file that says which
// database it belongs to: its device and its inode.
const ofSuffix = ".of"

// disown notes that the journal which stays belongs to no database that may lie beside
// it: SQLite would lay it over whatever that is.
func (p *place) disown() error {
	if len(p.files) < 2 {
		return nil
	}
	database, journal := p.files[0], p.files[1]
	var now unix.Stat_t
	if err := unix.Stat(journal.name, &now); err != nil || now.Ino != journal.ino || now.Dev != journal.dev {
		return nil //nolint:nilerr // it is elsewhere, too
	}
	return atomicfile.Write(journal.name+ofSuffix, fmt.Appendf(nil, "%d %d\n", database.dev, database.ino), 0o600)
}

// owned refuses a database beside the journal of another one. What was noted goes with
// the journal, or once the database is its own again.
func owned(path string) error {
	journal := path + "-wal"
	noted, err := os.ReadFile(journal + ofSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var now unix.Stat_t
	of := ""
	if err := unix.Stat(path, &now); err == nil {
		of = fmt.Sprintf("%d %d\n", now.Dev, now.Ino)
	}
	if _, err := os.Stat(journal); errors.Is(err, fs.ErrNotExist) || of == string(noted) {
		return os.Remove(journal + ofSuffix)
	}
	return fmt.Errorf("%[1]s holds changes of another database than %[2]s is now, which was put there while a hub ran: put that one back, or, to use this one, move %[1]s, %[2]s-shm and %[1]s%[3]s away, then start the hub again", journal, path, ofSuffix)
}

// awayError is a file that is not where it was.
type awayError struct {
	name  string
	files []opened
	err   error // of looking; nil where another file is there
}

func (e *awayError) Error() string {
	why := "another file is there now"
	if e.err != nil {
		why = e.err.Error()
	}
	var copies []string
	for _, file := range e.files {
		copies = append(copies, fmt.Sprintf("cp /proc/%d/fd/%d RESCUE/%s", os.Getpid(), file.fd, filepath.Base(file.name)))
	}
	return fmt.Sprintf("%s was moved, removed or replaced (%s), and what the hub has open is somewhere else: put it back, with the files beside it; if it is gone, %s before the hub is stopped",
		e.name, why, strings.Join(copies, " and "))
}

// connector connects to the files of a place alone.
type connector struct {
	driver.Connector
	place *place
}

// connectTo opens the database at the path as often as it is asked to, and makes
// none: where none is any more a new one would only look like a hub's.
func connectTo(path, pragmas string, at *place) (*sql.DB, error) {
	base, err := sqlite3.NewConnector("file:" + path + "?mode=rw&" + pragmas)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector{base, at}), nil
}

// Connect makes a connection. One that came to another file at the same name would
// read of another hub, or write into it.
func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if away := c.place.check(); away != nil {
		if err == nil {
			err = conn.Close()
		}
		return nil, errors.Join(away, err)
	}
	return conn, err
}
