package agent

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/internal/secret"
)

// enrollTimeout bounds one try, so that a connection which hangs does not use
// up the token's life.
const enrollTimeout = 10 * time.Second

// enrolled is what a redeemed token gave.
type enrolled struct {
	id                       string
	session                  secret.String
	at                       moment // when the request was sent
	heartbeat, lease, margin time.Duration
}

// readToken reads the token that enrolls this runner.
func readToken(path string) (secret.String, error) {
	data, err := os.ReadFile(path) //nolint:gosec // the Pod names the file
	if err != nil {
		return secret.String{}, fmt.Errorf("read the runner's token: %w", err)
	}
	token := secret.New(strings.TrimSpace(string(data)))
	if token.Empty() {
		return secret.String{}, fmt.Errorf("read the runner's token: %s is empty", path)
	}
	return token, nil
}

// enroll redeems the token. It tries again while the hub is unavailable, until
// the token has surely expired. The report says why there is no session.
func enroll(ctx context.Context, o Options, h hub, token secret.String) (enrolled, *report) {
	request := hubv1.EnrollRequest{
		Token: token.Reveal(), Name: o.Name, Build: o.Build,
		Features: []string{hubv1.FeatureRunnerStates, hubv1.FeatureRunnerGone, hubv1.FeatureRequirements},
	}
	var backoff hubclient.Backoff
	for began := o.Clock.Now(); ; {
		sent := momentOf(o.Clock)
		tryCtx, cancel := context.WithTimeout(ctx, enrollTimeout)
		answer, err := h.Enroll(tryCtx, request)
		cancel()
		if err == nil {
			return newEnrolled(answer, sent), nil
		}
		if ctx.Err() != nil {
			return enrolled{}, &report{Outcome: OutcomeStopped, Reason: "told to end before the runner was enrolled"}
		}
		if problem, refused := refusal(err); refused {
			return enrolled{}, &report{Outcome: OutcomeRefused, Reason: fmt.Sprintf("the hub refused to enroll the runner: %v", problem)}
		}
		if o.Clock.Since(began) >= o.TokenLife {
			return enrolled{}, &report{
				Outcome: OutcomeUnreachable,
				Reason:  fmt.Sprintf("the hub could not be reached in %s, so the token has expired: %v", o.TokenLife, err),
			}
		}
		pause := backoff.Next()
		o.Log.Warn("enrolling failed, trying again", "runner", o.Name, "pause", pause, "error", err)
		if !retry.Sleep(ctx, o.Clock, pause) {
			return enrolled{}, &report{Outcome: OutcomeStopped, Reason: "told to end before the runner was enrolled"}
		}
	}
}

// Bounds on what the hub says, so that a wrong answer neither floods the hub
// nor disables the fence.
const (
	minHeartbeat = 50 * time.Millisecond
	minLease     = 200 * time.Millisecond
)

func newEnrolled(answer hubv1.EnrollResponse, sent moment) enrolled {
	seconds := func(value float64) time.Duration { return time.Duration(value * float64(time.Second)) }
	e := enrolled{id: answer.RunnerID, session: secret.New(answer.Session), at: sent}
	e.lease = max(seconds(answer.LeaseSeconds), minLease)
	e.heartbeat = min(max(seconds(answer.HeartbeatSeconds), minHeartbeat), e.lease/2)
	e.margin = min(max(seconds(answer.MarginSeconds), 0), e.lease/2)
	return e
}
