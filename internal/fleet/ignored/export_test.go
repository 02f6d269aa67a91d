package ignored

// SetMaxWork sets the bound until the function that it returns is called.
func SetMaxWork(most int64) (restore func()) {
	was := maxWork
	maxWork = most
	return func() { maxWork = was }
}
