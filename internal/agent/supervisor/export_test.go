package supervisor

import "time"

// PID is the supervising process's.
func PID(s *Supervisor) int { return s.command.Process.Pid }

// Hold keeps every message to the supervising process back, as a stop of this
// one between two instructions does, until the returned function is called.
func Hold(s *Supervisor) (release func()) {
	s.sending.Lock()
	return s.sending.Unlock
}

// SetPatience bounds the waits for the supervising process.
func SetPatience(s *Supervisor, d time.Duration) { s.patience = d }
