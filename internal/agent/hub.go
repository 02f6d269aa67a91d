package agent

import (
	"context"
	"errors"
	"iter"
	"net/http"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/secret"
)

// hub is what the runner needs of the hub before it has a session.
type hub interface {
	Enroll(context.Context, hubv1.EnrollRequest) (hubv1.EnrollResponse, error)
	// Session goes on with the credential that enrolling gave.
	Session(secret.String) session
}

// session is what the runner needs of the hub afterwards. *hubclient.Client
// has it.
type session interface {
	RunnerWatch(context.Context) iter.Seq2[hubv1.RunnerSnapshot, error]
	Heartbeat(context.Context) (hubv1.HeartbeatResponse, error)
	RunStarted(ctx context.Context, run string, request hubv1.StartedRequest) error
	AppendLog(ctx context.Context, run string, offset int64, data []byte) (int64, error)
	RunResult(ctx context.Context, run string, request hubv1.ResultRequest) error
	Bye(ctx context.Context, reason string) error
}

type remoteHub struct{ *hubclient.Client }

func (h remoteHub) Session(token secret.String) session { return h.WithToken(token) }

// refusal is the hub's own no: not an answer that never came, and not one that
// may be different in a moment.
func refusal(err error) (*hubv1.Problem, bool) {
	var problem *hubv1.Problem
	if !errors.As(err, &problem) || errors.Is(err, hubclient.ErrUnavailable) ||
		problem.Status >= 500 || problem.Status == http.StatusTooManyRequests || problem.Status == http.StatusRequestTimeout {
		return nil, false
	}
	return problem, true
}

// sessionEnded says that the hub knows this runner no more.
func sessionEnded(err error) bool {
	problem, refused := refusal(err)
	return refused && (problem.Status == http.StatusUnauthorized || problem.Code == hubv1.CodeRunnerRetired)
}
