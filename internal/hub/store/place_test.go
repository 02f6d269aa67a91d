package store_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
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

// copyAll copies a database and its journal over what is there.
func copyAll(t *testing.T, from, to string) {
	t.Helper()
	for _, name := range []string{"hub.db", "hub.db-wal"} {
		copied(t, filepath.Join(from, name), filepath.Join(to, name))
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

// rescued carries out what the refusal of a change says to.
func (w *world) rescued(t *testing.T) (dir string) {
	t.Helper()
	copies := regexp.MustCompile(`cp (/proc/\d+/fd/\d+) RESCUE/(\S+)`).FindAllStringSubmatch(w.refused(t).Error(), -1)
	if len(copies) != 2 {
		t.Fatalf("it says %s", copies)
	}
	dir = t.TempDir()
	for _, c := range copies {
		copied(t, c[1], filepath.Join(dir, c[2]))
	}
	return dir
}

// Of SQLite. The error says how, and docs/operate.md too.
func TestADatabaseThatIsRemovedIsSavedFromTheHubThatHasItOpen(t *testing.T) {
	all := []string{"hub.db", "hub.db-wal", "hub.db-shm"}
	for name, removed := range map[string][]string{"all": all, "the database alone": all[:1], "the journal alone": all[1:2]} {
		for how, put := range map[string]func(t *testing.T, from, to string){
			"moved":  moveAll,
			"copied": copyAll, // over what is there
		} {
			for _, early := range []bool{true, false} {
				t.Run(fmt.Sprintf("%s, %s before the hub is stopped: %v", name, how, early), func(t *testing.T) {
					w := newWorld(t, 1)
					first := w.run(t)
					for _, name := range removed {
						check(t, os.Remove(filepath.Join(w.dir, name)))
					}
					rescue := w.rescued(t)
					if early {
						put(t, rescue, w.dir)
						_ = w.refused(t) // it is another file
					}
					check(t, w.s.Close())
					if !early {
						put(t, rescue, w.dir)
					}
					w.s = open(t, w.dir, w.clock)
					w.has(t, first)
					w.run(t)
				})
			}
		}
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

// replaced is a hub whose database a backup took the place of while it ran.
type replaced struct {
	*world
	first, second hubv1.Run // the backup has the first
	own           string    // where the hub's own database is
}

func replacedWhileItRuns(t *testing.T) replaced {
	t.Helper()
	w := newWorld(t, 1)
	r := replaced{world: w, first: w.run(t), own: filepath.Join(t.TempDir(), "own")}
	backup := filepath.Join(t.TempDir(), "backup")
	_, err := looking(t, w.dir).Exec("VACUUM INTO '" + backup + "'")
	check(t, err)
	r.second = w.run(t)
	check(t, os.Rename(r.file(""), r.own))
	check(t, os.Rename(backup, r.file("")))
	_ = w.refused(t)
	return r
}

func (r replaced) file(suffix string) string { return filepath.Join(r.dir, "hub.db"+suffix) }

// refusesToStart expects that a hub does not start, and says so with all of the words.
func refusesToStart(t *testing.T, dir string, words ...string) {
	t.Helper()
	s, err := store.Open(background, store.Options{Dir: dir, Clock: newClock()})
	if err == nil {
		_ = s.Close()
		t.Fatal("it starts")
	}
	for _, want := range words {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v, without %q", err, want)
		}
	}
}

// Of SQLite. A hub that is killed can note nothing any more.
func TestAHubThatIsKilledDoesNotStartBesideAnothersJournal(t *testing.T) {
	w := newWorld(t, 1000)
	w.run(t)
	aside := t.TempDir()
	file := func(suffix string) string { return filepath.Join(w.dir, "hub.db"+suffix) }
	db := looking(t, w.dir)
	_, err := db.Exec("VACUUM INTO '" + filepath.Join(aside, "backup") + "'")
	check(t, err)
	check(t, db.Close())
	check(t, w.s.Close())
	killed(t, store.Options{Dir: w.dir}, 20, func(hub *exec.Cmd) {
		check(t, os.Rename(file(""), filepath.Join(aside, "own")))
		check(t, os.Rename(filepath.Join(aside, "backup"), file("")))
		check(t, hub.Process.Kill())
	})
	refusesToStart(t, w.dir, "changes of another database", "put that one back", file("-wal.of"), "keep them there")
	check(t, os.Rename(file(""), filepath.Join(aside, "backup")))
	check(t, os.Rename(filepath.Join(aside, "own"), file("")))
	w.s = open(t, w.dir, w.clock)
	if runs, err := w.s.ListRuns(background, "app", 100); err != nil || len(runs) < 2 {
		t.Errorf("%d runs are there, %v", len(runs), err)
	}
	check(t, w.s.Close())
	if _, err := os.Stat(file("-wal.of")); !os.IsNotExist(err) {
		t.Errorf("what was noted of the journal is still there: %v", err)
	}
}

// Of SQLite: file systems give the number of a file that is gone to the next one.
func TestAnotherDatabaseIsNotTakenForTheOneWhoseInodeItHas(t *testing.T) {
	r := replacedWhileItRuns(t)
	var own, now unix.Stat_t
	check(t, unix.Stat(r.own, &own))
	check(t, os.Remove(r.own))
	check(t, r.s.Close())
	for i := 0; i < 100 && now.Ino != own.Ino; i++ {
		name := filepath.Join(t.TempDir(), "backup")
		copied(t, r.file(""), name)
		check(t, unix.Stat(name, &now))
		check(t, os.Rename(name, r.file("")))
	}
	refusesToStart(t, r.dir, "changes of another database")
}

// Of SQLite. To another file system and back is a copy.
func TestADatabaseThatIsMovedAcrossFileSystemsIsItsOwn(t *testing.T) {
	across := func(t *testing.T, from, to string) {
		t.Helper()
		copied(t, from, to)
		check(t, os.Remove(from))
	}
	for name, alone := range map[string]bool{"alone": true, "with its journal": false} {
		for _, early := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, back before the hub is stopped: %v", name, early), func(t *testing.T) {
				w := newWorld(t, 1)
				run := w.run(t)
				aside := t.TempDir()
				move := func(from, to string) {
					across(t, filepath.Join(from, "hub.db"), filepath.Join(to, "hub.db"))
					if !alone {
						across(t, filepath.Join(from, "hub.db-wal"), filepath.Join(to, "hub.db-wal"))
					}
				}
				move(w.dir, aside)
				_ = w.refused(t)
				if early {
					move(aside, w.dir)
				}
				check(t, w.s.Close())
				if !early {
					move(aside, w.dir)
				}
				w.s = open(t, w.dir, w.clock)
				w.has(t, run)
			})
		}
	}
}

