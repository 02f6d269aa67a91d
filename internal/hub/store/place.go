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
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite"
)

// place is the files that SQLite has open, and the names at which it found them.
// A file that is moved or removed stays open: SQLite goes on to write into it and
// reports success, and whoever starts next at the name finds none of that.
type place struct {
	files []opened
	// link is another name of the database that has to lead to it, if there is one.
	link string
	// anchor is a connection that stays open for as long as the database is used.
	// Without it the journal would be another file after the last one was closed.
	anchor *sql.Conn
	left   sync.Once
}

// opened is a file that is open.
type opened struct {
	name     string
	dev, ino uint64
	identity identity
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
		file, _, err := identify(fd, "")
		if err != nil {
			return errors.Join(&os.PathError{Op: "stat", Path: name, Err: err}, unix.Close(fd))
		}
		p.files = append(p.files, opened{name, s.Dev, s.Ino, file, fd})
	}
	return p.note()
}

// check says whether the files are still where they were. It costs a system call
// for each.
func (p *place) check() error {
	for i := range p.files {
		if err := p.files[i].check(); err != nil {
			return &awayError{p.files[i].name, p.files, err}
		}
	}
	if p.link != "" && len(p.files) > 0 {
		if err := p.files[0].at(p.link); err != nil {
			return &awayError{p.link, p.files, err}
		}
	}
	return nil
}

// errAnother says that another file has the name.
var errAnother = errors.New("another file is there now")

func (o *opened) check() error { return o.at(o.name) }

// at compares only what cannot change while the file is open.
func (o *opened) at(name string) error {
	var now unix.Stat_t
	if err := unix.Stat(name, &now); err != nil {
		return err
	}
	if now.Dev != o.dev || now.Ino != o.ino {
		return errAnother
	}
	return nil
}

// leave closes the files. It comes after every other connection is closed: the last
// one brings what the journal holds into the database and removes the journal by
// its name, which must not be that of another database by then.
func (p *place) leave() (err error) {
	p.left.Do(func() {
		switch {
		case p.anchor == nil:
		case len(p.files) == 2 && p.check() == nil:
			err = p.end()
		default:
			err = p.leaveJournal()
		}
		for _, file := range p.files {
			err = errors.Join(err, unix.Close(file.fd))
		}
	})
	return err
}

// note notes that the journal belongs to the database.
func (p *place) note() error {
	return journalNote{Database: p.files[0].identity, Journal: p.files[1].identity}.write(p.files[1].name)
}

// end closes the anchor where both files are in their place. The note goes after what
// the journal held and before the journal: no hub starts beside a note that has none.
func (p *place) end() error {
	var err error
	if p.emptied() {
		if err = forgetNote(p.files[1].name); err == nil {
			return p.anchor.Close() // which removes the journal
		}
	}
	// Of a full disk, say: both stay, as after a crash.
	return errors.Join(err, p.keepJournal(), p.anchor.Close())
}

// emptied brings what the journal holds into the database and says whether nothing is
// left in it.
func (p *place) emptied() bool {
	_, err := p.anchor.ExecContext(context.Background(), "PRAGMA wal_checkpoint(TRUNCATE)")
	var journal unix.Stat_t
	return err == nil && unix.Fstat(p.files[1].fd, &journal) == nil && journal.Size == 0
}

// keepJournal has SQLite not remove the journal when the anchor is closed.
func (p *place) keepJournal() error {
	return p.anchor.Raw(func(conn any) error {
		_, err := conn.(sqlite3.FileControl).FileControlPersistWAL("main", 1)
		return err
	})
}

// leaveJournal closes the anchor where not both files are in their place, or not known,
// and leaves the journal. If one of them is there the next start sees what may lie
// beside it.
func (p *place) leaveJournal() error {
	err := p.keepJournal()
	note, away := journalNote{}, (*opened)(nil)
	if len(p.files) == 2 {
		database, journal := &p.files[0], &p.files[1]
		note = journalNote{Database: database.identity, Journal: journal.identity}
		switch there := journal.check() == nil; {
		case there:
			away = database
			if _, named, err := identify(database.fd, ""); err == nil && !named {
				note.Database = identity{} // whatever file gets its inode
			}
		case database.check() == nil:
			away = journal
		}
	}
	if away == nil {
		return errors.Join(err, p.anchor.Close())
	}
	held, openErr := os.Open(fmt.Sprintf("/proc/self/fd/%d", away.fd))
	if openErr != nil {
		return errors.Join(err, openErr, p.anchor.Close(), note.write(p.files[1].name))
	}
	// It is closed after the anchor, whose locks end with it. Closing the anchor brings
	// the journal into the database, wherever that is now.
	before, digestErr := digest(held)
	if away == &p.files[1] && p.emptied() {
		// Nothing is missing then, unless another journal is there.
		if _, there := os.Lstat(away.name); errors.Is(there, fs.ErrNotExist) {
			return errors.Join(err, p.anchor.Close(), forgetNote(away.name), held.Close())
		}
	}
	closeErr := p.anchor.Close()
	after, againErr := digest(held)
	for _, one := range []string{before, after} {
		if one != "" && !slices.Contains(note.Copies, one) {
			note.Copies = append(note.Copies, one)
		}
	}
	return errors.Join(err, digestErr, closeErr, againErr, note.write(p.files[1].name), held.Close())
}

// awayError is a file that is not where it was.
type awayError struct {
	name  string
	files []opened
	err   error
}

func (e *awayError) Error() string {
	var copies []string
	for _, file := range e.files {
		copies = append(copies, fmt.Sprintf("cp /proc/%d/fd/%d RESCUE/%s", os.Getpid(), file.fd, filepath.Base(file.name)))
	}
	return fmt.Sprintf("%s was moved, removed or replaced (%s), and what the hub has open is somewhere else: put it back, with the files beside it; if it is gone, %s before the hub is stopped",
		e.name, e.err, strings.Join(copies, " and "))
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
