// Package watchdog removes what a test started when the test binary ends
// without doing so itself: killed, timed out or panicked.
//
// The watchdog is the test binary once more, in a session of its own. It waits
// for its standard input to end, which happens when the binary that started it
// is gone by whatever means, and then cleans up. It never touches anything but
// the directory that it was given.
package watchdog

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// environment makes a copy of the test binary the watchdog of that directory.
const environment = "CLOOP_TEST_WATCHDOG"

// Run turns the process into a watchdog and does not return, if Start started
// it as one; else it does nothing. It comes first in a package's TestMain.
func Run(clean func(dir string) error) {
	dir := os.Getenv(environment)
	if dir == "" {
		return
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		os.Exit(1)
	}
	if err := clean(dir); err != nil {
		os.Exit(1)
	}
	os.Exit(0)
}

// Watchdog watches over one directory.
type Watchdog struct {
	// leash is held open by this process and by nothing else.
	leash   io.Closer
	command *exec.Cmd
}

// Start starts the watchdog of a directory.
func Start(dir string) (*Watchdog, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := exec.Command(self)
	command.Env = append(os.Environ(), environment+"="+dir)
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	leash, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, fmt.Errorf("start the watchdog of %s: %w", dir, err)
	}
	return &Watchdog{leash: leash, command: command}, nil
}

// Release has the watchdog clean up now and waits for it.
func (w *Watchdog) Release() error {
	if err := w.leash.Close(); err != nil {
		return err
	}
	if err := w.command.Wait(); err != nil {
		return fmt.Errorf("the watchdog could not clean up: %w", err)
	}
	return nil
}
