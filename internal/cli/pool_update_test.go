package cli_test

import (
	"net/http"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

func TestPoolUpdateSendsOnlyWhatIsGiven(t *testing.T) {
	seen := stubHub(t, map[string]any{"GET /api/v1/pools/gpu": gpu(), "PATCH /api/v1/pools/p1": gpu()})
	got := cloop(t, "executor", "pool", "update", "gpu", "--max-runners", "0", "--audience", "", "--capability", "")
	if got.code != 0 {
		t.Fatalf("exit code %d: %s", got.code, got.stderr)
	}
	if want := `PATCH /api/v1/pools/p1 {"maxRunners":0,"audience":[],"capabilities":{}}`; len(*seen) != 3 || (*seen)[1] != want {
		t.Errorf("the hub got %q, want %q", *seen, want)
	}
}

func TestPoolUpdatePrintsHowTheClusterFollows(t *testing.T) {
	pool := gpu()
	pool.Install = &hubv1.InstallHints{Namespace: "ml", Release: "runners"}
	chart := hubv1.HubInfo{Chart: "/charts/cloop-executor-controller.tgz"}
	stubHub(t, map[string]any{"GET /api/v1/pools/gpu": pool, "PATCH /api/v1/pools/p1": pool, "GET /api/v1/hub": chart})
	cloop(t, "executor", "pool", "update", "gpu", "--max-runners", "4").want(t, 0, inHub(`Updated pool gpu: at most 4 runners.
The lower of the hub's and the cluster's maximum counts. Change spec.maxRunners of an ExecutorPool
that is in Git there; one of a Helm release with

helm upgrade runners $HUB/charts/cloop-executor-controller.tgz \
  -n ml --reuse-values \
  --set pool.maxRunners=4
`), "")
	cloop(t, "executor", "pool", "update", "gpu", "--owner", "").want(t, 0, "Updated pool gpu: at most 4 runners.\n", "")

	// Helm has nothing that is in Git.
	const plain = "Updated pool gpu: at most 4 runners.\nThe lower of the hub's and the cluster's maximum counts: that is spec.maxRunners of the ExecutorPool.\n"
	pool.Source = agents().Source
	stubHub(t, map[string]any{"GET /api/v1/pools/gpu": pool, "PATCH /api/v1/pools/p1": pool, "GET /api/v1/hub": chart})
	cloop(t, "executor", "pool", "update", "gpu", "--max-runners", "4").want(t, 0, plain, "")
}

func TestPoolUpdateOverwritesNobodysChange(t *testing.T) {
	for name, test := range map[string]struct {
		// meanwhile is what somebody else does between the reading and the change.
		meanwhile func(*hubv1.Pool)
		code      int
		stderr    string
		max       int32
	}{
		"nothing":       {nil, 0, "", 9},
		"another field": {func(p *hubv1.Pool) { p.Owner = "user:bob" }, 0, "", 9},
		"the same field": {
			func(p *hubv1.Pool) { p.MaxRunners = 7 }, 1,
			"cloop: update pool gpu: somebody else changed its maximum meanwhile, so nothing was changed: look at it with `cloop executor pool show gpu` and decide again\n", 7,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := gpu()
			stubHub(t, map[string]any{
				"GET /api/v1/pools/gpu": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					send(w, pool)
					if test.meanwhile != nil {
						test.meanwhile(&pool)
						pool.Revision++
					}
				}),
				"GET /api/v1/pools/p1": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { send(w, pool) }),
				"PATCH /api/v1/pools/p1": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("If-Match") != hubclient.ETag(pool) {
						send(w, &hubv1.Problem{Status: http.StatusPreconditionFailed, Code: hubv1.CodePreconditionFailed, Detail: "it has changed"})
						return
					}
					pool.MaxRunners = 9
					send(w, pool)
				}),
			})
			got := cloop(t, "executor", "pool", "update", "gpu", "--max-runners", "9")
			if got.code != test.code || got.stderr != test.stderr || pool.MaxRunners != test.max {
				t.Errorf("exit code %d, stderr %q, the maximum is %d", got.code, got.stderr, pool.MaxRunners)
			}
		})
	}
}

func TestPoolManagedByGitIsRefused(t *testing.T) {
	stubHub(t, map[string]any{"GET /api/v1/pools/agents": agents(), "PATCH /api/v1/pools/p2": &hubv1.Problem{
		Status: http.StatusConflict, Code: hubv1.CodePoolManagedByGit, Source: agents().Source,
		Detail: "pool agents is managed by Git: https://git.example.com/fleet.git hub/agents.yaml at abab",
		Remedy: "change it there",
	}})
	cloop(t, "executor", "pool", "update", "agents", "--max-runners", "9").want(t, 1, "",
		"cloop: update pool agents: pool agents is managed by Git: https://git.example.com/fleet.git hub/agents.yaml at abab: change it there\n")
}
