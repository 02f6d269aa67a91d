package api

import (
	"context"
	"net/http"

	"cloop.dev/cloop/apis/hubv1"
)

// CredentialPath names a pool's credential.
type CredentialPath struct {
	PoolPath
	Credential string `path:"credential" minLength:"1" maxLength:"128" doc:"Id."`
}

func (s *server) credentials() {
	register(s, requires(hubv1.PermissionExecutorManage, status(op(http.MethodPost, apiBase+"/pools/{pool}/credentials", "create-credential", "Mint another controller credential"), http.StatusCreated)),
		func(ctx context.Context, in *struct {
			PoolPath
		}) (*body[hubv1.Credential], error) {
			return answer(s.Store.CreateCredential(ctx, actorOf(ctx), keyOf(ctx), in.Pool))
		})
	register(s, requires(hubv1.PermissionExecutorRead, op(http.MethodGet, apiBase+"/pools/{pool}/credentials", "list-credentials", "List a pool's controller credentials, the newest first")),
		func(ctx context.Context, in *struct {
			PoolPath
			Revoked bool `query:"revoked" doc:"List revoked credentials too."`
		}) (*body[hubv1.CredentialList], error) {
			items, err := s.Store.ListCredentials(ctx, in.Pool, in.Revoked)
			return answer(hubv1.CredentialList{Items: items}, err)
		})
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPost, apiBase+"/pools/{pool}/credentials/finish", "finish-rotation", "Revoke every credential but the newest, once none of them is needed")),
		func(ctx context.Context, in *struct {
			PoolPath
			Body hubv1.FinishRotationRequest
		}) (*body[hubv1.FinishRotationResponse], error) {
			return answer(s.Store.FinishRotation(ctx, actorOf(ctx), keyOf(ctx), in.Pool, in.Body))
		})
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPost, apiBase+"/pools/{pool}/credentials/{credential}/revoke", "revoke-credential", "Revoke a credential at once; runs of its runners are stopped")),
		func(ctx context.Context, in *CredentialPath) (*body[hubv1.Credential], error) {
			return answer(s.Store.RevokeCredential(ctx, actorOf(ctx), in.Pool, in.Credential))
		})
	register(s, requires(permissionSelf, op(http.MethodGet, apiBase+"/hub", "get-hub", "Say which hub this is")),
		func(context.Context, *struct{}) (*body[hubv1.HubInfo], error) {
			return answer(hubv1.HubInfo{Build: s.Build, Features: s.Store.Features()}, nil)
		})
}
