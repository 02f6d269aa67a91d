package hubclient

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

const (
	// apiBase is the part of the API for people.
	apiBase = "/api/v1/"

	apiPools    = "/api/v1/pools"
	apiProjects = "/api/v1/projects"
	apiRuns     = "/api/v1/runs"
	apiSyncs    = "/api/v1/syncs"
	apiDoctor   = "/api/v1/doctor"
)

// ETag is the entity tag of a pool as UpdatePool takes it.
func ETag(pool hubv1.Pool) string { return `"` + number(pool.Revision) + `"` }

// CreatePool makes a pool and its first credential, which is shown this once.
func (c *Client) CreatePool(ctx context.Context, request hubv1.CreatePoolRequest) (hubv1.CreatePoolResponse, error) {
	return reveal[hubv1.CreatePoolResponse](ctx, c, apiPools, request)
}

// ListPools lists the pools that are not revoked, by name.
func (c *Client) ListPools(ctx context.Context) ([]hubv1.Pool, error) {
	list, err := get[hubv1.PoolList](ctx, c, apiPools, nil)
	return list.Items, err
}

// ListAllPools lists the revoked pools too.
func (c *Client) ListAllPools(ctx context.Context) ([]hubv1.Pool, error) {
	list, err := get[hubv1.PoolList](ctx, c, apiPools, url.Values{"revoked": {"true"}})
	return list.Items, err
}

// GetPool returns a pool by name or id, a revoked one too.
func (c *Client) GetPool(ctx context.Context, pool string) (hubv1.Pool, error) {
	return get[hubv1.Pool](ctx, c, apiPools+"/"+segment(pool), nil)
}

// UpdatePool changes the fields that the request sets, while the pool still has
// the etag; an empty one overwrites whatever it has.
func (c *Client) UpdatePool(ctx context.Context, pool, etag string, request hubv1.UpdatePoolRequest) (hubv1.Pool, error) {
	var out hubv1.Pool
	err := c.do(ctx, call{method: http.MethodPatch, path: apiPools + "/" + segment(pool), body: request, ifMatch: cmp.Or(etag, "*")}, &out)
	return out, err
}

// OverridePool is UpdatePool for a pool that Git owns: it sets aside what Git says
// for so long, at most hubv1.MaxOverride, or until Git says something else.
func (c *Client) OverridePool(ctx context.Context, pool, etag string, request hubv1.UpdatePoolRequest, reason string, lasts time.Duration) (hubv1.Pool, error) {
	var out hubv1.Pool
	err := c.do(ctx, call{method: http.MethodPatch, path: apiPools + "/" + segment(pool), query: overriding(reason, lasts), body: request, ifMatch: cmp.Or(etag, "*")}, &out)
	return out, err
}

func overriding(reason string, lasts time.Duration) url.Values {
	return url.Values{"override": {reason}, "for": {lasts.String()}}
}

// EndOverride ends a pool's override, so that it is as Git says again.
func (c *Client) EndOverride(ctx context.Context, pool string) (hubv1.Pool, error) {
	var out hubv1.Pool
	err := c.do(ctx, call{method: http.MethodDelete, path: apiPools + "/" + segment(pool) + "/override"}, &out)
	return out, err
}

// ReleasePool makes a pool nobody's that a HubPool of a cluster has, and leaves it as
// it is. One that is still there takes it again. With an owner, a hubv1.ClusterOwner,
// the pool of another stays.
func (c *Client) ReleasePool(ctx context.Context, pool, owner string) (hubv1.Pool, error) {
	var query url.Values
	if owner != "" {
		query = url.Values{"owner": {owner}}
	}
	var out hubv1.Pool
	err := c.do(ctx, call{method: http.MethodPost, path: apiPools + "/" + segment(pool) + "/release", query: query}, &out)
	return out, err
}

// DefinePool makes a pool what a HubPool of a cluster says. The pool that comes back
// is not what was said where its State is not active (it drains, or somebody revoked
// it by hand) and while it has an Override. A pool that another owns is refused with
// CodePoolManagedByGit and its Source, a definition beyond the token's ceiling with
// CodeForbidden, and one that is not valid with CodeInvalid. It is sent without a key:
// it is whole, and nobody else defines the pool.
func (c *Client) DefinePool(ctx context.Context, pool string, request hubv1.DefinePoolRequest) (hubv1.Pool, error) {
	var out hubv1.Pool
	err := c.do(ctx, call{method: http.MethodPut, path: apiPools + "/" + segment(pool) + "/definition", body: request, repeatable: true}, &out)
	return out, err
}

// UndefinePool carries out the deletion policy of a pool whose HubPool, by its
// hubv1.ClusterOwner, is gone: it is over once the pool that comes back is not the
// owner's any more or is revoked, and to be repeated while it drains. A pool that
// there is not is refused with CodeNotFound.
func (c *Client) UndefinePool(ctx context.Context, pool, owner string) (hubv1.Pool, error) {
	var out hubv1.Pool
	err := c.do(ctx, call{method: http.MethodDelete, path: apiPools + "/" + segment(pool) + "/definition", query: url.Values{"owner": {owner}}, repeatable: true}, &out)
	return out, err
}

