package api

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

const (
	// contactEvery is how often an open watch is written down as contact, for a
	// hub that is killed before the watch closes: the last contact that it then
	// knows is at most this old.
	contactEvery = 10 * time.Minute
	// leaveTimeout bounds the writing down of a watch that has closed.
	leaveTimeout = 5 * time.Second
)

// RunnerPath names a runner.
type RunnerPath struct {
	Runner string `path:"runner" minLength:"1" maxLength:"128"`
}

func (s *server) controllers() {
	register(s, watchOp[hubv1.PoolSnapshot](s, poolBase+"/watch", "controller-watch", "Watch the credential's pool"), s.controllerWatch)
	register(s, op(http.MethodGet, poolBase+"/snapshot", "controller-snapshot", "Show the credential's pool"),
		func(ctx context.Context, _ *struct{}) (*body[hubv1.PoolSnapshot], error) {
			return answer(s.Store.PoolSnapshot(ctx, credentialOf(ctx)))
		})
	register(s, status(op(http.MethodPost, poolBase+"/runners", "mint-runner", "Mint a runner token"), http.StatusCreated),
		func(ctx context.Context, in *struct{ Body hubv1.MintRequest }) (*body[hubv1.MintResponse], error) {
			return answer(s.Store.MintHolding(ctx, credentialOf(ctx), in.Body))
		})
	register(s, op(http.MethodPost, poolBase+"/runners/{runner}/retire", "retire-runner", "Retire a runner unless it is busy"),
		func(ctx context.Context, in *RunnerPath) (*body[hubv1.RetireResponse], error) {
			state, err := s.Store.Retire(ctx, credentialOf(ctx), in.Runner)
			return answer(hubv1.RetireResponse{State: state}, err)
		})
	register(s, op(http.MethodPost, poolBase+"/runners/{runner}/gone", "runner-gone", "Report that a runner's Pod has ended"),
		func(ctx context.Context, in *struct {
			RunnerPath
			Body hubv1.GoneRequest
		}) (*body[hubv1.RetireResponse], error) {
			in.Body.Reason, in.Body.Message = secret.Redact(in.Body.Reason), secret.Redact(in.Body.Message)
			state, err := s.Store.Gone(ctx, credentialOf(ctx), in.Runner, in.Body)
			return answer(hubv1.RetireResponse{State: state}, err)
		})
	register(s, status(op(http.MethodPost, poolBase+"/predecessor", "succeed-credential", "Go on with the runners of the credential before"), http.StatusNoContent),
		func(ctx context.Context, in *struct{ Body hubv1.Predecessor }) (*struct{}, error) {
			return nil, s.Store.Succeed(ctx, credentialOf(ctx), in.Body.Credential)
		})
	register(s, status(op(http.MethodPut, poolBase+"/refusal", "set-refusal", "Say why no runner starts"), http.StatusNoContent),
		func(ctx context.Context, in *struct{ Body hubv1.Refusal }) (*struct{}, error) {
			in.Body.Message = secret.Redact(in.Body.Message)
			return nil, s.Store.SetRefusal(ctx, credentialOf(ctx), in.Body)
		})
}

func (s *server) controllerWatch(ctx context.Context, in *struct {
	Instance string `query:"instance" maxLength:"253"`
	Build    string `query:"build" maxLength:"128"`
	Features string `query:"features" maxLength:"1024" doc:"Names, separated by commas."`
	// The ExecutorPool that the watch is for.
	ExecutorPool    string `query:"executor_pool" maxLength:"320" doc:"The ExecutorPool that is served, namespace/name."`
	ExecutorPoolUID string `query:"executor_pool_uid" maxLength:"64" doc:"Its UID: of two with one credential, one serves."`
	HubPool         string `query:"hub_pool" maxLength:"253" doc:"The pool that it names."`
	Created         int64  `query:"created" doc:"When it was made, in Unix seconds."`
}) (*huma.StreamResponse, error) {
	c := credentialOf(ctx)
	controller := store.Controller{Credential: c, Instance: in.Instance, Build: in.Build, Serves: store.Served{
		Name: in.ExecutorPool, UID: in.ExecutorPoolUID, HubPool: in.HubPool, Created: in.Created,
	}}
	if in.Features != "" {
		controller.Features = strings.Split(in.Features, ",")
	}
	if err := reported("the watch is not valid", [2]string{"query.instance", in.Instance}, [2]string{"query.build", in.Build},
		[2]string{"query.features", in.Features}, [2]string{"query.executor_pool", in.ExecutorPool},
		[2]string{"query.executor_pool_uid", in.ExecutorPoolUID}, [2]string{"query.hub_pool", in.HubPool}); err != nil {
		return nil, err
	}
	leave, err := s.Store.Arrive(ctx, controller)
	if err != nil {
		return nil, err
	}
	unwritten := func(err error) {
		s.Log.Error("contact of a controller is not written down", "credential", c.ID, "error", err)
	}
	written := s.Clock.Now()
	return stream(ctx, s, feed[hubv1.PoolSnapshot]{
		topics: []string{store.PoolTopic(c.PoolID)},
		read: func(ctx context.Context) (snapshot[hubv1.PoolSnapshot], error) {
			live, err := s.Store.CredentialLive(ctx, c)
			if err != nil {
				return snapshot[hubv1.PoolSnapshot]{}, err
			}
			now, err := s.Store.SnapshotFor(ctx, controller)
			// A controller whose credential was revoked sees the pool once
			// more, so that it knows why.
			return snapshot[hubv1.PoolSnapshot]{value: now, id: now.Revision, last: !live}, err
		},
		tick: func(ctx context.Context) {
			if s.Clock.Since(written) < contactEvery {
				return
			}
			written = s.Clock.Now()
			if err := s.Store.Present(ctx, controller); err != nil && ctx.Err() == nil {
				unwritten(err)
			}
		},
		done: func() {
			// The stream's own context has ended by now.
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
			defer cancel()
			if err := leave(ctx); err != nil {
				unwritten(err)
			}
		},
	})
}
