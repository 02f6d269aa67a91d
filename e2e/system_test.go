package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"cloop.dev/cloop/e2e/watchdog"
	"cloop.dev/cloop/internal/dev"
	"cloop.dev/cloop/internal/postgrestest"
)

// binary builds cloop once for all tests of the package.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cloop-e2e-")
	if err != nil {
		return "", err
	}
	name := filepath.Join(dir, "cloop")
	// As `make build` builds it, so that its memory is what people get. The
	// race detector alone needs cgo.
	arguments := []string{"build", "-o", name, "-ldflags=-s -w"}
	env := os.Environ()
	if raceDetector {
		arguments = append(arguments, "-race")
	} else {
		env = append(env, "CGO_ENABLED=0")
	}
	command := exec.Command("go", append(arguments, "../cmd/cloop")...)
	command.Env = env
	if printed, err := command.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build cloop: %w: %s", err, printed)
	}
	return name, nil
})

func TestMain(m *testing.M) {
	watchdog.Run(func(dir string) error { return dev.Down(context.Background(), dir) })
	postgrestest.Main(tests{m})
}

// tests removes the binary behind them.
type tests struct{ *testing.M }

func (m tests) Run() int {
	code := m.M.Run()
	if name, err := binary(); err == nil {
		_ = os.RemoveAll(filepath.Dir(name))
	}
	return code
}

// up brings a system up for one test and takes it down after it, checking
// that no part saw a data race and that down leaves nothing.
func up(t testing.TB, change ...func(*dev.Options)) *dev.System {
	t.Helper()
	executable, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "a system")
	options := dev.Options{Dir: dir, Executable: executable, Progress: testWriter{t}}
	for _, c := range change {
		c(&options)
	}
	guard, err := watchdog.Start(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		checkLogs(t, dir)
		if err := dev.Down(context.Background(), dir); err != nil {
			t.Errorf("take the system down: %v", err)
		}
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("down left %s behind: %v", dir, err)
		}
		if err := guard.Release(); err != nil {
			t.Error(err)
		}
	})
	began := time.Now()
	system, err := dev.Up(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("up after %v", time.Since(began).Round(time.Millisecond))
	return system
}

// checkLogs reads what every part wrote: no data race, no panic and nothing
// that looks like a credential. When the test failed it shows the ends.
func checkLogs(t testing.TB, dir string) {
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(dir, "logs", "*.log"))
	if err != nil || len(logs) == 0 {
		t.Errorf("no part wrote a log: %v", err)
	}
	for _, log := range logs {
		content, err := os.ReadFile(log)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, bad := range []string{"WARNING: DATA RACE", "panic: ", "cloop_pool1_", "cloop_run1_", "cloop_ses1_", "cloop_adm1_", "cloop_usr1_"} {
			if at := bytes.Index(content, []byte(bad)); at >= 0 {
				t.Errorf("%s has %q: %s", filepath.Base(log), bad, excerpt(content, at))
			}
		}
		if t.Failed() {
			t.Logf("the end of %s:\n%s", filepath.Base(log), content[max(0, len(content)-6000):])
		}
	}
}

func excerpt(content []byte, at int) string {
	return string(content[max(0, at-200):min(len(content), at+3000)])
}

// log tells each step of a story in the test's log.
func log(t testing.TB) func(dev.Result) {
	return func(result dev.Result) {
		var b strings.Builder
		fmt.Fprintf(&b, "%s (%d ms)", result.Step, result.Took.Milliseconds())
		for _, moment := range result.Moments {
			fmt.Fprintf(&b, "\n  %5d ms  %s", moment.After.Milliseconds(), moment.What)
		}
		t.Log(b.String())
	}
}

// testWriter shows progress in the test's log.
type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Log(strings.TrimRight(string(p), "\n"))
	return len(p), nil
}
