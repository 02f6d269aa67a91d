package hub_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub"
	"cloop.dev/cloop/internal/hub/store/storetest"
)

// disk is a place that can be filled up.
type disk struct {
	dir string
	// fill leaves no room; free makes it again.
	fill, free func()
	// says is what the hub says of it.
	says string
}

// disks are the kinds of full disk that this machine can make. The first needs
// the right to mount; the second, a bound on the size of each file, is what a
// quota looks like and needs none.
func disks(t *testing.T) map[string]func(*testing.T) disk {
	kinds := map[string]func(*testing.T) disk{boundOnFiles: boundFiles}
	probe := t.TempDir()
	if err := unix.Mount("tmpfs", probe, "tmpfs", 0, "size=1m"); err != nil {
		t.Logf("a full disk cannot be made here, only a bound on files: %v", err)
		return kinds
	}
	if err := unix.Unmount(probe, 0); err != nil {
		t.Fatal(err)
	}
	kinds["a full disk"] = smallDisk
	return kinds
}

func smallDisk(t *testing.T) disk {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	return disk{
		dir: dir, says: "disk is full",
		fill: func() {
			file, err := os.Create(ballast)
			check(t, err)
			defer func() { _ = file.Close() }()
			for chunk := make([]byte, 4096); err == nil; {
				_, err = file.Write(chunk)
			}
			if !errors.Is(err, unix.ENOSPC) {
				t.Fatalf("filling the disk: %v", err)
			}
		},
		free: func() { check(t, os.Remove(ballast)) },
	}
}

const boundOnFiles = "a bound on files"

// boundFiles is for a process of its own: the bound is on each file that it writes to.
func boundFiles(t *testing.T) disk {
	var was unix.Rlimit
	check(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	free := func() { check(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was)) }
	t.Cleanup(free)
	return disk{
		dir: t.TempDir(), says: "cannot read or write its database", free: free,
		fill: func() { check(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: was.Max})) },
	}
}

// elsewhere runs a test of a bound on files in another process, and says so: this one
// writes to files of its own, such as the one in which go test notes what a test read.
func elsewhere(t *testing.T, kind string) bool {
	t.Helper()
	const here = "CLOOP_TEST_BOUND_ON_FILES"
	if kind != boundOnFiles || os.Getenv(here) != "" {
		return false
	}
	command := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	command.Env = append(os.Environ(), here+"=1")
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()+" ") {
		t.Errorf("in a process of its own: %v\n%s", err, out)
	}
	return true
}

// A hub that nobody asks to change anything finds out by itself.
func TestAnIdleHubOnAFullDiskIsNotReady(t *testing.T) {
	for name, kind := range disks(t) {
		t.Run(name, func(t *testing.T) {
			if elsewhere(t, name) {
				return
			}
			d := kind(t)
			r := serveIn(t, d.dir, func(o *hub.Options) { o.Room = nil })
			r.pool("gpu", 1)
			if page := r.page("/readyz"); page != "ok\n" {
				t.Fatalf("ready as %q", page)
			}
			d.fill()
			r.clock.Step(time.Minute)
			for range 2 {
				if page := r.page("/readyz"); !strings.Contains(page, d.says) {
					t.Errorf("on a full disk it is ready as %q", page)
				}
			}
			d.free()
			r.clock.Step(time.Minute)
			// The first change that goes through is the end of it.
			r.page("/readyz")
			if page := r.page("/readyz"); page != "ok\n" {
				t.Errorf("with room again it is ready as %q", page)
			}
		})
	}
}

