package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

// PoolPath names a pool. It is exported, like the other parts of inputs, because
// huma fills exported fields only.
type PoolPath struct {
	Pool string `path:"pool" minLength:"1" maxLength:"128" doc:"Name or id."`
}

type poolBody struct {
	ETag string `header:"ETag"`
	Body hubv1.Pool
}

func poolAnswer(pool hubv1.Pool, err error) (*poolBody, error) {
	if err != nil {
		return nil, err
	}
	return &poolBody{ETag: `"` + strconv.FormatInt(pool.Revision, 10) + `"`, Body: pool}, nil
}

// poolRunners lists runners.
type poolRunners struct {
	Items []hubv1.PoolRunner `json:"items"`
}

func (s *server) pools() {
	register(s, requires(hubv1.PermissionExecutorManage, status(op(http.MethodPost, apiBase+"/pools", "create-pool", "Create a pool and its first credential"), http.StatusCreated)),
		func(ctx context.Context, in *struct {
			Body hubv1.CreatePoolRequest
		}) (*body[hubv1.CreatePoolResponse], error) {
			if err := s.checkDefinition(in.Body.Name, in.Body.PoolDefinition); err != nil {
				return nil, err
			}
			if err := s.checkInstall(in.Body); err != nil {
				return nil, err
			}
			return answer(s.Store.CreatePool(ctx, actorOf(ctx), keyOf(ctx), in.Body))
		})
	register(s, requires(hubv1.PermissionExecutorRead, op(http.MethodGet, apiBase+"/pools", "list-pools", "List pools by name")),
		func(ctx context.Context, in *struct {
			Revoked bool `query:"revoked" doc:"List revoked pools too."`
		}) (*body[hubv1.PoolList], error) {
			items, err := s.listPools(ctx, in.Revoked)
			ceiling := callerOf(ctx).Ceiling()
			items = slices.DeleteFunc(items, func(pool hubv1.Pool) bool { return !access.Sees(ceiling, pool.Name) })
			return answer(hubv1.PoolList{Items: items}, err)
		})
	register(s, requires(hubv1.PermissionExecutorRead, op(http.MethodGet, apiBase+"/pools/{pool}", "get-pool", "Show a pool")),
		func(ctx context.Context, in *PoolPath) (*poolBody, error) {
			return poolAnswer(s.showPool(ctx, in.Pool))
		})
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPatch, apiBase+"/pools/{pool}", "update-pool", "Change a pool; one that Git owns for a time, with an override")), s.updatePool)
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPost, apiBase+"/pools/{pool}/cordon", "cordon-pool", "Stop the hand-off of runs")),
		func(ctx context.Context, in *struct {
			PoolPath
			Body hubv1.CordonRequest
		}) (*poolBody, error) {
			if message := lineMessage(in.Body.Reason); message != "" {
				p := problem.New(hubv1.CodeInvalid, "the cordon is not valid")
				p.Errors = []hubv1.FieldError{{Location: "body.reason", Message: message}}
				return nil, p
			}
			return poolAnswer(s.Store.Cordon(ctx, actorOf(ctx), in.Pool, secret.Redact(in.Body.Reason)))
		})
	register(s, requires(hubv1.PermissionExecutorManage, status(op(http.MethodDelete, apiBase+"/pools/{pool}/cordon", "uncordon-pool", "Take the cordon away"), http.StatusOK)), s.uncordonPool)
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPost, apiBase+"/pools/{pool}/revoke", "revoke-pool", "Revoke a pool at once; runs in progress are stopped")),
		func(ctx context.Context, in *PoolPath) (*poolBody, error) {
			return poolAnswer(s.Store.RevokePool(ctx, actorOf(ctx), in.Pool))
		})
	register(s, requires(hubv1.PermissionExecutorRead, op(http.MethodGet, apiBase+"/pools/{pool}/runners", "list-pool-runners", "List a pool's runners, oldest first")),
		func(ctx context.Context, in *PoolPath) (*body[poolRunners], error) {
			items, err := s.Store.PoolRunners(ctx, in.Pool)
			return answer(poolRunners{Items: items}, err)
		})
	register(s, requires(hubv1.PermissionExecutorRead, watchOp[hubv1.Pool](s, apiBase+"/pools/{pool}/watch", "watch-pool", "Watch a pool")), s.watchPool)
	s.definitions()
	s.credentials()
}

func (s *server) updatePool(ctx context.Context, in *struct {
	PoolPath
	Overriding
	IfMatch string `json:"-" header:"If-Match" maxLength:"64" doc:"The ETag that the pool must have; * for any. Without it the change is refused."`
	Body    hubv1.UpdatePoolRequest
}) (*poolBody, error) {
	over, err := in.read()
	if err != nil {
		return nil, err
	}
	if err := s.checkDefinition(in.Pool, in.Body); err != nil {
		return nil, err
	}
	revision, err := revisionOf(in.Pool, in.IfMatch)
	if err != nil {
		return nil, err
	}
	if over != nil {
		return poolAnswer(s.Store.OverridePool(ctx, actorOf(ctx), in.Pool, revision, in.Body, *over))
	}
	return poolAnswer(s.Store.UpdatePool(ctx, actorOf(ctx), in.Pool, revision, in.Body))
}

func (s *server) uncordonPool(ctx context.Context, in *struct {
	PoolPath
	Overriding
}) (*poolBody, error) {
	over, err := in.read()
	if err != nil {
		return nil, err
	}
	if over != nil {
		return poolAnswer(s.Store.OverrideCordon(ctx, actorOf(ctx), in.Pool, *over))
	}
	return poolAnswer(s.Store.Uncordon(ctx, actorOf(ctx), in.Pool))
}

// revisionOf reads an If-Match; 0 stands for any. Who leaves it out would
// overwrite what somebody else has changed meanwhile, and not know it.
func revisionOf(pool, etag string) (int64, error) {
	switch etag {
	case "":
		return 0, problem.New(hubv1.CodePreconditionRequired, "the change of pool %s does not say which revision of it is meant", pool)
	case "*":
		return 0, nil
	}
	revision, err := strconv.ParseInt(strings.Trim(etag, `"`), 10, 64)
	if err != nil || revision < 1 {
		return 0, problem.New(hubv1.CodePreconditionFailed, "the If-Match is no ETag of a pool")
	}
	return revision, nil
}

// watchPool follows the pool of a name, whichever that is.
func (s *server) watchPool(ctx context.Context, in *struct {
	PoolPath
	Absent bool `query:"absent" doc:"While there is no pool of that name, send one without an id, rather than answer 404 or end the stream."`
},
) (*huma.StreamResponse, error) {
	return stream(ctx, s, feed[hubv1.Pool]{
		topics: []string{store.PoolNameTopic(in.Pool)},
		read: func(ctx context.Context) (snapshot[hubv1.Pool], error) {
			now, feed, err := s.Store.GetPool(ctx, in.Pool)
			if p, is := asProblem(err); is && p.Code == hubv1.CodeNotFound && in.Absent {
				return snapshot[hubv1.Pool]{value: hubv1.Pool{Name: in.Pool}}, nil
			}
			return snapshot[hubv1.Pool]{value: now, id: feed, also: []string{store.PoolTopic(now.ID)}}, err
		},
	})
}