// CreateCredential mints another controller credential, shown this once.
func (c *Client) CreateCredential(ctx context.Context, pool string) (hubv1.Credential, error) {
	return reveal[hubv1.Credential](ctx, c, apiPools+"/"+segment(pool)+"/credentials", nil)
}

// ListCredentials lists a pool's credentials, the newest first; the revoked ones
// only where asked for.
func (c *Client) ListCredentials(ctx context.Context, pool string, revoked bool) ([]hubv1.Credential, error) {
	list, err := get[hubv1.CredentialList](ctx, c, apiPools+"/"+segment(pool)+"/credentials", url.Values{"revoked": {fmt.Sprint(revoked)}})
	return list.Items, err
}

// FinishRotation revokes every credential of the pool but the newest. Unless it
// is forced the hub refuses with CodeRotationUnfinished while an older one is
// needed, and names each and why.
func (c *Client) FinishRotation(ctx context.Context, pool string, request hubv1.FinishRotationRequest) (hubv1.FinishRotationResponse, error) {
	return post[hubv1.FinishRotationResponse](ctx, c, apiPools+"/"+segment(pool)+"/credentials/finish", request)
}

// RevokeCredential revokes one credential; the runs of its runners are stopped.
func (c *Client) RevokeCredential(ctx context.Context, pool, credential string) (hubv1.Credential, error) {
	return post[hubv1.Credential](ctx, c, apiPools+"/"+segment(pool)+"/credentials/"+segment(credential)+"/revoke", nil)
}

// Hub says which hub answers.
func (c *Client) Hub(ctx context.Context) (hubv1.HubInfo, error) {
	return get[hubv1.HubInfo](ctx, c, "/api/v1/hub", nil)
}

// Cordon stops the hand-off of runs to the pool's runners.
func (c *Client) Cordon(ctx context.Context, pool, reason string) (hubv1.Pool, error) {
	return post[hubv1.Pool](ctx, c, apiPools+"/"+segment(pool)+"/cordon", hubv1.CordonRequest{Reason: reason})
}

// Uncordon takes a cordon away.
func (c *Client) Uncordon(ctx context.Context, pool string) (hubv1.Pool, error) {
	var out hubv1.Pool
	err := c.do(ctx, call{method: http.MethodDelete, path: apiPools + "/" + segment(pool) + "/cordon"}, &out)
	return out, err
}

// OverrideCordon is Uncordon for a pool that Git cordons, as OverridePool is
// UpdatePool.
func (c *Client) OverrideCordon(ctx context.Context, pool, reason string, lasts time.Duration) (hubv1.Pool, error) {
	var out hubv1.Pool
	err := c.do(ctx, call{method: http.MethodDelete, path: apiPools + "/" + segment(pool) + "/cordon", query: overriding(reason, lasts)}, &out)
	return out, err
}

// RevokePool revokes a pool at once, with its credentials, tokens and runners;
// runs in progress are stopped.
func (c *Client) RevokePool(ctx context.Context, pool string) (hubv1.Pool, error) {
	return post[hubv1.Pool](ctx, c, apiPools+"/"+segment(pool)+"/revoke", nil)
}

// ListPoolRunners lists the runners of a pool that are not retired, oldest first.
func (c *Client) ListPoolRunners(ctx context.Context, pool string) ([]hubv1.PoolRunner, error) {
	list, err := get[struct {
		Items []hubv1.PoolRunner `json:"items"`
	}](ctx, c, apiPools+"/"+segment(pool)+"/runners", nil)
	return list.Items, err
}

// WatchPool yields a pool at once and whenever it changes, and one without an id while
// there is none of that name. Hubs of before that end the watch then.
func (c *Client) WatchPool(ctx context.Context, pool string) iter.Seq2[hubv1.Pool, error] {
	return watch[hubv1.Pool](ctx, c, apiPools+"/"+segment(pool)+"/watch", url.Values{"absent": {"true"}})
}

// CreateProject makes a project.
func (c *Client) CreateProject(ctx context.Context, request hubv1.CreateProjectRequest) (hubv1.Project, error) {
	return post[hubv1.Project](ctx, c, apiProjects, request)
}

// ListProjects lists the projects by name.
func (c *Client) ListProjects(ctx context.Context) ([]hubv1.Project, error) {
	list, err := get[hubv1.ProjectList](ctx, c, apiProjects, nil)
	return list.Items, err
}

// GetProject returns a project by name or id.
func (c *Client) GetProject(ctx context.Context, project string) (hubv1.Project, error) {
	return get[hubv1.Project](ctx, c, apiProjects+"/"+segment(project), nil)
}