// Of SQLite: as a backup of the whole directory of a hub that was killed.
func TestADatabaseThatIsCopiedWithItsJournalIsItsOwn(t *testing.T) {
	w := newWorld(t, 1)
	run := w.run(t)
	dir := t.TempDir()
	for _, suffix := range []string{"", "-wal", "-wal.of"} {
		copied(t, filepath.Join(w.dir, "hub.db"+suffix), filepath.Join(dir, "hub.db"+suffix))
	}
	w.s = open(t, dir, w.clock)
	w.has(t, run)
	// It is noted anew.
	other := filepath.Join(filled(t), "hub.db")
	check(t, os.Rename(other, filepath.Join(dir, "hub.db")))
	refusesToStart(t, dir, "changes of another database")
}

// Of SQLite.
func TestAHubDoesNotStartWithTheJournalOfAnother(t *testing.T) {
	w, other := newWorld(t, 1), newWorld(t, 1)
	journal := filepath.Join(w.dir, "hub.db-wal")
	copied(t, filepath.Join(other.dir, "hub.db-wal"), journal+".other")
	check(t, os.Rename(journal+".other", journal))
	refusesToStart(t, w.dir, journal+" is not the journal that", "put that one back", journal+".of", "keep them there")
	check(t, w.s.Close())
	refusesToStart(t, w.dir, journal+" is not the journal that")
	check(t, os.Truncate(journal, 0)) // as one is made
	check(t, open(t, w.dir, w.clock).Close())
}

