package controllers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

const (
	// laneWidth is how many may be at one hub at once: as many as there were workers
	// when all of them were for one hub.
	laneWidth = 4
	// lanePatience is how long who waits for a place goes without hearing of any answer
	// until the hub counts as silent: longer than a hub takes that is only slow.
	lanePatience = 2 * time.Second
	// hubWorkers of a controller: more than a few hubs hold that answer nothing, of which
	// each has laneWidth at first and then one.
	hubWorkers = 16
)

// errSilent is what becomes of a request to a hub that others wait for in vain. It has
// no time in it: a status that quotes it stays as it is.
var errSilent = fmt.Errorf("%w: it has not answered what it was asked before, and is asked one thing at a time until it does: check the hub, and what stands before it", hubclient.ErrUnavailable)

// hubLane keeps a hub that answers nothing from holding every worker of a controller:
// few are there at once, and one where it is not known to answer.
type hubLane struct {
	patience time.Duration

	mu sync.Mutex // guards what follows
	// inside are at the hub, of at most width.
	inside, width int
	// silent: who finds no place does not wait for one.
	silent bool
	// stirred is closed, and replaced, whenever a request has ended.
	stirred chan struct{}
}

func newHubLane() *hubLane {
	return &hubLane{patience: lanePatience, width: 1, stirred: make(chan struct{})}
}

// enter waits for a place, as long as the hub answers others.
func (l *hubLane) enter(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for l.inside >= l.width {
		if l.silent {
			return errSilent
		}
		if err := l.await(ctx, l.stirred); err != nil {
			return err
		}
	}
	l.inside++
	return nil
}

// await waits, without the lock, until a request ends. The hub is silent if none does.
func (l *hubLane) await(ctx context.Context, stirred <-chan struct{}) error {
	l.mu.Unlock()
	defer l.mu.Lock()
	waited := time.NewTimer(l.patience)
	defer waited.Stop()
	select {
	case <-stirred:
	case <-ctx.Done():
		return fmt.Errorf("wait for the hub to answer others: %w", ctx.Err())
	case <-waited.C:
		l.mu.Lock()
		l.silent = l.silent || stirred == l.stirred
		l.mu.Unlock()
	}
	return nil
}

// leave gives the place back, with what came of the request.
func (l *hubLane) leave(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inside--
	l.learn(err)
}

// heard takes in what came of a request of somebody who stays.
func (l *hubLane) heard(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.learn(err)
}

// learn wakes who waits. Of a connection that was not made, or a request that was not
// sent, nothing is learnt.
func (l *hubLane) learn(err error) {
	switch {
	case unanswered(err):
		l.silent, l.width = true, 1
	case err == nil, isProblem(err):
		l.silent, l.width = false, laneWidth
	}
	close(l.stirred)
	l.stirred = make(chan struct{})
}

// unanswered says of a request that it was waited for in vain.
func unanswered(err error) bool {
	var late interface{ Timeout() bool }
	return errors.Is(err, errSilent) || errors.Is(err, hubclient.ErrUnavailable) && errors.As(err, &late) && late.Timeout()
}

func isProblem(err error) bool {
	var problem *hubv1.Problem
	return errors.As(err, &problem)
}

// hubVisit is what one pass asks of a hub: it takes one place for all of its requests,
// at the first, and asks no more once one of them went unanswered.
type hubVisit struct {
	lane *hubLane

	mu sync.Mutex // guards what follows
	// come: it has tried to enter; inside: it has.
	come, inside bool
	// failed is why nothing more is asked.
	failed error
	// last came of a request.
	last error
}

// enter is hubLane's, once.
func (v *hubVisit) enter(ctx context.Context) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.come {
		v.failed = v.lane.enter(ctx)
		v.come, v.inside = true, v.failed == nil
	}
	return v.failed
}

// heard takes in what came of a request.
func (v *hubVisit) heard(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.last = err; unanswered(err) {
		v.failed = errSilent
	}
	v.lane.heard(err)
}

// end gives the place back.
func (v *hubVisit) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.inside {
		v.lane.leave(v.last)
	}
}
