package supervisor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Instant is a point in time in nanoseconds since the machine's boot, on the
// clock that all its processes share, that nobody sets, and that goes on while
// the machine sleeps. A message that names one means the same however long it
// takes. The zero Instant stands for never.
type Instant int64

// Now is the present Instant.
func Now() Instant {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("read the clock since boot: %v", err)) // Linux has it since 2.6.39
	}
	return Instant(t.Nano())
}

// Add is the Instant d later.
func (i Instant) Add(d time.Duration) Instant { return i + Instant(d) }

// Sub is how long after other it is.
func (i Instant) Sub(other Instant) time.Duration { return time.Duration(i - other) }

// alarm tells when an Instant has come. One goroutine uses it.
type alarm struct {
	// C gets a value when the alarm has rung. It may be one of an Instant that
	// has been replaced meanwhile: ask due.
	C    chan struct{}
	file *os.File
	at   Instant
}

// newAlarm is an alarm that is not set. The kernel's timer, unlike the
// language's, goes on while the machine sleeps.
func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make the timer of the run's lease: %w", err)
	}
	a := &alarm{C: make(chan struct{}), file: os.NewFile(uintptr(fd), "lease")}
	go a.listen()
	return a, nil
}

// listen ends with the process.
func (a *alarm) listen() {
	var rung [8]byte
	for {
		if _, err := io.ReadFull(a.file, rung[:]); err != nil {
			return
		}
		if binary.NativeEndian.Uint64(rung[:]) > 0 {
			a.C <- struct{}{}
		}
	}
}

// extend moves the alarm to a later Instant; never backwards, because a message
// may be older than one that was acted on.
func (a *alarm) extend(to Instant) error {
	if to <= a.at {
		return nil
	}
	raw, err := a.file.SyscallConn()
	if err != nil {
		return err
	}
	a.at = to
	var failure error
	err = raw.Control(func(fd uintptr) {
		failure = unix.TimerfdSettime(int(fd), unix.TFD_TIMER_ABSTIME, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(to))}, nil)
	})
	if err = errors.Join(err, failure); err != nil {
		return fmt.Errorf("set the timer of the run's lease: %w", err)
	}
	return nil
}

// due says that the alarm is set and its time has come.
func (a *alarm) due() bool { return a.at != 0 && Now() >= a.at }
