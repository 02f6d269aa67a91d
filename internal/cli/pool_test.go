package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// gpu is a pool that a person made; agents is one that Git manages.
func gpu() hubv1.Pool {
	return hubv1.Pool{
		ID: "p1", Name: "gpu", State: hubv1.PoolActive, Revision: 3,
		PoolDefinition: hubv1.PoolDefinition{MaxRunners: 4, Labels: map[string]string{"gpu": "true"}, Harness: "command"},
		Runners:        hubv1.RunnerCounts{Idle: 1, Busy: 2}, Queued: 5,
	}
}

func agents() hubv1.Pool {
	return hubv1.Pool{
		ID: "p2", Name: "agents", State: hubv1.PoolActive,
		PoolDefinition: hubv1.PoolDefinition{MaxRunners: 2},
		Cordon:         &hubv1.Cordon{Reason: "node upgrades", By: "admin", At: time.Now().Add(-3 * time.Hour)},
		Source:         &hubv1.Provenance{Sync: "fleet", Repository: "https://git.example.com/fleet.git", Path: "hub/agents.yaml", Revision: strings.Repeat("ab", 20)},
		Controllers:    []hubv1.ControllerContact{{Build: "edge", Instance: "c-0", LastContact: time.Now().Add(-90 * time.Second)}},
	}
}

func TestAControllerInContactIsShownAsSuch(t *testing.T) {
	pool := agents()
	// The hub's clock and this machine's may differ by minutes.
	pool.Controllers[0].Connected, pool.Controllers[0].LastContact = true, time.Now().Add(-7*time.Minute)
	stubHub(t, map[string]any{
		"GET /api/v1/pools": hubv1.PoolList{Items: []hubv1.Pool{pool}}, "GET /api/v1/pools/agents": pool,
		"GET /api/v1/pools/p2/runners": map[string]any{"items": []hubv1.PoolRunner{}},
	})
	if got := cloop(t, "executor", "pool", "list"); !strings.HasSuffix(got.stdout, "now       ok\n") {
		t.Errorf("listed as\n%s", got.stdout)
	}
	if got := cloop(t, "executor", "pool", "show", "agents"); !strings.Contains(got.stdout, "c-0, build edge, in contact\n") {
		t.Errorf("shown as\n%s", got.stdout)
	}
}

func TestPoolList(t *testing.T) {
	stubHub(t, map[string]any{"GET /api/v1/pools": hubv1.PoolList{Items: []hubv1.Pool{agents(), gpu()}}})
	cloop(t, "executor", "pool", "list").want(t, 0, ""+
		"NAME     STATE      MAX   STARTING   IDLE   BUSY   QUEUED   MANAGED BY         CONTACT   HEALTH\n"+
		"agents   cordoned   2     0          0      0      0        Git@abababababab   1m        ok\n"+
		"gpu      active     4     0          1      2      5        -                  never     ok\n", "")
}

// What a cluster pushes has the revision as Flux says it, or none.
func TestPoolListShortensARevisionOfFlux(t *testing.T) {
	of := func(revision string) string {
		pool := agents()
		pool.Source.Revision = revision
		stubHub(t, map[string]any{"GET /api/v1/pools": hubv1.PoolList{Items: []hubv1.Pool{pool}}, "GET /api/v1/pools/agents": pool,
			"GET /api/v1/pools/p2/runners": map[string]any{"items": []hubv1.PoolRunner{}}})
		return cloop(t, "executor", "pool", "list").stdout + cloop(t, "executor", "pool", "show", "agents").stdout
	}
	if got := of("main@sha1:" + strings.Repeat("58", 20)); !strings.Contains(got, " Git@585858585858 ") || strings.Contains(got, "sha1:") {
		t.Errorf("it says %s", got)
	}
	if got := of(""); !strings.Contains(got, " HubPool ") {
		t.Errorf("without a revision it says %s", got)
	}
}

