package fleet

// Timeouts are the bounds on the dealings with a Git server.
type Timeouts = timeouts

// SetTimeouts shortens them, for a Git that is opened afterwards; it returns
// what undoes it.
func SetTimeouts(t Timeouts) (undo func()) {
	before := limits
	limits = t
	return func() { limits = before }
}