// Of SQLite: hubs noted the database's device and inode before, and only when they ended.
func TestWhatAnOlderHubNotedOfAJournalIsRead(t *testing.T) {
	r := replacedWhileItRuns(t)
	check(t, r.s.Close())
	var own unix.Stat_t
	check(t, unix.Stat(r.own, &own))
	check(t, os.WriteFile(r.file("-wal.of"), fmt.Appendf(nil, "%d %d\n", own.Dev, own.Ino), 0o600))
	refusesToStart(t, r.dir, "changes of another database")
	check(t, os.Rename(r.own, r.file("")))
	r.s = open(t, r.dir, r.clock)
	r.has(t, r.first, r.second)
}

// Of SQLite. What a hub of its own has made would look like one that nobody ever used.
func TestAHubIsNotBegunInAFileThatLostItsJournal(t *testing.T) {
	dir := t.TempDir()
	db := looking(t, dir)
	_, err := db.Exec("CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL)")
	check(t, err)
	check(t, db.Close())
	refusesToStart(t, dir, "none of a hub's tables", "hub.db-wal", "put that back", "move the file")

	w := &world{clock: newClock(), dir: t.TempDir()}
	w.s = open(t, w.dir, w.clock)
	check(t, w.s.EnsureAdmin(background, func(secret.String) error { return nil }))
	alone := t.TempDir()
	copied(t, filepath.Join(w.dir, "hub.db"), filepath.Join(alone, "hub.db"))
	s := open(t, alone, w.clock)
	check(t, s.EnsureAdmin(background, func(secret.String) error { t.Error("it is a new hub"); return nil }))
}

// crashed is the files of a hub that was killed, in which there is a run.
func crashed(t *testing.T) (dir string, run hubv1.Run) {
	t.Helper()
	w := newWorld(t, 1)
	run = w.run(t)
	dir = t.TempDir()
	for _, name := range []string{"hub.db", "hub.db-wal", "hub.db-wal.of"} {
		copied(t, filepath.Join(w.dir, name), filepath.Join(dir, name))
	}
	return dir, run
}

// holds expects that a hub starts and has exactly these runs.
func holds(t *testing.T, dir string, want ...hubv1.Run) {
	t.Helper()
	w := &world{clock: newClock(), dir: dir}
	w.s = open(t, dir, w.clock)
	w.has(t, want...)
	check(t, w.s.Close())
}

// Of SQLite: SQLite would make another journal, and what was acknowledged would be gone.
func TestAHubThatWasKilledMissesWhatIsAway(t *testing.T) {
	for name, c := range map[string]struct {
		away []string
		says []string
	}{
		"its journal":      {[]string{"hub.db-wal"}, []string{"hub.db-wal is away", "acknowledged", "put it back", "to go on without it", "docs/operate.md"}},
		"its database too": {[]string{"hub.db-wal", "hub.db"}, []string{"hub.db is away", "put it back", "new hub instead", "docs/operate.md"}},
	} {
		for _, older := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, with a note of an older hub: %v", name, older), func(t *testing.T) {
				dir, run := crashed(t)
				note := filepath.Join(dir, "hub.db-wal.of")
				if older {
					check(t, os.WriteFile(note, []byte("1 2\n"), 0o600))
				}
				aside := t.TempDir()
				for _, name := range c.away {
					check(t, os.Rename(filepath.Join(dir, name), filepath.Join(aside, name)))
				}
				for range 2 {
					refusesToStart(t, dir, append(c.says, "move "+note)...)
				}
				if !older { // an older note does not know a copy of both
					for _, name := range c.away {
						copied(t, filepath.Join(aside, name), filepath.Join(dir, name))
					}
					if len(c.away) == 2 {
						holds(t, dir, run)
						return
					}
					check(t, os.Remove(filepath.Join(dir, "hub.db-wal")))
				}
				check(t, os.Rename(note, filepath.Join(aside, "note")))
				check(t, open(t, dir, newClock()).Close())
				for _, left := range []string{"hub.db-wal", "hub.db-wal.of"} {
					if _, err := os.Lstat(filepath.Join(dir, left)); !os.IsNotExist(err) {
						t.Errorf("after the end %s is there: %v", left, err)
					}
				}
			})
		}
	}
}