func TestPoolCreateWritesTheCredentialToAFile(t *testing.T) {
	stubHub(t, map[string]any{"POST /api/v1/pools": hubv1.CreatePoolResponse{
		Pool: gpu(), Credential: hubv1.Credential{ID: "c1", Secret: "cloop_pool1_secret"},
	}})
	file := filepath.Join(t.TempDir(), "it's.credential")
	got := cloop(t, "executor", "pool", "create", "gpu", "--max-runners", "4", "--namespace", "ml", "--credential-file", file, "-o", "json")
	if got.code != 0 || strings.Contains(got.stdout+got.stderr, "cloop_pool1_secret") {
		t.Fatalf("exit code %d, or the credential is shown: %s%s", got.code, got.stdout, got.stderr)
	}
	content, err := os.ReadFile(file)
	if err != nil || string(content) != "cloop_pool1_secret" {
		t.Errorf("the file holds %q: %v", content, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v: %v", info, err)
	}
	var shown struct{ Install []string }
	if err := json.Unmarshal([]byte(got.stdout), &shown); err != nil {
		t.Fatal(err)
	}
	quoted := "'" + strings.ReplaceAll(file, "'", `'\''`) + "'"
	if len(shown.Install) != 3 || !strings.HasPrefix(shown.Install[1], "kubectl -n ml create secret generic gpu-pool-credential --from-file=credential="+quoted+" ") {
		t.Errorf("the commands are %q", shown.Install)
	}
}

func TestPoolCreateThatFailsLeavesNoCredentialFile(t *testing.T) {
	stubHub(t, map[string]any{"POST /api/v1/pools": &hubv1.Problem{
		Status: http.StatusConflict, Code: hubv1.CodePoolExists, Detail: "there is a pool gpu already",
	}})
	file := filepath.Join(t.TempDir(), "credential")
	cloop(t, "executor", "pool", "create", "gpu", "--max-runners", "4", "--credential-file", file).
		want(t, 1, "", "cloop: create pool gpu: there is a pool gpu already\n")
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the file was left: %v", err)
	}
}

func TestPoolCreateKeepsAnExistingFile(t *testing.T) {
	seen := stubHub(t, nil)
	file := writeFile(t, "precious")
	got := cloop(t, "executor", "pool", "create", "gpu", "--max-runners", "4", "--credential-file", file)
	if content, err := os.ReadFile(file); got.code != 2 || err != nil || string(content) != "precious" || len(*seen) != 0 {
		t.Errorf("exit code %d, the file holds %q (%v), the hub got %q", got.code, content, err, *seen)
	}
}

func TestPoolVerbs(t *testing.T) {
	for _, test := range []struct {
		answer       string
		args         []string
		call, stdout string
	}{
		{
			"POST /api/v1/pools/gpu/cordon",
			[]string{"cordon", "gpu", "--reason", "upgrade"},
			`POST /api/v1/pools/gpu/cordon {"reason":"upgrade"}`, "Cordoned pool gpu: busy runners finish, nothing new starts.\n",
		},
		{
			"DELETE /api/v1/pools/gpu/cordon",
			[]string{"uncordon", "gpu"},
			"DELETE /api/v1/pools/gpu/cordon", "Uncordoned pool gpu.\n",
		},
		{
			"POST /api/v1/pools/gpu/revoke",
			[]string{"revoke", "gpu"},
			"POST /api/v1/pools/gpu/revoke", "Revoked pool gpu: its credentials, tokens and runners are refused, and its runs are stopped.\n",
		},
	} {
		t.Run(test.args[0], func(t *testing.T) {
			seen := stubHub(t, map[string]any{test.answer: gpu()})
			cloop(t, append([]string{"executor", "pool"}, test.args...)...).want(t, 0, test.stdout, "")
			if len(*seen) != 1 || (*seen)[0] != test.call {
				t.Errorf("the hub got %q, want %q", *seen, test.call)
			}
		})
	}
}