func TestAFullDiskStopsChangesOnlyAndLosesNothing(t *testing.T) {
	for name, kind := range disks(t) {
		t.Run(name, func(t *testing.T) {
			if elsewhere(t, name) {
				return
			}
			d := kind(t)
			r := serveIn(t, d.dir, nil)
			pool, controller := r.pool("gpu", 1)
			r.project("app", pool)
			acknowledged := []string{r.run("app").ID}
			d.fill()
			// Smaller and smaller changes, until there is no room for any.
			for _, size := range []int{100 << 10, 10 << 10, 1} {
				body := `{"project":"app","command":["` + strings.Repeat("x", size) + `"]}`
				status, refused := 0, hubv1.Problem{}
				for tries := 0; tries < 200 && (status == 0 || status == 201); tries++ {
					status, refused = r.raw("POST", "/api/v1/runs", body)
				}
				if status != 503 || refused.Code != hubv1.CodeStorageUnavailable || !strings.Contains(refused.Detail, d.says) || refused.Remedy == "" {
					t.Fatalf("answered %d %+v", status, refused)
				}
			}
			// What is there can be read, and the hub says how it stands.
			for _, id := range acknowledged {
				must(t)(r.admin.GetRun(r.ctx(), id))
			}
			must(t)(controller.PoolSnapshot(r.ctx()))
			if page := r.page("/healthz"); page != "ok\n" {
				t.Errorf("it lives as %q", page)
			}
			// Asking is the smallest change of all.
			page := r.page("/readyz")
			for tries := 0; tries < 200 && page == "ok\n"; tries++ {
				page = r.page("/readyz")
			}
			if !strings.Contains(page, d.says) {
				t.Errorf("it is ready as %q", page)
			}
			runs, err := r.admin.ListRuns(r.ctx(), "app", 1000)
			check(t, err)
			for _, run := range runs {
				acknowledged = append(acknowledged, run.ID)
			}
			d.free()
			acknowledged = append(acknowledged, r.run("app").ID)
			r.clock.Step(time.Minute)
			if page := r.page("/readyz"); page != "ok\n" {
				t.Errorf("with room again it is ready as %q", page)
			}
			log := r.log.String()
			if n := strings.Count(log, "changes cannot be written"); n != 1 || strings.Count(log, "changes are written to the database again") != 1 {
				t.Errorf("it is logged %d times:\n%s", n, log)
			}
			r.stop()
			r = serveIn(t, d.dir, nil)
			for _, id := range acknowledged {
				must(t)(r.admin.GetRun(r.ctx(), id))
			}
		})
	}
}

func TestAHubWhoseDatabaseIsMovedSaysSoAndGoesOnOnceItIsBack(t *testing.T) {
	r := serve(t, nil)
	pool, _ := r.pool("gpu", 1)
	r.project("app", pool)
	first := r.run("app").ID
	dir, aside := filepath.Join(r.dir, "hub"), filepath.Join(r.dir, "aside")
	check(t, os.Rename(dir, aside))
	if page := r.page("/readyz"); !strings.Contains(page, "moved, removed or replaced") {
		t.Errorf("it is ready as %q", page)
	}
	status, refused := r.raw("POST", "/api/v1/runs", `{"project":"app","command":["true"]}`)
	if status != 503 || refused.Code != hubv1.CodeStorageUnavailable || !strings.Contains(refused.Remedy, "put the files back") {
		t.Errorf("answered %d %+v", status, refused)
	}
	d, err := r.admin.Doctor(r.ctx())
	check(t, err)
	if f := findingOf(d, hubv1.FindingStorageDatabase); f == nil || f.Severity != hubv1.SeverityFail || !strings.Contains(f.Found, "moved, removed or replaced") {
		t.Errorf("the doctor finds %+v", d.Findings)
	}
	if page := r.page("/metrics"); !strings.Contains(page, "cloop_hub_database_writable 0") || !strings.Contains(page, "cloop_hub_ready 0") {
		t.Error("the metrics say that all is well")
	}
	if log := r.log.String(); strings.Count(log, "changes cannot be written") != 1 || !strings.Contains(log, "RESCUE/hub.db-wal") {
		t.Errorf("it is logged as:\n%s", log)
	}
	check(t, os.Rename(aside, dir))
	second := r.run("app").ID
	r.clock.Step(time.Minute)
	if page := r.page("/readyz"); page != "ok\n" {
		t.Errorf("with its database again it is ready as %q", page)
	}
	r.stop()
	r = serveIn(t, r.dir, nil)
	for _, id := range []string{first, second} {
		must(t)(r.admin.GetRun(r.ctx(), id))
	}
}