// Of SQLite. A hub that can still reach its journal brings it in when it ends, and misses none.
func TestAHubThatEndsWhileItsJournalIsAwayHasAllInItsDatabase(t *testing.T) {
	w := newWorld(t, 1)
	run := w.run(t)
	journal, aside := filepath.Join(w.dir, "hub.db-wal"), filepath.Join(t.TempDir(), "journal")
	check(t, os.Rename(journal, aside))
	check(t, w.s.Close())
	holds(t, w.dir, run)
	check(t, os.Rename(aside, journal)) // there is nothing in it
	holds(t, w.dir, run)
}

// Of SQLite, whose journal is beside what a link leads to.
func TestADatabaseMayBeALink(t *testing.T) {
	dir, volume := t.TempDir(), t.TempDir()
	link, target := filepath.Join(dir, "hub.db"), filepath.Join(volume, "pools.sqlite")
	filledDir := filled(t)
	check(t, os.Rename(filepath.Join(filledDir, "hub.db"), target))
	check(t, os.Symlink(target, link))
	w := &world{clock: newClock(), dir: dir}
	w.s = open(t, dir, w.clock)
	last := w.run(t)
	if _, err := os.Stat(target + "-wal.of"); err != nil {
		t.Error(err)
	}
	check(t, os.Remove(link))
	copied(t, target, link)
	_ = w.refused(t)
	check(t, os.Remove(link))
	check(t, os.Symlink(target, link))
	check(t, w.s.Close())
	w.s = open(t, dir, w.clock)
	if run := w.get(t, last.ID); run.ID != last.ID {
		t.Error("the last run is gone")
	}
	check(t, w.s.Close())

	check(t, os.Rename(target, target+".away"))
	refusesToStart(t, dir, link, "is a link", "put that back", "remove the link")
	if _, err := os.Lstat(target); !os.IsNotExist(err) {
		t.Errorf("it is made: %v", err)
	}
}

// Of SQLite.
func TestADirectoryThatIsALinkIsNoticedToLeadElsewhere(t *testing.T) {
	data, link, other := t.TempDir(), filepath.Join(t.TempDir(), "data"), filled(t)
	check(t, os.Symlink(data, link))
	w := newWorldIn(t, link, 1)
	run := w.run(t)
	check(t, os.Remove(link))
	check(t, os.Symlink(other, link))
	_ = w.refused(t)
	check(t, os.Remove(link))
	check(t, os.Symlink(data, link))
	check(t, w.s.Close())
	holds(t, link, run)
}

// Of SQLite. Whoever put one there and knows that nothing is lost needs no other way out.
func TestTheRefusalOfAPairThatIsNotCertainSaysWhatToDoIfItIsRight(t *testing.T) {
	for _, name := range []string{"hub.db", "hub.db-wal"} {
		w := newWorld(t, 1)
		w.run(t)
		dir := t.TempDir()
		// Both as they were, moved, but one of them a copy.
		for _, suffix := range []string{"", "-wal", "-wal.of"} {
			check(t, os.Link(filepath.Join(w.dir, "hub.db"+suffix), filepath.Join(dir, "hub.db"+suffix)))
		}
		copied(t, filepath.Join(dir, name), filepath.Join(dir, "copy"))
		check(t, os.Rename(filepath.Join(dir, "copy"), filepath.Join(dir, name)))
		note := filepath.Join(dir, "hub.db-wal.of")
		refusesToStart(t, dir, "put there after a crash", "copy of both", "move "+note+" alone")
	}
}
