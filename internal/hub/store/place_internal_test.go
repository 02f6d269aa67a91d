package store

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Of SQLite, as where no file can be opened any more.
func TestAPlaceOfWhichNotAllIsKnownIsLeftWithItsJournal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hub.db")
	if _, err := found(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	for _, known := range []int{0, 1} {
		p := &place{}
		db, err := connectTo(path, "_pragma=journal_mode(WAL)", p)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "other")
		if known == 1 {
			if err := os.WriteFile(name, nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.settle(t.Context(), db, name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("settled with %v", err)
		}
		if len(p.files) != known {
			t.Errorf("%d files are known", len(p.files))
		}
		if err := errors.Join(p.leave(), db.Close()); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path + "-wal"); err != nil {
			t.Errorf("the journal is gone: %v", err)
		}
	}
}
