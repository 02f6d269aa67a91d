// Package storetest spares tests the making of databases: to bring the schema of
// a SQLite database up to date takes ten times as long as to open it.
package storetest

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/internal/hub/store"
)

const name = "hub.db"

// empty is a SQLite database with the whole schema and nothing in it.
var empty = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "cloop-store-")
	if err != nil {
		return nil, err
	}
	s, err := store.Open(context.Background(), store.Options{Dir: dir, Clock: clock.RealClock{}})
	if err == nil {
		err = s.Close()
	}
	data, readErr := os.ReadFile(filepath.Join(dir, name))
	return data, errors.Join(err, readErr, os.RemoveAll(dir))
})

// Prepare puts an empty database of SQLite into the directory, unless there is
// one.
func Prepare(t interface {
	Helper()
	Fatal(args ...any)
}, dir string) {
	t.Helper()
	path := filepath.Join(dir, name)
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	data, err := empty()
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
