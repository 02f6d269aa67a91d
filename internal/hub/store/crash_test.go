package store_test

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/postgrestest"
)

const (
	// crashDir and crashURL tell a process of this test to be a hub under load
	// until it is killed.
	crashDir = "CLOOP_STORE_CRASH_DIR"
	crashURL = "CLOOP_STORE_CRASH_URL"
)

// crashAfter is how many acknowledgements a hub lives for, within a range of as
// many.
var crashAfter = 150

// TestMain runs the tests, or the hub that one of them kills.
func TestMain(m *testing.M) {
	if dir, url := os.Getenv(crashDir), os.Getenv(crashURL); dir+url != "" {
		fmt.Printf("ended: %q\n", underLoad(store.Options{Dir: dir, URL: url, Clock: clock.RealClock{}}).Error())
		os.Exit(1)
	}
	postgrestest.Main(m)
}

// underLoad says on standard output what a hub has acknowledged, a line each,
// until something fails.
func underLoad(o store.Options) error {
	s, err := store.Open(background, o)
	if err != nil {
		return err
	}
	pool, _, err := s.GetPool(background, "gpu")
	if err != nil {
		return err
	}
	made, err := s.CreateCredential(background, admin, "", pool.ID)
	if err != nil {
		return err
	}
	credential, err := s.AuthPool(background, made.Secret)
	if err != nil {
		return err
	}
	failed := make(chan error)
	go func() {
		for i := 0; ; i++ {
			if err := onePool(s, fmt.Sprintf("p-%d-%d", os.Getpid(), i)); err != nil {
				failed <- err
				return
			}
		}
	}()
	for worker := range 6 {
		go func() {
			for i := 0; ; i++ {
				if err := oneLife(s, credential, fmt.Sprintf("%d-%d-%06d", os.Getpid(), worker, i)); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

// onePool is what people do to a pool from its beginning to its end.
func onePool(s *store.Store, name string) error {
	if _, err := s.CreatePool(background, admin, store.Key(name), hubv1.CreatePoolRequest{Name: name, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}}); err != nil {
		return err
	}
	fmt.Println(store.ActionPoolCreate, name)
	most := int32(7)
	if _, err := s.UpdatePool(background, admin, name, 0, hubv1.UpdatePoolRequest{MaxRunners: &most}); err != nil {
		return err
	}
	fmt.Println(store.ActionPoolUpdate, name)
	made, err := s.CreateCredential(background, admin, "", name)
	if err != nil {
		return err
	}
	fmt.Println(store.ActionCredentialCreate, made.ID)
	if _, err := s.Cordon(background, admin, name, "crash"); err != nil {
		return err
	}
	fmt.Println(store.ActionPoolCordon, name)
	if _, err := s.RevokePool(background, admin, name); err != nil {
		return err
	}
	fmt.Println(store.ActionPoolRevoke, name)
	return nil
}

// keeps says whether the database has a change that was acknowledged, with its audit row.
func keeps(t *testing.T, s *store.Store, db looker, action, object string) {
	t.Helper()
	count := func(query string, arguments ...any) (n int) {
		check(t, db.QueryRow(db.bind(query), arguments...).Scan(&n))
		return n
	}
	kept := true
	switch action {
	case store.ActionRunnerMint:
		kept = count("SELECT COUNT(*) FROM runners WHERE id = ?", object) == 1
	case store.ActionCredentialCreate:
		kept = count("SELECT COUNT(*) FROM credentials WHERE id = ?", object) == 1
	default:
		pool, _, err := s.GetPool(background, object)
		check(t, err)
		switch action {
		case store.ActionPoolUpdate:
			kept = pool.MaxRunners == 7
		case store.ActionPoolCordon:
			kept = pool.Cordon != nil || pool.State == hubv1.PoolRevoked
		case store.ActionPoolRevoke:
			kept = pool.State == hubv1.PoolRevoked
		}
	}
	if !kept {
		t.Errorf("%s of %s was acknowledged and is lost", action, object)
	}
	if rows := count("SELECT COUNT(*) FROM audit WHERE action = ? AND (pool = ? OR object = ?)", action, object, object); rows == 0 {
		t.Errorf("%s of %s was acknowledged and has no audit row", action, object)
	}
}

// oneLife queues a run, and lets a runner execute what it is handed.
func oneLife(s *store.Store, c store.Credential, key string) error {
	run, err := s.StartRun(background, admin, store.Key(key), hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, store.Source{})
	if err != nil {
		return err
	}
	fmt.Println("queued", run.ID)
	minted, err := s.Mint(background, c, "key-"+key)
	if err != nil {
		return err
	}
	fmt.Println(store.ActionRunnerMint, minted.RunnerID)
	enrolled, err := s.Enroll(background, hubv1.EnrollRequest{Token: minted.Token})
	if err != nil {
		return err
	}
	r, err := s.AuthRunner(background, enrolled.Session)
	if err != nil {
		return err
	}
	detach, err := s.Attach(background, r)
	if err != nil {
		return err
	}
	defer detach()
	snapshot, err := s.RunnerSnapshot(background, r)
	if err != nil || snapshot.Run == nil {
		return err
	}
	id, attempt := snapshot.Run.RunID, snapshot.Run.Attempt
	if err := s.Started(background, r, id, hubv1.StartedRequest{Attempt: attempt, StartedAt: s.Now()}); err != nil {
		return err
	}
	if _, err := s.AppendLog(background, r, id, 0, []byte("hello\n")); err != nil {
		return err
	}
	fmt.Println("logged", id)
	exit := int32(0)
	if err := s.Result(background, r, id, hubv1.ResultRequest{Attempt: attempt, ExitCode: &exit}); err != nil {
		return err
	}
	fmt.Println("settled", id)
	return s.Bye(background, r, "")
}

// killed runs a hub under load, ends it after so many acknowledgements as end
// says, and returns them.
func killed(t *testing.T, o store.Options, after int, end func(*exec.Cmd)) (acknowledged []string) {
	t.Helper()
	self, err := os.Executable()
	check(t, err)
	hub := exec.Command(self)
	hub.Env = append(os.Environ(), crashDir+"="+o.Dir, crashURL+"="+o.URL)
	hub.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := hub.StdoutPipe()
	check(t, err)
	check(t, hub.Start())
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if line := lines.Text(); strings.HasPrefix(line, "ended:") && len(acknowledged) < after {
			t.Fatalf("the hub %s", line)
		}
		if acknowledged = append(acknowledged, lines.Text()); len(acknowledged) == after {
			end(hub)
		}
	}
	_ = hub.Wait() // it was killed
	return acknowledged
}

func TestAHubThatIsKilledLosesNothing(t *testing.T) { both(t, testAHubThatIsKilledLosesNothing) }

func testAHubThatIsKilledLosesNothing(t *testing.T) {
	o := store.Options{Dir: t.TempDir()}
	ends := []func(*exec.Cmd){func(hub *exec.Cmd) { _ = hub.Process.Kill() }}
	if onPostgres(t) {
		server, err := postgrestest.Start(postgrestest.ServerOptions{})
		check(t, err)
		t.Cleanup(server.Stop)
		o = store.Options{URL: server.URL("postgres")}
		ends = append(ends, func(*exec.Cmd) {
			server.Crash() // the hub notices, and ends by itself
			check(t, server.Up())
		})
	}
	o.Clock = clock.RealClock{}
	w := &world{}
	var err error
	w.s, err = store.Open(background, o)
	check(t, err)
	w.furnish(t, 1000)
	check(t, w.s.Close())
	var acknowledged []string
	for round := range 3 {
		after := 20 + rand.IntN(crashAfter)
		acknowledged = append(acknowledged, killed(t, o, after, ends[round%len(ends)])...)
		w.s, err = store.Open(background, o)
		check(t, err)
		db, err := look(o)
		check(t, err)
		consistent(t, func(query string) (n int) {
			check(t, db.QueryRow(query).Scan(&n))
			return n
		})
		for _, line := range acknowledged {
			what, id, _ := strings.Cut(line, " ")
			switch {
			case what == "ended:":
				continue
			case strings.HasPrefix(what, "executor_pool."):
				keeps(t, w.s, db, what, id)
				continue
			}
			switch run := w.get(t, id); {
			case what == "settled" && run.State != hubv1.RunSucceeded, what == "logged" && run.LogBytes == 0:
				t.Errorf("after %d acknowledgements run %s, which was %s, is %+v", after, id, what, run)
			}
		}
		check(t, db.Close())
		check(t, w.s.Close())
	}
	t.Logf("%d changes were acknowledged", len(acknowledged))
}