// BindProject binds a project to an executor, "pool:<id>".
func (c *Client) BindProject(ctx context.Context, project, executorID string) (hubv1.Project, error) {
	return post[hubv1.Project](ctx, c, apiProjects+"/"+segment(project)+"/executor", hubv1.BindRequest{ExecutorID: executorID})
}

// StartRun queues a run. Repeating it with the same key, unless that is empty,
// returns the run that the first one queued.
func (c *Client) StartRun(ctx context.Context, request hubv1.StartRunRequest, key string) (hubv1.Run, error) {
	if key != "" {
		ctx = WithIdempotencyKey(ctx, key)
	}
	return post[hubv1.Run](ctx, c, apiRuns, request)
}

// maxRunsPage is the most runs that the hub gives at a time.
const maxRunsPage = 1000

// ListRuns lists runs, newest first: of one project unless that is empty, at
// most limit unless that is 0. It asks for as many pages as they take.
func (c *Client) ListRuns(ctx context.Context, project string, limit int) ([]hubv1.Run, error) {
	query := url.Values{}
	if project != "" {
		query.Set("project", project)
	}
	var runs []hubv1.Run
	for {
		most := maxRunsPage
		if limit > 0 {
			most = min(most, limit-len(runs))
		}
		query.Set("limit", number(int64(most)))
		page, err := get[hubv1.RunList](ctx, c, apiRuns, query)
		if err != nil {
			return nil, err
		}
		runs = append(runs, page.Items...)
		if page.Next == 0 || len(page.Items) == 0 || limit > 0 && len(runs) >= limit {
			return runs, nil
		}
		query.Set("cursor", number(page.Next))
	}
}

// GetRun returns a run.
func (c *Client) GetRun(ctx context.Context, run string) (hubv1.Run, error) {
	return get[hubv1.Run](ctx, c, apiRuns+"/"+segment(run), nil)
}

// CancelRun asks for a run to be stopped; a queued one is cancelled at once.
// Cancelling a settled run returns it as it is.
func (c *Client) CancelRun(ctx context.Context, run string) (hubv1.Run, error) {
	return post[hubv1.Run](ctx, c, apiRuns+"/"+segment(run)+"/cancel", nil)
}

// WatchRun yields a run at once and whenever it changes, and ends without an
// error after the terminal state.
func (c *Client) WatchRun(ctx context.Context, run string) iter.Seq2[hubv1.Run, error] {
	return func(yield func(hubv1.Run, error) bool) {
		for snapshot, err := range watch[hubv1.Run](ctx, c, apiRuns+"/"+segment(run)+"/watch", nil) {
			if !yield(snapshot, err) || snapshot.State.Terminal() {
				return
			}
		}
	}
}

// Logs reads a run's log from the offset in bytes. With follow the reader goes
// on until the run is settled. The caller closes it; it has no time limit but
// the context's.
func (c *Client) Logs(ctx context.Context, run string, offset int64, follow bool) (io.ReadCloser, error) {
	query := url.Values{"offset": {number(offset)}, "follow": {fmt.Sprint(follow)}}
	in := call{
		method: http.MethodGet, path: apiRuns + "/" + segment(run) + "/logs", query: query,
		accept: "application/octet-stream, application/problem+json",
	}
	response, err := c.send(ctx, in)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

// Doctor says what is wrong with the hub and its pools, the worst first.
func (c *Client) Doctor(ctx context.Context) (hubv1.Diagnosis, error) {
	return get[hubv1.Diagnosis](ctx, c, apiDoctor, nil)
}

// ListSyncs lists the hub's Git syncs by name.
func (c *Client) ListSyncs(ctx context.Context) ([]hubv1.Sync, error) {
	list, err := get[hubv1.SyncList](ctx, c, apiSyncs, nil)
	return list.Items, err
}

// GetSync returns a sync.
func (c *Client) GetSync(ctx context.Context, sync string) (hubv1.Sync, error) {
	return get[hubv1.Sync](ctx, c, apiSyncs+"/"+segment(sync), nil)
}

// ReconcileSync asks for a sync to run now; WatchSync shows what came of it.
func (c *Client) ReconcileSync(ctx context.Context, sync string) (hubv1.Sync, error) {
	return post[hubv1.Sync](ctx, c, apiSyncs+"/"+segment(sync)+"/reconcile", nil)
}

// ApprovePrune lets the pools go that a sync has kept although the revision, the whole
// commit, lacks them; WatchSync shows what came of it.
func (c *Client) ApprovePrune(ctx context.Context, sync, revision string) (hubv1.Sync, error) {
	return post[hubv1.Sync](ctx, c, apiSyncs+"/"+segment(sync)+"/approve-prune", hubv1.ApprovePruneRequest{Revision: revision})
}

// WatchSync yields a sync at once and whenever it changes.
func (c *Client) WatchSync(ctx context.Context, sync string) iter.Seq2[hubv1.Sync, error] {
	return watch[hubv1.Sync](ctx, c, apiSyncs+"/"+segment(sync)+"/watch", nil)
}
