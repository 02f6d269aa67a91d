package store_test

import (
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// born are runners of every state, each made at once, and how to get the token
// of one that has not enrolled.
var born = map[hubv1.RunnerState]func(*testing.T, *world) (id, token string){
	hubv1.RunnerStarting: func(t *testing.T, w *world) (string, string) {
		out, err := w.s.Mint(background, w.credential, "key-one1")
		check(t, err)
		return out.RunnerID, out.Token
	},
	hubv1.RunnerIdle: func(t *testing.T, w *world) (string, string) { return w.runner(t, "key-one1").ID, "" },
	hubv1.RunnerBusy: func(t *testing.T, w *world) (string, string) {
		r, _ := w.busy(t, w.credential, "key-one1")
		return r.ID, ""
	},
	hubv1.RunnerRetiring: func(t *testing.T, w *world) (string, string) {
		r := w.runner(t, "key-one1")
		_, err := w.s.Retire(background, w.credential, r.ID)
		check(t, err)
		return r.ID, ""
	},
	hubv1.RunnerRetired: func(t *testing.T, w *world) (string, string) {
		r := w.runner(t, "key-one1")
		check(t, w.s.Bye(background, r, ""))
		return r.ID, ""
	},
}

// state is where a runner is, by the database itself.
func (w *world) state(t testing.TB, id string) (state hubv1.RunnerState, reason string) {
	t.Helper()
	check(t, looking(t, w.dir).QueryRow("SELECT state, reason FROM runners WHERE id = ?", id).Scan(&state, &reason))
	return state, reason
}

func TestWhatAskingToRetireARunnerDoes(t *testing.T) { both(t, whatAskingToRetireARunnerDoes) }

func whatAskingToRetireARunnerDoes(t *testing.T) {
	for was, want := range map[hubv1.RunnerState]hubv1.RunnerState{
		hubv1.RunnerStarting: hubv1.RunnerRetired,
		hubv1.RunnerIdle:     hubv1.RunnerRetiring,
		hubv1.RunnerBusy:     hubv1.RunnerBusy,
		hubv1.RunnerRetiring: hubv1.RunnerRetiring,
		hubv1.RunnerRetired:  hubv1.RunnerRetired,
	} {
		t.Run(string(was), func(t *testing.T) {
			w := newWorld(t, 2)
			id, token := born[was](t, w)
			for range 2 { // also a request that came twice
				if got, err := w.s.Retire(background, w.credential, id); err != nil || got != want {
					t.Errorf("answered %s %v, want %s", got, err, want)
				}
			}
			if got, _ := w.state(t, id); got != want {
				t.Errorf("it is %s", got)
			}
			if token != "" {
				if _, err := w.s.Enroll(background, hubv1.EnrollRequest{Token: token}); codeOf(err) != hubv1.CodeTokenRefused {
					t.Errorf("its token: %v", err)
				}
			}
		})
	}
}

// Between the controller's look and its request the runner was handed a run.
func TestAnIdleRunnerThatBecameBusyIsNotRetired(t *testing.T) {
	both(t, anIdleRunnerThatBecameBusyIsNotRetired)
}

func anIdleRunnerThatBecameBusyIsNotRetired(t *testing.T) {
	w := newWorld(t, 1)
	r := w.runner(t, "key-one1")
	run := w.run(t)
	if got, err := w.s.Retire(background, w.credential, r.ID); err != nil || got != hubv1.RunnerBusy {
		t.Errorf("answered %s %v", got, err)
	}
	if got := w.get(t, run.ID); got.State != hubv1.RunHanded || got.Runner != r.ID {
		t.Errorf("its run is %s on %q", got.State, got.Runner)
	}
}

// What time does to runners that nobody speaks of: just before it is due nothing,
// then what is due.
func TestTheHubRetiresByItsClock(t *testing.T) { both(t, theHubRetiresByItsClock) }

func theHubRetiresByItsClock(t *testing.T) {
	limits := store.Limits{}.Defaults()
	silent := limits.Lease + limits.Margin
	for name, test := range map[string]struct {
		was   hubv1.RunnerState
		after time.Duration
		// beats says that the runner sends heartbeats all the time.
		beats  bool
		want   hubv1.RunnerState
		reason string
	}{
		"a token that nobody redeems":      {hubv1.RunnerStarting, limits.TokenTTL, false, hubv1.RunnerRetired, "token expired"},
		"an idle runner that falls silent": {hubv1.RunnerIdle, silent, false, hubv1.RunnerRetired, "silent for 50s"},
		"a busy runner that falls silent":  {hubv1.RunnerBusy, silent, false, hubv1.RunnerRetired, "silent for 50s"},
		"an idle runner without a run":     {hubv1.RunnerIdle, limits.IdleRetire, true, hubv1.RunnerRetiring, "waited 15m0s without a run"},
		"one that does not say goodbye":    {hubv1.RunnerRetiring, silent, true, hubv1.RunnerRetired, "did not say goodbye"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1)
			id, _ := born[test.was](t, w)
			begin := w.clock.Now()
			pass := func(until time.Duration) {
				t.Helper()
				for w.clock.Since(begin) < until {
					w.clock.Step(min(limits.Lease/2, until-w.clock.Since(begin)))
					check(t, w.s.Expire(background))
					if test.beats && w.clock.Since(begin) < until {
						_, err := w.s.Heartbeat(background, store.Runner{ID: id, PoolID: w.pool.ID})
						check(t, err)
					}
				}
			}
			pass(test.after - time.Nanosecond)
			if got, reason := w.state(t, id); got != test.was {
				t.Fatalf("before it is due it is %s: %s", got, reason)
			}
			pass(test.after)
			if got, reason := w.state(t, id); got != test.want || !strings.Contains(reason, test.reason) {
				t.Errorf("it is %s: %s", got, reason)
			}
		})
	}
}
