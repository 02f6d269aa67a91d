package supervisor

import "time"

// PID is the supervising process's.
func PID(s *Supervisor) int { return s.command.Process.Pid }

// SetPatience bounds the waits for the supervising process.
func SetPatience(s *Supervisor, d time.Duration) { s.patience = d }
