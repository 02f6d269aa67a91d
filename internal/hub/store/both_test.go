package store_test

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/hub/store/storetest"
	"cloop.dev/cloop/internal/postgrestest"
)

// both runs a test on each database that the hub can be kept in: what is shown
// here holds on both.
func both(t *testing.T, test func(*testing.T)) {
	t.Helper()
	t.Run("sqlite", test)
	t.Run("postgres", func(t *testing.T) { postgrestest.Shared(t); test(t) })
}

// onPostgres says which of the two a test is on.
func onPostgres(t interface{ Name() string }) bool { return strings.Contains(t.Name(), "/postgres") }

// at says where the database is that a test takes for the directory: in it, or
// on the server that the tests share. It is there, with its schema.
func at(t testing.TB, dir string, o store.Options) store.Options {
	t.Helper()
	if o = place(t, dir, o); o.URL == "" {
		storetest.Prepare(t, dir)
	}
	return o
}

// place is at for what need not be there.
func place(t testing.TB, dir string, o store.Options) store.Options {
	t.Helper()
	o.Dir = dir
	if onPostgres(t) {
		o.URL = standIn(t, dir)
	}
	return o
}

var (
	template sync.Once
	// standIns: directory → URL of the database that stands for it.
	standIns sync.Map
)

const templateName = "template_of_hubs"

func standIn(t testing.TB, dir string) string {
	t.Helper()
	if url, known := standIns.Load(dir); known {
		return url.(string)
	}
	name, url := newDatabase(t)
	standIns.Store(dir, url)
	t.Cleanup(func() { check(t, postgrestest.Shared(t).Drop(name)) })
	return url
}

// newDatabase makes a database with an up to date schema.
func newDatabase(t postgrestest.T) (name, url string) {
	t.Helper()
	server := postgrestest.Shared(t)
	template.Do(func() {
		if err := server.Do(background, "CREATE DATABASE "+templateName); err != nil {
			t.Fatal(err)
		}
		if err := store.Prepare(background, server.URL(templateName)); err != nil {
			t.Fatal(err)
		}
	})
	name = server.NewDatabase(t, templateName)
	return name, server.URL(name)
}

// looker looks at what no method shows. Its queries take ? on both databases.
type looker struct {
	*sql.DB
	postgres bool
}

// looking opens the database that stands for a directory a second time.
func looking(t testing.TB, dir string) looker {
	t.Helper()
	l, err := look(place(t, dir, store.Options{}))
	check(t, err)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func look(o store.Options) (looker, error) {
	if o.URL != "" {
		db, err := sql.Open("pgx", o.URL)
		return looker{db, true}, err
	}
	db, err := sql.Open("sqlite", "file:"+filepath.Join(o.Dir, "hub.db"))
	return looker{db, false}, err
}

func (l looker) bind(query string) string {
	if l.postgres {
		return store.NumberArguments(query)
	}
	return query
}

func (l looker) QueryRow(query string, args ...any) *sql.Row {
	return l.DB.QueryRow(l.bind(query), args...)
}

func (l looker) Query(query string, args ...any) (*sql.Rows, error) {
	return l.DB.Query(l.bind(query), args...)
}

// Every test of the package is for both databases, unless it says why not.
func TestTestsAreForBothDatabases(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	check(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		check(t, err)
		lines := strings.Split(string(text), "\n")
		for i, line := range lines {
			if !strings.HasPrefix(line, "func Test") || strings.HasPrefix(line, "func TestMain(") || strings.Contains(line+lines[i+1], "both(t, ") {
				continue
			}
			why := ""
			for j := i - 1; j >= 0 && strings.HasPrefix(lines[j], "//"); j-- {
				why += lines[j]
			}
			if !strings.Contains(why, "SQLite") && !strings.Contains(why, "PostgreSQL") && !strings.Contains(why, "both databases") {
				t.Errorf("%s:%d: run it on both databases (both), or say in its comment which one it is about", file, i+1)
			}
		}
	}
}
