package store_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// filled makes a database with a run and its log and closes it.
func filled(t testing.TB) (dir string) {
	t.Helper()
	w := newWorld(t, 5)
	for i := range 3 {
		w.ended(t, fmt.Sprintf("key-%04d", i))
	}
	check(t, w.s.Close())
	return w.dir
}

// Of SQLite: PostgreSQL keeps its files itself.
func TestADamagedDatabaseIsRefusedAndLeftAsItIs(t *testing.T) {
	whole, err := os.ReadFile(filepath.Join(filled(t), "hub.db"))
	check(t, err)
	for name, damage := range map[string]func(file string, data []byte){
		"not a database": func(file string, data []byte) {
			check(t, os.WriteFile(file, []byte(strings.Repeat("hello ", 1000)), 0o600))
		},
		"cut off": func(file string, data []byte) { check(t, os.Truncate(file, int64(len(data)/2))) },
		"overwritten": func(file string, data []byte) {
			// All but the first page, which says where the tables are.
			for i := 4096; i < len(data); i++ {
				data[i] = 0xa5
			}
			check(t, os.WriteFile(file, data, 0o600))
		},
		"empty": func(file string, data []byte) { check(t, os.Truncate(file, 0)) },
		"gone, but not its journal": func(file string, data []byte) {
			check(t, os.Remove(file))
			check(t, os.WriteFile(file+"-wal", data, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			file := filepath.Join(dir, "hub.db")
			check(t, os.WriteFile(file, whole, 0o600))
			damage(file, bytes.Clone(whole))
			was, _ := os.ReadFile(file)
			s, err := store.Open(context.Background(), store.Options{Dir: dir, Clock: newClock()})
			if err == nil {
				_ = s.Close()
			}
			if !errors.Is(err, store.ErrDamaged) || !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "backup") {
				t.Errorf("opened with %v", err)
			}
			if now, _ := os.ReadFile(file); !bytes.Equal(now, was) {
				t.Error("the file was changed")
			}
		})
	}
}

// Of SQLite, which lays a journal over its database and removes it when the last connection is
// closed: what it was is of use to whoever recovers what there is.
func TestARefusedStartLeavesEveryFileAsItIs(t *testing.T) {
	damage := func(t *testing.T, file string) {
		t.Helper()
		data, err := os.ReadFile(file)
		check(t, err)
		for i := 4096; i < len(data); i++ {
			data[i] = 0xa5
		}
		check(t, os.WriteFile(file, data, 0o600))
	}
	content := func(t *testing.T, dir string) map[string]string {
		t.Helper()
		out := map[string]string{}
		entries, err := os.ReadDir(dir)
		check(t, err)
		for _, entry := range entries {
			if data, err := os.ReadFile(filepath.Join(dir, entry.Name())); entry.Name() != "hub.db-shm" { // an index that is made anew
				check(t, err)
				out[entry.Name()] = fmt.Sprintf("%x", sha256.Sum256(data))
			}
		}
		return out
	}
	for name, c := range map[string]struct {
		dir  func(t *testing.T) string
		says string
	}{
		"damaged, after a crash": {func(t *testing.T) string {
			w := newWorld(t, 5)
			for i := range 3 {
				w.ended(t, fmt.Sprintf("key-%04d", i))
			}
			check(t, w.s.Close())
			w.s = open(t, w.dir, w.clock)
			w.run(t)
			dir := t.TempDir()
			for _, name := range []string{"hub.db", "hub.db-wal", "hub.db-wal.of"} {
				copied(t, filepath.Join(w.dir, name), filepath.Join(dir, name))
			}
			damage(t, filepath.Join(dir, "hub.db"))
			return dir
		}, "is damaged"},
		"damaged, after an end in order": {func(t *testing.T) string {
			dir := filled(t)
			damage(t, filepath.Join(dir, "hub.db"))
			return dir
		}, "is damaged"},
		"with none of a hub's tables": {func(t *testing.T) string {
			dir := t.TempDir()
			db := looking(t, dir)
			_, err := db.Exec("PRAGMA journal_mode = WAL")
			check(t, err)
			_, err = db.Exec("CREATE TABLE other (n INTEGER)")
			check(t, err)
			copies := t.TempDir()
			copyAll(t, dir, copies)
			return copies
		}, "none of a hub's tables"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := c.dir(t)
			was := content(t, dir)
			refusesToStart(t, dir, c.says)
			if now := content(t, dir); !maps.Equal(was, now) {
				t.Errorf("there was %v, there is %v", was, now)
			}
		})
	}
}

