package store_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// moveAll moves what there is of a database from one directory to another.
func moveAll(t *testing.T, from, to string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Rename(filepath.Join(from, "hub.db"+suffix), filepath.Join(to, "hub.db"+suffix)); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	check(t, err)
	check(t, os.WriteFile(to, data, 0o600))
}

// refused starts a run in vain and returns what was said.
func (w *world) refused(t *testing.T) error {
	t.Helper()
	_, err := w.s.StartRun(background, admin, "", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Undemanding(""))
	for what, err := range map[string]error{"a change": err, "being asked": w.s.Ping(background)} {
		trouble := store.Trouble(err)
		if trouble == nil || trouble.Code != hubv1.CodeStorageUnavailable || !trouble.Unchanged || !strings.Contains(trouble.Detail, "moved, removed or replaced") || !strings.Contains(trouble.Remedy, "docs/operate.md") {
			t.Errorf("%s ends with %v, %+v", what, err, trouble)
		}
	}
	return err
}

// has says whether exactly these runs are there.
func (w *world) has(t *testing.T, want ...hubv1.Run) {
	t.Helper()
	runs, err := w.s.ListRuns(background, "app", 100)
	check(t, err)
	ids := map[string]bool{}
	for _, run := range runs {
		ids[run.ID] = true
	}
	for _, run := range want {
		if !ids[run.ID] {
			t.Errorf("%s is gone", run.ID)
		}
	}
	if len(runs) != len(want) {
		t.Errorf("%d runs are there, of %d", len(runs), len(want))
	}
}

// Of SQLite: PostgreSQL keeps its files itself.
func TestADatabaseThatIsMovedTakesNoChangeUntilItIsBack(t *testing.T) {
	for name, c := range map[string]struct {
		away, back func(t *testing.T, dir, aside string)
	}{
		"its files": {
			func(t *testing.T, dir, aside string) { moveAll(t, dir, aside) },
			func(t *testing.T, dir, aside string) { moveAll(t, aside, dir) },
		},
		"its journal alone": {
			func(t *testing.T, dir, aside string) {
				check(t, os.Rename(filepath.Join(dir, "hub.db-wal"), filepath.Join(aside, "w")))
			},
			func(t *testing.T, dir, aside string) {
				check(t, os.Rename(filepath.Join(aside, "w"), filepath.Join(dir, "hub.db-wal")))
			},
		},
		"its directory": {
			func(t *testing.T, dir, aside string) { check(t, os.Rename(dir, filepath.Join(aside, "d"))) },
			func(t *testing.T, dir, aside string) { check(t, os.Rename(filepath.Join(aside, "d"), dir)) },
		},
		"another in its place": {
			func(t *testing.T, dir, aside string) {
				moveAll(t, dir, aside)
				moveAll(t, filled(t), dir)
			},
			func(t *testing.T, dir, aside string) { moveAll(t, aside, dir) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			first := w.run(t)
			aside := t.TempDir()
			c.away(t, w.dir, aside)
			_ = w.refused(t)
			w.has(t, first) // by a connection that is open
			c.back(t, w.dir, aside)
			second := w.run(t)
			w.clock.Step(time.Minute)
			check(t, w.s.Ping(background))
			check(t, w.s.Close())
			w.s = open(t, w.dir, w.clock)
			w.has(t, first, second)
		})
	}
}

// Of SQLite. The error says how, and docs/operate.md too.
func TestADatabaseThatIsRemovedIsSavedFromTheHubThatHasItOpen(t *testing.T) {
	for _, early := range []bool{true, false} {
		t.Run(fmt.Sprintf("put there before the hub is stopped: %v", early), func(t *testing.T) {
			w := newWorld(t, 1)
			first := w.run(t)
			for _, name := range []string{"hub.db", "hub.db-wal", "hub.db-shm"} {
				check(t, os.Remove(filepath.Join(w.dir, name)))
			}
			said := w.refused(t).Error()
			copies := regexp.MustCompile(`cp (/proc/\d+/fd/\d+) RESCUE/(\S+)`).FindAllStringSubmatch(said, -1)
			if len(copies) != 2 {
				t.Fatalf("it says %s", said)
			}
			rescue := t.TempDir()
			for _, c := range copies {
				copied(t, c[1], filepath.Join(rescue, c[2]))
			}
			if early {
				moveAll(t, rescue, w.dir)
				_ = w.refused(t) // it is another file
			}
			check(t, w.s.Close())
			if !early {
				moveAll(t, rescue, w.dir)
			}
			w.s = open(t, w.dir, w.clock)
			w.has(t, first)
			w.run(t)
		})
	}
}

// Of SQLite.
func TestAHubWhoseDatabaseWasReplacedLeavesTheOtherAlone(t *testing.T) {
	w := newWorld(t, 1)
	w.run(t)
	// A backup as somebody makes who copies the files of a hub that was killed.
	backup := t.TempDir()
	for _, name := range []string{"hub.db", "hub.db-wal"} {
		copied(t, filepath.Join(w.dir, name), filepath.Join(backup, name))
	}
	w.run(t)
	moveAll(t, w.dir, t.TempDir())
	moveAll(t, backup, w.dir)
	journal, err := os.Open(filepath.Join(w.dir, "hub.db-wal"))
	check(t, err)
	defer func() { _ = journal.Close() }()
	was, err := io.ReadAll(journal)
	check(t, err)
	_ = w.refused(t)
	check(t, w.s.Close())
	if now, err := os.ReadFile(filepath.Join(w.dir, "hub.db-wal")); err != nil || len(was) == 0 || string(now) != string(was) {
		t.Errorf("its journal of %d bytes is %d bytes, %v", len(was), len(now), err)
	}
}

// Of SQLite: a database beside the journal of another one is none that anybody has. The hub does
// not begin with it.
func TestAHubDoesNotStartBesideAnothersJournal(t *testing.T) {
	w := newWorld(t, 1)
	first := w.run(t)
	file := func(suffix string) string { return filepath.Join(w.dir, "hub.db"+suffix) }
	aside := t.TempDir()
	_, err := looking(t, w.dir).Exec("VACUUM INTO '" + filepath.Join(aside, "backup") + "'")
	check(t, err)
	second := w.run(t)
	check(t, os.Rename(file(""), filepath.Join(aside, "own")))
	check(t, os.Rename(filepath.Join(aside, "backup"), file("")))
	_ = w.refused(t)
	check(t, w.s.Close())
	open := func() (err error) {
		w.s, err = store.Open(background, store.Options{Dir: w.dir, Clock: w.clock})
		return err
	}
	if err := open(); err == nil || !strings.Contains(err.Error(), "changes of another database") || !strings.Contains(err.Error(), file("-wal.of")) {
		t.Fatalf("beside the journal of another: %v", err)
	}
	check(t, os.Rename(file(""), filepath.Join(aside, "backup")))
	check(t, os.Rename(filepath.Join(aside, "own"), file("")))
	check(t, open())
	w.has(t, first, second)
	if _, err := os.Stat(file("-wal.of")); !os.IsNotExist(err) {
		t.Errorf("what was noted is still there: %v", err)
	}
	// The same again, and the other is meant.
	check(t, os.Rename(file(""), filepath.Join(aside, "own")))
	check(t, os.Rename(filepath.Join(aside, "backup"), file("")))
	_ = w.refused(t)
	check(t, w.s.Close())
	for _, suffix := range []string{"-wal", "-shm", "-wal.of"} {
		check(t, os.Rename(file(suffix), filepath.Join(aside, "own"+suffix)))
	}
	check(t, open())
	w.has(t, first)
	check(t, w.s.Close())
}
