package hub

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"

	"cloop.dev/cloop/internal/hub/doctor"
	"cloop.dev/cloop/internal/hub/store"
)

// readiness is whether the hub can serve: its database answers and takes
// changes, and it is not about to stop. What Git says has no part in it: a hub
// whose syncs fail serves as well as before.
type readiness struct {
	store *store.Store
	// disk is what the database's disk has; nil where that is another machine's.
	disk     func() doctor.Disk
	stopping atomic.Bool
}

var (
	errStopping = errors.New("the hub is stopping")
	errFull     = errors.New("the hub's disk is full, so it can change nothing")
)

// leastRoom is what changes need of a disk, in bytes. Small ones may still go
// through with less, in the room that the database has already, and the next one
// not.
const leastRoom = 64 << 10

// check says why the hub cannot serve; nil where it can.
func (r *readiness) check(ctx context.Context) error {
	if r.stopping.Load() {
		return errStopping
	}
	if r.disk != nil {
		if disk := r.disk(); disk.Total > 0 && disk.Free < leastRoom {
			return errFull
		}
	}
	err := r.store.Ping(ctx)
	if trouble := store.Trouble(err); trouble != nil {
		return errors.New(trouble.Detail)
	}
	if err != nil {
		return errors.New("the database does not answer")
	}
	return nil
}

// ServeHTTP answers whoever sends requests here or elsewhere.
func (r *readiness) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	if err := r.check(request.Context()); err != nil {
		plain(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	plain(w, http.StatusOK, "ok")
}

func plain(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	// A prober that went away needs no answer.
	_, _ = w.Write([]byte(text + "\n"))
}