// As docs/operate.md says to with SQLite.
func TestABackupTakesTheDamagedDatabasesPlace(t *testing.T) {
	dir := filled(t)
	file := filepath.Join(dir, "hub.db")
	backup, err := os.ReadFile(file)
	check(t, err)
	w := &world{s: open(t, dir, newClock()), clock: newClock(), dir: dir}
	later := w.run(t)
	check(t, os.WriteFile(file, []byte("damage"), 0o600))
	_ = w.s.Close()
	for _, name := range []string{"hub.db", "hub.db-wal", "hub.db-shm", "hub.db-wal.of"} {
		if err := os.Rename(filepath.Join(dir, name), filepath.Join(t.TempDir(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
	check(t, os.WriteFile(file, backup, 0o600))
	w.s = open(t, dir, w.clock)
	runs, err := w.s.ListRuns(background, "app", 100)
	check(t, err)
	if len(runs) != 3 || slices.ContainsFunc(runs, func(run hubv1.Run) bool { return run.ID == later.ID }) {
		t.Errorf("%d runs are back", len(runs))
	}
}

// Of SQLite, too.
func TestDamageThatShowsLaterIsSaidToBe(t *testing.T) {
	w := newWorld(t, 1)
	run, r := w.run(t), w.runner(t, "key-one1")
	w.started(t, r, w.get(t, run.ID))
	_, err := w.s.AppendLog(background, r, run.ID, 0, bytes.Repeat([]byte("x"), 1<<20))
	check(t, err)
	check(t, w.s.Close())
	file := filepath.Join(w.dir, "hub.db")
	data, err := os.ReadFile(file)
	check(t, err)
	// The log's pages begin with the number of the next one.
	for at := 4096; at < len(data); at += 4096 {
		if bytes.Equal(data[at+4:at+64], bytes.Repeat([]byte("x"), 60)) {
			copy(data[at:], "\xff\xff\xff\xff")
		}
	}
	check(t, os.WriteFile(file, data, 0o600))
	w.s = open(t, w.dir, w.clock)
	if _, _, err := w.s.ReadLog(background, run.ID, 0); store.Trouble(err) == nil || store.Trouble(err).Code != hubv1.CodeStorageDamaged {
		t.Errorf("the damaged log is read with %v", err)
	}
	if now := w.get(t, run.ID); now.ID != run.ID {
		t.Errorf("what is whole is read as %+v", now)
	}
	w.run(t) // and it goes on
}

// Of SQLite.
func TestAPlaceThatCannotBeWrittenIsNamed(t *testing.T) {
	// Not even root may make a file there.
	_, err := store.Open(context.Background(), store.Options{Dir: "/sys/kernel", Clock: newClock()})
	if err == nil || !strings.Contains(err.Error(), "/sys/kernel/hub.db") || !strings.Contains(err.Error(), "readable and writable") {
		t.Errorf("opened with %v", err)
	}
}

// troubles are what Options.Trouble was told.
type troubles struct {
	mu   sync.Mutex
	told []error
}

func (r *troubles) tell(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, err)
}

func (r *troubles) all() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]error{}, r.told...)
}

// Of SQLite: the full disk of a server is tested where there is one.
func TestAFullDatabaseLosesNothingAndRecovers(t *testing.T) {
	w := newWorld(t, 5)
	check(t, w.s.Close())
	var told troubles
	s, err := store.Open(background, store.Options{Dir: w.dir, Clock: w.clock, Trouble: told.tell})
	check(t, err)
	t.Cleanup(func() { _ = s.Close() })
	w.s = s
	run, r := w.run(t), w.runner(t, "key-one1")
	w.started(t, r, w.get(t, run.ID))
	free := store.Fill(t, s)

	// Several at a time share a transaction, and the end of one is that of all.
	acknowledged := map[int]string{}
	var mu sync.Mutex
	var refused error
	for full := false; !full; {
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				got, err := s.StartRun(background, admin, "", hubv1.StartRunRequest{
					Project: "app", Command: []string{strings.Repeat("x", 20000)},
				}, store.Undemanding(""))
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					acknowledged[len(acknowledged)] = got.ID
					return
				}
				full, refused = true, err
			})
		}
		group.Wait()
	}
	if trouble := store.Trouble(refused); trouble == nil || trouble.Code != hubv1.CodeStorageUnavailable || !strings.Contains(trouble.Detail, "disk is full") {
		t.Fatalf("refused with %v", refused)
	}
	if now := w.get(t, run.ID); now.State != hubv1.RunRunning {
		t.Errorf("meanwhile a run is read as %s", now.State)
	}
	if told := told.all(); len(told) != 1 || told[0] == nil {
		t.Errorf("told %v", told)
	}
	free()
	w.clock.Step(time.Minute)
	check(t, s.Ping(background))
	if told := told.all(); len(told) != 2 || told[1] != nil {
		t.Errorf("told %v", told)
	}
	zero := int32(0)
	check(t, s.Result(background, r, run.ID, hubv1.ResultRequest{Attempt: 1, ExitCode: &zero}))
	check(t, s.Close())
	w.s = open(t, w.dir, w.clock)
	for _, id := range acknowledged {
		w.get(t, id)
	}
	runs, err := w.s.ListRuns(background, "app", 1000)
	check(t, err)
	if len(runs) != len(acknowledged)+1 || w.get(t, run.ID).State != hubv1.RunSucceeded {
		t.Errorf("%d runs are there of %d acknowledged", len(runs), len(acknowledged)+1)
	}
}