// Its clients and its pools know the hub that was there.
func TestAHubIsNotBegunAnewBesideWhatAnotherHasLeft(t *testing.T) {
	r := serve(t, nil)
	r.stop()
	dir, file := filepath.Join(r.dir, "hub"), filepath.Join(r.dir, "hub", "hub.db")
	check(t, os.Rename(file, filepath.Join(r.dir, "aside")))
	storetest.Prepare(t, dir)
	o := hub.Options{Addr: "127.0.0.1:0", DataDir: dir, AdminTokenFile: filepath.Join(r.dir, "other-token")}
	err := hub.Run(r.ctx(), o)
	for _, want := range []string{file, filepath.Join("tls", "ca.crt"), "put it back", "new hub instead"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	if _, err := os.Stat(o.AdminTokenFile); !os.IsNotExist(err) {
		t.Errorf("a first token is written: %v", err)
	}
	check(t, os.Remove(file))
	serveIn(t, r.dir, nil)
}

// The database that it made is in no later start's way.
func TestAHubIsBegunAnewAfterAStartThatFailed(t *testing.T) {
	r := serve(t, nil)
	r.stop()
	dir, file := filepath.Join(r.dir, "hub"), filepath.Join(r.dir, "hub", "hub.db")
	check(t, os.Rename(file, filepath.Join(r.dir, "aside")))
	o := hub.Options{Addr: "127.0.0.1:0", DataDir: dir, AdminTokenFile: filepath.Join(r.dir, "aside", "token")}
	for range 2 {
		if err := hub.Run(r.ctx(), o); err == nil || !strings.Contains(err.Error(), "first admin token") {
			t.Fatalf("without a place for the token: %v", err)
		}
	}
	left, err := filepath.Glob(file + "*")
	check(t, err)
	if len(left) > 0 {
		t.Errorf("%s is left", left)
	}
	serveIn(t, r.dir, nil)
}

// Of SQLite. Beside a note without a journal no hub starts.
func TestAHubThatEndsOnAFullDiskLeavesTheNoteOfWhatItsJournalHas(t *testing.T) {
	for name, kind := range disks(t) {
		t.Run(name, func(t *testing.T) {
			if elsewhere(t, name) {
				return
			}
			d := kind(t)
			r := serveIn(t, d.dir, nil)
			r.pool("gpu", 1)
			d.fill()
			r.stop()
			journal := filepath.Join(d.dir, "hub", "hub.db-wal")
			info, err := os.Stat(journal)
			_, noted := os.Stat(journal + ".of")
			if err == nil && info.Size() > 0 && noted != nil || os.IsNotExist(err) && noted == nil || name == boundOnFiles && err != nil {
				t.Errorf("the journal is %v, %v, its note %v", info, err, noted)
			}
			d.free()
			r = serveIn(t, d.dir, nil)
			if pools := r.page("/readyz"); pools != "ok\n" {
				t.Errorf("with room again it is ready as %q", pools)
			}
		})
	}
}

func TestAHubThatCannotStartSaysWhatToDo(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(dir string)
		want    []string
	}{
		"a damaged database": {
			func(dir string) { check(t, os.WriteFile(filepath.Join(dir, "hub.db"), make([]byte, 8192), 0o600)) },
			[]string{"hub.db", "damaged", "backup"},
		},
		"no database to a journal": {
			func(dir string) { check(t, os.WriteFile(filepath.Join(dir, "hub.db-wal"), []byte("x"), 0o600)) },
			[]string{"hub.db-wal", "damaged", "backup"},
		},
		"a directory where the database is": {
			func(dir string) { check(t, os.Mkdir(filepath.Join(dir, "hub.db"), 0o700)) },
			[]string{"hub.db", "readable and writable"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.prepare(dir)
			err := hub.Run(context.Background(), hub.Options{Addr: "127.0.0.1:0", DataDir: dir, AdminTokenFile: filepath.Join(dir, "token")})
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("%v does not say %q", err, want)
				}
			}
		})
	}
	// Not even root may make a file there.
	err := hub.Run(context.Background(), hub.Options{DataDir: "/sys/kernel"})
	if err == nil || !strings.Contains(err.Error(), "/sys/kernel") || !strings.Contains(err.Error(), "must be writable") {
		t.Errorf("where nothing can be written: %v", err)
	}
}
