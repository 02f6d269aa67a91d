package cli_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// overridden is agents without its cordon, for two hours.
func overridden() hubv1.Pool {
	pool := agents()
	pool.Cordon = nil
	since := time.Now().Add(-3 * time.Hour)
	pool.Override = &hubv1.Override{Reason: "fire", By: "user:ann", At: since, Since: since, Until: time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC), Git: hubv1.PoolDefinition{MaxRunners: 3}}
	pool.Drift = []hubv1.Drift{{Path: "/spec/maxRunners", Git: "3", Hub: "2", Cause: hubv1.CauseBreakGlass, By: "user:ann", Since: since},
		{Path: "/spec/cordon/reason", Git: `"upgrades"`, Cause: hubv1.CauseBreakGlass, By: "user:ann", Since: since},
		{Path: "/spec/owner", Git: `"ann"`, Cause: hubv1.CauseCommitNotApplied, Outcome: hubv1.OutcomeObserved, By: "sync:fleet", Since: since, Message: "hub/gpu.yaml is only compared"},
		{Cause: hubv1.CauseCommitNotApplied, By: "sync:fleet", Since: time.Date(2026, 5, 6, 7, 0, 0, 0, time.UTC), Message: "hub/a.yaml:5: too many"}}
	return pool
}

func TestPoolShowSaysWhatIsSetAside(t *testing.T) {
	stubHub(t, map[string]any{
		"GET /api/v1/pools/agents":         overridden(),
		"GET /api/v1/pools/p2/runners":     map[string]any{"items": []hubv1.PoolRunner{}},
		"GET /api/v1/pools/p2/credentials": hubv1.CredentialList{},
	})
	got := cloop(t, "executor", "pool", "show", "agents")
	for _, want := range []string{
		"Override:      fire (by user:ann, 3h ago; ends 2026-05-06T07:08:09Z)\n",
		"Drift:         /spec/maxRunners is 2 at the hub and 3 in Git (BreakGlass, by user:ann)\n",
		"Drift:         /spec/cordon/reason is absent at the hub and \"upgrades\" in Git (BreakGlass, by user:ann)\n",
		"Drift:         /spec/owner is absent at the hub and \"ann\" in Git (CommitNotApplied, hub/gpu.yaml is only compared)\n",
		"Drift:         its document in Git is held back since 2026-05-06T07:00:00Z: hub/a.yaml:5: too many (CommitNotApplied)\n",
	} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("exit code %d, it does not say %q: %s", got.code, want, got.stdout)
		}
	}
}

func TestAnOverrideIsAskedFor(t *testing.T) {
	var asked []string
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Method+" "+r.URL.RequestURI())
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(overridden())
	})
	stubHub(t, map[string]any{
		"GET /api/v1/pools/agents": overridden(), "GET /api/v1/pools/gpu": gpu(), "PATCH /api/v1/pools/p2": answer,
		"DELETE /api/v1/pools/agents/cordon": answer, "DELETE /api/v1/pools/p2/override": answer, "POST /api/v1/pools/agents/release": answer,
	})
	for _, c := range []struct {
		arguments   []string
		asked, says string
	}{
		{[]string{"update", "agents", "--max-runners", "2", "--override", "a fire", "--for", "90m"}, "PATCH /api/v1/pools/p2?for=1h30m0s&override=a+fire", "What Git says of it is set aside until"},
		{[]string{"uncordon", "agents", "--override", "a fire"}, "DELETE /api/v1/pools/agents/cordon?for=8h0m0s&override=a+fire", "Uncordoned pool agents."},
		{[]string{"uncordon", "agents"}, "DELETE /api/v1/pools/agents/cordon", "Uncordoned pool agents."},
		{[]string{"release", "agents"}, "POST /api/v1/pools/agents/release", "Pool agents is no HubPool's."},
		{[]string{"end-override", "agents"}, "DELETE /api/v1/pools/p2/override", "Pool agents is as Git says."},
	} {
		asked = nil
		got := cloop(t, append([]string{"executor", "pool"}, c.arguments...)...)
		if got.code != 0 || len(asked) != 1 || asked[0] != c.asked || !strings.Contains(got.stdout, c.says) {
			t.Errorf("%v: exit code %d, asked %v: %s%s", c.arguments, got.code, asked, got.stdout, got.stderr)
		}
	}
	asked = nil
	cloop(t, "executor", "pool", "end-override", "gpu").want(t, 0, "Pool gpu has no override, so nothing was changed.\n", "")
	for _, arguments := range [][]string{{"--override", " "}, {"--for", "2h"}, {"--override", "x", "--for", "169h"}, {"--override", "x", "--for", "0s"}} {
		for _, command := range [][]string{{"update", "agents", "--max-runners", "2"}, {"uncordon", "agents"}} {
			got := cloop(t, append(append([]string{"executor", "pool"}, command...), arguments...)...)
			if got.code != 2 || len(asked) > 0 {
				t.Errorf("%v %v: exit code %d, asked %v: %s", command, arguments, got.code, asked, got.stderr)
			}
		}
	}
}
