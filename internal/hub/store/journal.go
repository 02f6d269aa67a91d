package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"cloop.dev/cloop/internal/atomicfile"
)

// journalNote says which database a journal belongs to. It lies beside the journal
// from when a hub has both open until one ends with the journal in its database:
// SQLite would lay the journal over whatever file it finds beside it.
type journalNote struct {
	Database identity `json:"database"`
	Journal  identity `json:"journal"`
	// Copies are the digests of what one of them held when the hub that had it open
	// ended without finding it in its place. A file that holds the same is as good.
	Copies []string `json:"copies,omitempty"`
}

// identity tells a file from every other one, also from one that is put in its
// place. The zero value is no file's.
type identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	// Born is when the file was made: the number of an inode is given again. It is
	// empty where the file system does not say.
	Born string `json:"born,omitempty"`
}

// is says whether both are of one file. A device may have another number after the
// machine was started again, so it counts only where nothing better is known.
func (i identity) is(other identity) bool {
	if i.Born != "" && other.Born != "" {
		return i.Inode == other.Inode && i.Born == other.Born
	}
	return i.Inode == other.Inode && i.Device == other.Device
}

// identify looks at the file at the path, or at the descriptor if the path is empty,
// and says whether it has a name at all.
func identify(descriptor int, path string) (file identity, named bool, err error) {
	flags := 0
	if path == "" {
		flags = unix.AT_EMPTY_PATH
	}
	var s unix.Statx_t
	if err := unix.Statx(descriptor, path, flags, unix.STATX_BASIC_STATS|unix.STATX_BTIME, &s); err == nil {
		file = identity{Device: unix.Mkdev(s.Dev_major, s.Dev_minor), Inode: s.Ino}
		if s.Mask&unix.STATX_BTIME != 0 {
			file.Born = fmt.Sprintf("%d.%09d", s.Btime.Sec, s.Btime.Nsec)
		}
		return file, s.Nlink > 0, nil
	}
	// Sandboxes that are older than the call refuse it.
	var old unix.Stat_t
	if err := unix.Fstatat(descriptor, path, &old, flags); err != nil {
		return identity{}, false, err
	}
	return identity{Device: old.Dev, Inode: old.Ino}, old.Nlink > 0, nil
}

// noteSuffix is behind the name of a journal in the name of its note.
const noteSuffix = ".of"

func (n journalNote) write(journal string) error {
	data, err := json.Marshal(n)
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if now, err := os.ReadFile(journal + noteSuffix); err == nil && bytes.Equal(now, data) {
		return nil // as after a crash, maybe on a full disk
	}
	return atomicfile.Write(journal+noteSuffix, data, 0o600)
}

// readNote returns nil if there is none.
func readNote(journal string) (*journalNote, error) {
	data, err := os.ReadFile(journal + noteSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil //nolint:nilnil // none
	}
	if err != nil {
		return nil, err
	}
	note := &journalNote{}
	// Hubs wrote the device and the inode of the database alone before.
	if n, err := fmt.Sscanf(string(data), "%d %d\n", &note.Database.Device, &note.Database.Inode); err == nil && n == 2 {
		return note, nil
	}
	if err := json.Unmarshal(data, note); err != nil {
		return nil, fmt.Errorf("%[1]s%[2]s says which database %[1]s belongs to, but not in a way that this hub reads (%[3]w): if the two belong together, move %[1]s%[2]s to another directory, then start the hub again", journal, noteSuffix, err)
	}
	return note, nil
}

func forgetNote(journal string) error {
	if err := os.Remove(journal + noteSuffix); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// noted says whether there is a note, whatever it says: then the last hub did not end
// in order.
func noted(journal string) (bool, error) {
	_, err := os.Lstat(journal + noteSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// belongs refuses a database beside the journal of another one, and one without the
// journal that it had. Where both are other files than before they were moved, copied or
// restored together.
func belongs(path string) error {
	journal := path + "-wal"
	info, err := os.Stat(journal)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		used, err := noted(journal)
		if err == nil && used {
			err = fmt.Errorf("%[1]s is away, and the hub that used %[2]s did not end in order (there is %[1]s%[3]s), so it holds changes that were acknowledged: put it back; or, to go on without it, or if another program (sqlite3) brought it into %[2]s since, move %[1]s%[3]s to another directory (docs/operate.md, A database that is not where it was); then start the hub again", journal, path, noteSuffix)
		}
		return err
	case err == nil && info.Size() == 0:
		// Not later: a note says that the journal was used, and this one was not.
		return forgetNote(journal)
	}
	note, err := readNote(journal)
	if err != nil || note == nil {
		return err
	}
	database, _, err := identify(unix.AT_FDCWD, path)
	if err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	changes, _, err := identify(unix.AT_FDCWD, journal)
	if err != nil {
		return &os.PathError{Op: "stat", Path: journal, Err: err}
	}
	sameDatabase, sameJournal := note.Database.is(database), note.Journal == identity{} || note.Journal.is(changes)
	if sameDatabase == sameJournal {
		return nil
	}
	other := path
	if sameDatabase {
		other = journal
	}
	if len(note.Copies) > 0 {
		if held, err := digestOf(other); err != nil || slices.Contains(note.Copies, held) {
			return err
		}
	}
	if sameDatabase {
		return fmt.Errorf("%[1]s is not the journal that %[2]s had, and SQLite would lay it over %[2]s: put that one back; or, to use %[2]s without what only a journal has, move %[1]s, %[2]s-shm and %[1]s%[3]s to another directory and keep them there; or, %[4]s, move %[1]s%[3]s alone (docs/operate.md, A database that is not where it was); then start the hub again", journal, path, noteSuffix, together)
	}
	return fmt.Errorf("%[1]s holds changes of another database than %[2]s is now, which was put there in its place, and SQLite would lay them over it: put that one back; or, to use this one without them, move %[1]s, %[2]s-shm and %[1]s%[3]s to another directory and keep them there: much of the other database may be in nothing else; or, %[4]s, move %[1]s%[3]s alone (docs/operate.md, A database that is not where it was); then start the hub again", journal, path, noteSuffix, together)
}

// together is when the two that a note tells apart belong together all the same.
const together = "only if one of the two is a copy that was put there after a crash and nothing was changed between, and with a copy of both made first"

// digestOf is of all that a file holds that nobody has open.
func digestOf(path string) (string, error) {
	file, err := os.Open(path) //nolint:gosec // the hub's own
	if err != nil {
		return "", err
	}
	digest, err := digest(file)
	return digest, errors.Join(err, file.Close())
}

func digest(file *os.File) (string, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
