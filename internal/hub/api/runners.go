package api

import (
	"context"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

func (s *server) runners() {
	register(s, status(op(http.MethodPost, enrollPath, "enroll", "Redeem a runner token"), http.StatusCreated),
		func(ctx context.Context, in *struct{ Body hubv1.EnrollRequest }) (*body[hubv1.EnrollResponse], error) {
			if err := reported("the runner is not valid", [2]string{"body.name", in.Body.Name}, [2]string{"body.build", in.Body.Build},
				[2]string{"body.features", strings.Join(in.Body.Features, ",")}); err != nil {
				return nil, err
			}
			out, err := s.Store.Enroll(ctx, in.Body)
			if err != nil {
				from, _ := ctx.Value(address{}).(string)
				err = s.failed(from, err)
				if p, refused := asProblem(err); refused && p.Code == hubv1.CodeTokenRefused {
					s.Log.Warn("remote: connect rejected", "reason", p.Detail, "address", from)
				}
				return nil, err
			}
			out.HeartbeatSeconds = s.HeartbeatInterval.Seconds()
			out.LeaseSeconds = s.Store.Limits.Lease.Seconds()
			out.MarginSeconds = s.Store.Limits.Margin.Seconds()
			return answer(out, err)
		})
	register(s, watchOp[hubv1.RunnerSnapshot](s, runnerBase+"/watch", "runner-watch", "Wait for a run, and for its cancellation"), s.runnerWatch)
	register(s, op(http.MethodPost, runnerBase+"/heartbeat", "heartbeat", "Renew the lease"),
		func(ctx context.Context, _ *struct{}) (*body[hubv1.HeartbeatResponse], error) {
			state, err := s.Store.Heartbeat(ctx, runnerOf(ctx))
			return answer(hubv1.HeartbeatResponse{State: state}, err)
		})
	register(s, status(op(http.MethodPost, runnerBase+"/runs/{run}/started", "run-started", "Say that the command has started"), http.StatusNoContent),
		func(ctx context.Context, in *struct {
			RunPath
			Body hubv1.StartedRequest
		}) (*struct{}, error) {
			return nil, s.Store.Started(ctx, runnerOf(ctx), in.Run, in.Body)
		})
	logs := op(http.MethodPost, runnerBase+"/runs/{run}/logs", "append-log", "Append to the run's log")
	logs.MaxBodyBytes = maxLogChunk + 1
	register(s, logs,
		func(ctx context.Context, in *struct {
			RunPath
			Offset  int64  `query:"offset" minimum:"0" required:"true"`
			RawBody []byte `contentType:"application/octet-stream"`
		}) (*body[hubv1.LogResponse], error) {
			next, err := s.Store.AppendLog(ctx, runnerOf(ctx), in.Run, in.Offset, in.RawBody)
			return answer(hubv1.LogResponse{Offset: next}, err)
		})
	register(s, status(op(http.MethodPost, runnerBase+"/runs/{run}/result", "run-result", "Settle the run"), http.StatusNoContent),
		func(ctx context.Context, in *struct {
			RunPath
			Body hubv1.ResultRequest
		}) (*struct{}, error) {
			in.Body.Error = secret.Redact(in.Body.Error)
			return nil, s.Store.Result(ctx, runnerOf(ctx), in.Run, in.Body)
		})
	register(s, status(op(http.MethodPost, runnerBase+"/bye", "bye", "The runner's last word"), http.StatusNoContent),
		func(ctx context.Context, in *struct{ Body hubv1.ByeRequest }) (*struct{}, error) {
			return nil, s.Store.Bye(ctx, runnerOf(ctx), secret.Redact(in.Body.Reason))
		})
}

func (s *server) runnerWatch(ctx context.Context, _ *struct{}) (*huma.StreamResponse, error) {
	r := runnerOf(ctx)
	detach, err := s.Store.Attach(ctx, r)
	if err != nil {
		return nil, err
	}
	return stream(ctx, s, feed[hubv1.RunnerSnapshot]{
		topics: []string{store.RunnerTopic(r.ID)},
		read: func(ctx context.Context) (snapshot[hubv1.RunnerSnapshot], error) {
			now, err := s.Store.RunnerSnapshot(ctx, r)
			return snapshot[hubv1.RunnerSnapshot]{value: now, id: now.Revision, last: now.State == hubv1.RunnerRetired}, err
		},
		done: detach,
	})
}
