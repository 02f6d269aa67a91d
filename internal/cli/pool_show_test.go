package cli_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

func TestPoolShow(t *testing.T) {
	pool := agents()
	pool.Capabilities = map[string]bool{"kernelIsolated": true, "gpu": false}
	pool.Install = &hubv1.InstallHints{Namespace: "ml", Persistence: &hubv1.PersistenceHints{Size: "50Gi", StorageClassName: "fast"}}
	pool.Controllers[0].ExecutorPool, pool.Controllers[0].Features = "ml/agents", []string{"runner-states", "runner-gone"}
	stubHub(t, map[string]any{
		"GET /api/v1/pools/agents": pool,
		"GET /api/v1/pools/p2/runners": map[string]any{"items": []hubv1.PoolRunner{
			{ID: "r1", State: hubv1.RunnerBusy, RunID: "run-7", HoldsProject: "app", CreatedAt: time.Now().Add(-2 * time.Minute)},
		}},
		"GET /api/v1/pools/p2/credentials": hubv1.CredentialList{Items: []hubv1.Credential{
			{ID: "c2", CreatedAt: time.Now().Add(-90 * time.Second)},
			{ID: "c1", CreatedAt: time.Now().Add(-3 * time.Hour), UsedAt: new(time.Now().Add(-2 * time.Hour)), Runners: hubv1.RunnerCounts{Busy: 1}},
		}},
	})
	cloop(t, "executor", "pool", "show", "agents").want(t, 0, ""+
		"Name:           agents\n"+
		"Binding:        pool:p2\n"+
		"State:          cordoned\n"+
		"Cordoned:       node upgrades (by admin, 3h ago)\n"+
		"Managed by:     Git: https://git.example.com/fleet.git hub/agents.yaml at abababababab, sync fleet\n"+
		"Max runners:    2\n"+
		"Labels:         -\n"+
		"Audience:       anyone\n"+
		"Owner:          -\n"+
		"Harness:        -\n"+
		"Capabilities:   gpu=false,kernelIsolated\n"+
		"Installed:      namespace ml, release agents, a volume of 50Gi per project, fast, as asked for when it was made\n"+
		"Runners:        0 starting, 0 idle, 0 busy, 0 retiring\n"+
		"Queued:         0\n"+
		"Controller:     c-0, build edge, seen 1m ago, serves ml/agents, speaks runner-states runner-gone\n"+
		"\n"+
		"CREDENTIAL   STATE   CREATED   USED     STARTING   IDLE   BUSY   CONTROLLERS\n"+
		"c2           live    1m ago    never    0          0      0      -\n"+
		"c1           live    3h ago    2h ago   0          0      1      -\n"+
		"\n"+
		"RUNNER   STATE   RUN     HOLDS   AGE\n"+
		"r1       busy    run-7   app     2m\n", "")
}

// behind is a pool with controllers of the builds.
func behind(builds ...string) hubv1.Pool {
	pool := gpu()
	for i, build := range builds {
		pool.Controllers = append(pool.Controllers, hubv1.ControllerContact{
			Instance: fmt.Sprintf("c-%d", i), Build: build, Connected: true, ExecutorPool: fmt.Sprintf("west%d/gpu", i),
		})
	}
	return pool
}

func TestPoolShowPrintsTheUpgradeOfAControllerThatIsBehind(t *testing.T) {
	for name, test := range map[string]struct {
		hub, chart string
		pool       hubv1.Pool
		want       string // empty: no upgrade
	}{
		"a release": {"0.0.8", "/chart", behind("0.0.8", "0.0.7"), "" +
			"\nController c-1 is of build 0.0.7, the hub of 0.0.8. It comes to the hub's with\n" +
			"\nhelm upgrade gpu $HUB/charts/cloop-executor-controller.tgz \\\n" +
			"  -n west1 --reuse-values \\\n" +
			"  --set-string image.tag=0.0.8\n"},
		"edge": {"edge-2", "/chart", behind("edge-1"), "" +
			"\nController c-0 is of build edge-1, the hub of edge-2. Both have the tag edge, so name the hub's image by its digest:\n" +
			"\nhelm upgrade gpu $HUB/charts/cloop-executor-controller.tgz \\\n" +
			"  -n west0 --reuse-values \\\n" +
			"  --set 'image.digest=sha256:…'\n"},
		"no chart": {"0.0.8", "", behind("0.0.7"), "" +
			"\nController c-0 is of build 0.0.7, the hub of 0.0.8. Give its Deployment an image of that build, as long as the hub serves no chart. Of a Helm release it is\n" +
			"\nhelm upgrade gpu $HUB/charts/cloop-executor-controller.tgz \\\n" +
			"  -n west0 --reuse-values \\\n" +
			"  --set-string image.tag=0.0.8\n"},
		"none":               {"0.0.8", "/chart", behind("0.0.8", "0.0.9", "edge-1"), ""},
		"a hub without a id": {"edge", "/chart", behind("edge-1"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			stubHub(t, map[string]any{
				"GET /api/v1/hub": hubv1.HubInfo{Build: test.hub, Chart: test.chart}, "GET /api/v1/pools/gpu": test.pool,
				"GET /api/v1/pools/p1/runners": map[string]any{"items": []hubv1.PoolRunner{}},
			})
			got := cloop(t, "executor", "pool", "show", "gpu")
			want := inHub(test.want)
			if got.code != 0 || want == "" && strings.Contains(got.stdout, "helm") || !strings.Contains(got.stdout, want) {
				t.Errorf("exit code %d, shown as\n%s\nwant\n%s", got.code, got.stdout, want)
			}
			var shown struct {
				Upgrades []struct{ Controller, Command string }
			}
			asJSON := cloop(t, "executor", "pool", "show", "gpu", "-o", "json")
			if err := json.Unmarshal([]byte(asJSON.stdout), &shown); err != nil || (len(shown.Upgrades) > 0) != (want != "") {
				t.Errorf("as JSON: %v %+v", err, shown)
			}
		})
	}
}
