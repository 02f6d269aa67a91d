package controllers

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// arrivals are the events that are received side by side, in the order in which they
// began. Nothing is known of an event before all of it is there, and anybody can begin
// one and send no more: so a new one is never turned away, but takes the place of the
// one that has been arriving for longest. A forge sends its events in an instant.
type arrivals struct {
	most int

	mu  sync.Mutex // guards all
	all []*arrival
}

// arrival is the body of one.
type arrival struct {
	io.ReadCloser
	// out says that another took its place.
	out atomic.Bool
	// stop ends a read that waits, and end says that there will be none.
	stop, end func()
}

// errOut is an event that took longer to arrive than so many after it.
var errOut = errors.New("other events came in faster")

// Read is io.Reader's.
func (a *arrival) Read(p []byte) (int, error) {
	if a.out.Load() {
		return 0, errOut
	}
	n, err := a.ReadCloser.Read(p)
	switch {
	case errors.Is(err, io.EOF):
		a.end() // stopped from here on, what is done for it would break off
	case err != nil && a.out.Load():
		err = errOut
	}
	return n, err
}

// begin has the request's body arrive, until all of it is there or end is called.
func (l *arrivals) begin(w http.ResponseWriter, req *http.Request) (end func()) {
	a := &arrival{ReadCloser: req.Body, stop: func() {
		// It is in the past. Where it cannot be set the read ends with its own deadline.
		_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
	}}
	a.end = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if at := slices.Index(l.all, a); at >= 0 {
			l.all = slices.Delete(l.all, at, at+1)
		}
	}
	req.Body = a
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) >= l.most {
		l.all[0].out.Store(true)
		l.all[0].stop()
		l.all = slices.Delete(l.all, 0, 1)
	}
	l.all = append(l.all, a)
	return a.end
}
