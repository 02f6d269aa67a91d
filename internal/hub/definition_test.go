package hub_test

import (
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
)

// A HubPool of a cluster defines a pool with a token that has executor.manage alone
// and a ceiling, and is held to what a document in Git is held to.
func TestAClusterDefinesAPoolOverTheAPI(t *testing.T) {
	r := serve(t, nil)
	token, err := r.admin.CreateToken(r.ctx(), hubv1.CreateTokenRequest{
		Name: "fleet-eu", Scopes: []hubv1.Permission{hubv1.PermissionExecutorManage}, Ceiling: &hubv1.Ceiling{Names: []string{"eu-*"}, MaxRunners: 3},
	})
	check(t, err)
	controller := r.client(token.Secret)
	request := hubv1.DefinePoolRequest{
		Definition: hubv1.PoolDefinition{MaxRunners: 2, Audience: []string{"user:b", "user:a"}, DeletionPolicy: "Orphan"},
		Cordon:     &hubv1.CordonRequest{Reason: "upgrades"},
		Provenance: hubv1.Provenance{Sync: hubv1.ClusterOwner("eu", "fleet", "eu-gpu"), Repository: "https://git.example.com/fleet", Path: "clusters/eu/gpu.yaml", Revision: "abc"},
	}
	pool, err := controller.DefinePool(r.ctx(), "eu-gpu", request)
	check(t, err)
	if pool.MaxRunners != 2 || strings.Join(pool.Audience, " ") != "user:a user:b" || pool.Harness != "command" || pool.Source == nil ||
		!strings.HasPrefix(pool.Source.Digest, "sha256:") || pool.Source.Path != "clusters/eu/gpu.yaml" || pool.Cordon == nil || pool.Cordon.Reason != "upgrades" {
		t.Fatalf("the pool is %+v of %+v", pool, pool.Source)
	}
	change := func(do func(*hubv1.DefinePoolRequest)) hubv1.DefinePoolRequest {
		out := request
		do(&out)
		return out
	}
	for name, c := range map[string]struct {
		pool     string
		request  hubv1.DefinePoolRequest
		code     hubv1.Code
		location string
	}{
		"beyond the ceiling": {"eu-gpu", change(func(r *hubv1.DefinePoolRequest) { r.Definition.MaxRunners = 4 }), hubv1.CodeForbidden, "body.maxRunners"},
		"a name beyond it":   {"us-gpu", request, hubv1.CodeForbidden, "body.name"},
		"a bad definition":   {"eu-gpu", change(func(r *hubv1.DefinePoolRequest) { r.Definition.Audience = []string{"nobody"} }), hubv1.CodeInvalid, "body.definition.audience[0]"},
		"a bad owner":        {"eu-gpu", change(func(r *hubv1.DefinePoolRequest) { r.Provenance.Sync = "fleet" }), hubv1.CodeInvalid, "body.provenance.sync"},
		"a bad path":         {"eu-gpu", change(func(r *hubv1.DefinePoolRequest) { r.Provenance.Path = "a\x1bb" }), hubv1.CodeInvalid, "body.provenance.path"},
		"a bad cordon":       {"eu-gpu", change(func(r *hubv1.DefinePoolRequest) { r.Cordon = &hubv1.CordonRequest{Reason: " "} }), hubv1.CodeInvalid, "body.cordon.reason"},
		"a bad name":         {"Eu_gpu", request, hubv1.CodeInvalid, "path.name"},
		"another's":          {"eu-gpu", change(func(r *hubv1.DefinePoolRequest) { r.Provenance.Sync = hubv1.ClusterOwner("us", "fleet", "eu-gpu") }), hubv1.CodePoolManagedByGit, ""},
	} {
		_, err := controller.DefinePool(r.ctx(), c.pool, c.request)
		p := wantCode(t, err, c.code)
		if p.Remedy == "" || c.location != "" && (len(p.Errors) == 0 || p.Errors[0].Location != c.location) || c.code == hubv1.CodePoolManagedByGit && *p.Source != *pool.Source {
			t.Errorf("%s: %+v", name, p)
		}
	}
	left, err := controller.UndefinePool(r.ctx(), "eu-gpu", request.Provenance.Sync)
	check(t, err)
	if left.Source != nil || left.Cordon != nil || left.State != hubv1.PoolActive {
		t.Errorf("without its HubPool the pool is %+v", left)
	}
	_, err = controller.UndefinePool(r.ctx(), "eu-gpu", "fleet")
	wantCode(t, err, hubv1.CodeInvalid)
}

// An emergency's change shows wherever a pool does, and is over when its time is, by
// the hub's own timer.
func TestAnOverrideShowsAsDriftAndEnds(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	git := f.get("demo")
	five := hubv1.UpdatePoolRequest{MaxRunners: new(int32(5))}
	for name, query := range map[string]string{"no reason": "for=1h", "a blank reason": "override=%20", "too long": "override=x&for=169h", "no duration": "override=x&for=soon", "nothing": "override=x&for=0s"} {
		status, _, answer := f.askWith("PATCH", "/api/v1/pools/demo?"+query, f.firstToken(), `{"maxRunners":5}`, map[string]string{"If-Match": "*"})
		if status != 422 || !strings.Contains(string(answer), `"location":"query.`) {
			t.Errorf("%s: %d %s", name, status, answer)
		}
	}
	pool, err := f.admin.OverridePool(f.ctx(), "demo", "", five, "the rack burns", 2*time.Hour)
	check(t, err)
	if len(pool.Drift) != 1 {
		t.Fatalf("the pool has drift %+v", pool.Drift)
	}
	d := pool.Drift[0]
	if d.Path != "/spec/maxRunners" || d.Git != "2" || d.Hub != "5" || d.Cause != hubv1.CauseBreakGlass || d.By != "user:admin" || d.Message != "the rack burns" || !d.Until.Equal(pool.Override.Until) {
		t.Errorf("the drift is %+v", d)
	}
	pools, err := f.admin.ListPools(f.ctx())
	check(t, err)
	if pools[0].Name != "demo" || len(pools[0].Drift) != 1 || len(pools[0].Findings) != 1 || pools[0].Findings[0].ID != hubv1.FindingPoolsOverride {
		t.Errorf("listed as %+v", pools[0])
	}
	if text := f.page("/metrics"); !strings.Contains(text, `cloop_pool_drift{pool="demo",surface="`+fleet.SurfaceGitHub+`"} 1`) || !strings.Contains(text, `cloop_pool_drift{pool="keep",surface="git-hub"} 0`) {
		t.Error("the metric does not say so")
	}
	// The sync goes on with it.
	f.synced(f.commit(map[string]string{"hub/keep.yaml": hubPool("keep", 4, "Orphan", "")}), hubv1.SyncReady)
	if now := f.get("demo"); now.MaxRunners != 5 || now.Override == nil || now.Source.Revision == git.Source.Revision {
		t.Errorf("after another commit the pool is %+v", now)
	}
	f.clock.Step(3 * time.Hour)
	f.untilPool(git.ID, "the override is over", func(p hubv1.Pool) bool { return p.Override == nil && p.MaxRunners == 2 && len(p.Drift) == 0 })
	must(t)(f.admin.OverridePool(f.ctx(), "demo", "", five, "again", time.Hour))
	pool, err = f.admin.EndOverride(f.ctx(), "demo")
	if err != nil || pool.MaxRunners != 2 || pool.Override != nil {
		t.Errorf("taken back, the pool is %+v %v", pool, err)
	}
}
