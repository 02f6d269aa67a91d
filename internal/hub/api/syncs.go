package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/store"
)

// SyncPath names a Git sync.
type SyncPath struct {
	Sync string `path:"sync" minLength:"1" maxLength:"128"`
}

func (s *server) syncs() {
	register(s, requires(hubv1.PermissionHubRead, op(http.MethodGet, apiBase+"/syncs", "list-syncs", "List the Git syncs")),
		func(ctx context.Context, _ *struct{}) (*body[hubv1.SyncList], error) {
			items, err := s.Store.ListSyncs(ctx)
			return answer(hubv1.SyncList{Items: items}, err)
		})
	register(s, requires(hubv1.PermissionHubRead, op(http.MethodGet, apiBase+"/syncs/{sync}", "get-sync", "Show a Git sync")),
		func(ctx context.Context, in *SyncPath) (*body[hubv1.Sync], error) {
			sync, _, err := s.Store.GetSync(ctx, in.Sync)
			return answer(sync, err)
		})
	register(s, requires(hubv1.PermissionHubManage, status(op(http.MethodPost, apiBase+"/syncs/{sync}/reconcile", "reconcile-sync", "Run a Git sync now"), http.StatusAccepted)),
		func(ctx context.Context, in *SyncPath) (*body[hubv1.Sync], error) {
			return answer(s.Store.PokeSync(ctx, in.Sync))
		})
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPost, apiBase+"/syncs/{sync}/approve-prune", "approve-prune",
		"Let the pools go that a Git sync has kept because its newest revision lacks more than the limit")),
		func(ctx context.Context, in *struct {
			SyncPath
			Body hubv1.ApprovePruneRequest
		}) (*body[hubv1.Sync], error) {
			return answer(s.Store.ApprovePrune(ctx, actorOf(ctx), keyOf(ctx), in.Sync, in.Body))
		})
	register(s, requires(hubv1.PermissionHubRead, watchOp[hubv1.Sync](s, apiBase+"/syncs/{sync}/watch", "watch-sync", "Watch a Git sync")),
		func(ctx context.Context, in *SyncPath) (*huma.StreamResponse, error) {
			return stream(ctx, s, feed[hubv1.Sync]{
				topics: []string{store.SyncTopic(in.Sync)},
				read: func(ctx context.Context) (snapshot[hubv1.Sync], error) {
					now, revision, err := s.Store.GetSync(ctx, in.Sync)
					return snapshot[hubv1.Sync]{value: now, id: revision}, err
				},
			})
		})
}
