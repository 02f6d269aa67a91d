package hubclient

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/secret"
)

// Hello is how a controller introduces itself.
type Hello struct {
	// Instance tells the replicas of a controller apart, at most 253 characters.
	Instance string
	// Build of the controller, at most 128 characters.
	Build    string
	Features []string
	// Serves is the ExecutorPool that the watch is for; the zero value: not said.
	Serves Served
}

// Served tells an ExecutorPool from another with the same credential, of which
// only one may serve.
type Served struct {
	// Name is "namespace/name", UID its object's, and HubPool the pool that it
	// names.
	Name, UID, HubPool string
	// Created is when it was made, in Unix seconds.
	Created int64
}

// PoolWatch yields the snapshot of the credential's pool at once and whenever
// it changes. An open watch is the controller's contact with the hub.
func (c *Client) PoolWatch(ctx context.Context, hello Hello) iter.Seq2[hubv1.PoolSnapshot, error] {
	query := url.Values{"instance": {hello.Instance}, "build": {hello.Build}}
	if len(hello.Features) > 0 {
		query.Set("features", strings.Join(hello.Features, ","))
	}
	if served := hello.Serves; served != (Served{}) {
		query.Set("executor_pool", served.Name)
		query.Set("executor_pool_uid", served.UID)
		query.Set("hub_pool", served.HubPool)
		query.Set("created", number(served.Created))
	}
	return watch[hubv1.PoolSnapshot](ctx, c, "/pool/v1/watch", query)
}

// PoolSnapshot returns the snapshot of the credential's pool.
func (c *Client) PoolSnapshot(ctx context.Context) (hubv1.PoolSnapshot, error) {
	return get[hubv1.PoolSnapshot](ctx, c, "/pool/v1/snapshot", nil)
}

// MintRunner asks for a runner token. Repeating the key while its token is not
// redeemed returns a new token for the same runner.
func (c *Client) MintRunner(ctx context.Context, key string) (hubv1.MintResponse, error) {
	return c.MintHolding(ctx, hubv1.MintRequest{Key: key})
}

// MintHolding is MintRunner for a runner that may start on a project's volume.
func (c *Client) MintHolding(ctx context.Context, request hubv1.MintRequest) (hubv1.MintResponse, error) {
	return repeat[hubv1.MintResponse](ctx, c, "/pool/v1/runners", request)
}

// RetireRunner asks the hub to retire a runner; the answer is the state that
// the runner has now. A busy one stays busy.
func (c *Client) RetireRunner(ctx context.Context, runner string) (hubv1.RetireResponse, error) {
	return repeat[hubv1.RetireResponse](ctx, c, "/pool/v1/runners/"+segment(runner)+"/retire", nil)
}

// RunnerGone reports that a runner's Pod has ended.
func (c *Client) RunnerGone(ctx context.Context, runner string, request hubv1.GoneRequest) (hubv1.RetireResponse, error) {
	return repeat[hubv1.RetireResponse](ctx, c, "/pool/v1/runners/"+segment(runner)+"/gone", request)
}

// SetRefusal tells the hub why runners do not start; an empty message clears it.
func (c *Client) SetRefusal(ctx context.Context, refusal hubv1.Refusal) error {
	return c.do(ctx, call{
		method: http.MethodPut, path: "/pool/v1/refusal", body: refusal, repeatable: true,
	}, nil)
}

// Succeed shows the credential that the controller had before, so that it goes on
// with the runners that this one minted.
func (c *Client) Succeed(ctx context.Context, earlier secret.String) error {
	return c.do(ctx, call{
		method: http.MethodPost, path: "/pool/v1/predecessor", body: hubv1.Predecessor{Credential: earlier.Reveal()}, repeatable: true,
	}, nil)
}
