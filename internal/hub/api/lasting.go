package api

import "net/http"

// lasting serves what may go on for long, so that it holds little of the hub
// while it waits: thousands of streams are open at a time, and each keeps the
// stack that its goroutine ever needed. What comes before a stream is served on a
// goroutine of its own, which ends; the stream then runs with nothing below it.
func lasting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &lastingAnswer{ResponseWriter: w}
		apart(func() { next.ServeHTTP(a, r) })
		if a.rest != nil {
			a.rest()
		}
	})
}

// lastingAnswer is an answer of which a part may follow once its operation has
// returned.
type lastingAnswer struct {
	http.ResponseWriter
	rest func()
}

// Unwrap lets http.ResponseController reach the connection.
func (a *lastingAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

// last makes rest follow when the operation has returned.
func last(w http.ResponseWriter, rest func()) { w.(*lastingAnswer).rest = rest }

// apart does something on a goroutine of its own, panics included: what it needs
// of stack is not this goroutine's to keep.
func apart(do func()) {
	done := make(chan any, 1)
	go func() {
		whole := false
		defer func() {
			if !whole {
				done <- recover()
			}
			close(done)
		}()
		do()
		whole = true
	}()
	if fault, broke := <-done; broke {
		panic(fault)
	}
}
