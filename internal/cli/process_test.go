package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
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
	// resident is the most memory that it had, in bytes, as it was last looked at.
	resident int64
}

// looks is how often a process is looked at.
const looks = 10 * time.Millisecond

// highWater is the most memory that a process has had so far, in bytes; 0: it is
// gone. What the system tells in the end begins with the memory of the process that
// started it.
func highWater(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	var kib int64
	if _, rest, ok := strings.Cut(string(status), "VmHWM:"); ok {
		_, _ = fmt.Sscan(rest, &kib)
	}
	return kib << 10
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
	var printed bytes.Buffer
	command.Stdout, command.Stderr = &printed, &printed
	if err := command.Start(); err != nil {
		tb.Fatalf("run %v: %v", args, err)
	}
	ended := make(chan error, 1)
	go func() { ended <- command.Wait() }()
	tick := time.NewTicker(looks)
	defer tick.Stop()
	resident := int64(0)
	for {
		select {
		case <-tick.C:
			resident = max(resident, highWater(command.Process.Pid))
			continue
		case err := <-ended:
			state := command.ProcessState
			if state == nil {
				tb.Fatalf("run %v: %v", args, err)
			}
			return process{printed: printed.String(), code: state.ExitCode(), processor: state.UserTime() + state.SystemTime(), resident: resident}
		}
	}
}
