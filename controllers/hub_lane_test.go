package controllers

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// errInVain is a request that a client gave up.
var errInVain = fmt.Errorf("%w: %w", hubclient.ErrUnavailable, context.DeadlineExceeded)

func (l *hubLane) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inside
}

// A hub that answers is asked by as many at once as before, and all of them come to it.
func TestALaneLetsEachInWhileTheHubAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newHubLane()
		const each, answer = 400, lanePatience - time.Millisecond
		began := time.Now()
		errs := make(chan error, each)
		for range each {
			go func() {
				err := l.enter(t.Context())
				if err == nil {
					time.Sleep(answer)
					l.leave(nil)
				}
				errs <- err
			}()
		}
		for range each {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}
		// The first goes alone: nobody knew that the hub answers.
		if took, want := time.Since(began), answer+(each-1+laneWidth-1)/laneWidth*answer; took != want {
			t.Errorf("it took %s, want %s", took, want)
		}
	})
}

func TestASilentHubHoldsOneOfThoseThatAskIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newHubLane()
		if err := l.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for range 100 {
			if err := l.enter(t.Context()); !errors.Is(err, errSilent) {
				t.Fatalf("the second to come got %v", err)
			}
		}
		// The first of them has waited for all.
		if took := time.Since(began); took != lanePatience {
			t.Errorf("the others were held for %s", took)
		}
		// One that is given up is followed by one.
		l.leave(errInVain)
		if err := l.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := l.enter(t.Context()); !errors.Is(err, errSilent) {
			t.Fatalf("beside the next came %v", err)
		}
		// An answer, a refusal too, opens the lane.
		l.leave(&hubv1.Problem{Status: 403, Code: hubv1.CodeForbidden})
		for range laneWidth {
			if err := l.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if n := l.count(); n != laneWidth {
			t.Errorf("%d are at the hub", n)
		}
	})
}

// A connection that cannot be made says nothing of whether the hub answers.
func TestAHubThatIsDownIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newHubLane()
		for range 100 {
			if err := l.enter(t.Context()); err != nil {
				t.Fatal(err)
			}
			l.leave(fmt.Errorf("%w: connection refused", hubclient.ErrUnavailable))
		}
	})
}

func TestAWaitForASilentHubEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newHubLane()
		if err := l.enter(t.Context()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), lanePatience/2)
		defer cancel()
		if err := l.enter(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it got %v", err)
		}
	})
}

// A pass waits once for a hub that does not answer it, whatever it has to ask.
func TestAVisitAsksNothingMoreOfASilentHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newHubLane()
		asked := 0
		visit := func() error {
			v := &hubVisit{lane: l}
			defer v.end()
			for range 100 {
				if err := v.enter(t.Context()); err != nil {
					return err
				}
				asked++
				v.heard(errInVain)
			}
			return nil
		}
		if err := visit(); !errors.Is(err, errSilent) || asked != 1 || l.count() != 0 {
			t.Errorf("after %d requests: %v, and %d are inside", asked, err, l.count())
		}
	})
}

// A pass that goes on for long, with a hub that answers, keeps nobody from it.
func TestALongVisitIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newHubLane()
		l.width = laneWidth
		for range laneWidth {
			go func() {
				v := &hubVisit{lane: l}
				defer v.end()
				for range 100 {
					if err := v.enter(t.Context()); err != nil {
						t.Error(err)
						return
					}
					time.Sleep(time.Second)
					v.heard(nil)
				}
			}()
		}
		synctest.Wait()
		if err := l.enter(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
