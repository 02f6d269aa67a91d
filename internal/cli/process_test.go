package cli_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"cloop.dev/cloop/e2e/cluster/clustertest"
)

// built is the binary that tests and benchmarks of a process run: as `make build`
// makes it, because what a process costs is mostly its binary.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "cloop-cli-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	binary := filepath.Join(dir, "cloop")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", binary, "cloop.dev/cloop/cmd/cloop")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if printed, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, printed)
	}
	return binary, nil
})

// builtIn is the directory that built made; empty until it has.
var builtIn string

func TestMain(m *testing.M) {
	// Whoever runs the tests in a job does not mean the commands that they run.
	_ = os.Unsetenv("CI")
	clustertest.Main(removing{m})
}

// removing runs tests and removes what they built.
type removing struct{ *testing.M }

// Run is testing.M's.
func (r removing) Run() int {
	code := r.M.Run()
	if builtIn != "" {
		_ = os.RemoveAll(builtIn)
	}
	return code
}

// process is what became of a command line that was run as a process of its own.
type process struct {
	printed string
	code    int
	// processor is the time of all processors, which a busy machine changes less
	// than the time that passed.
	processor time.Duration
	// resident is the most memory that it had, in bytes.
	resident int64
}

// runProcess runs the built binary in a directory.
func runProcess(tb testing.TB, dir string, args ...string) process {
	tb.Helper()
	binary, err := built()
	if err != nil {
		tb.Fatal(err)
	}
	command := exec.Command(binary, args...)
	command.Dir = dir
	printed, err := command.CombinedOutput()
	state := command.ProcessState
	if state == nil {
		tb.Fatalf("run %v: %v", args, err)
	}
	return process{
		printed: string(printed), code: state.ExitCode(), processor: state.UserTime() + state.SystemTime(),
		resident: state.SysUsage().(*syscall.Rusage).Maxrss << 10, // Linux counts it in KiB
	}
}
