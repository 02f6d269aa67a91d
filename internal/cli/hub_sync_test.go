package cli_test

import (
	"net/http"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
)

func TestApprovingAPrune(t *testing.T) {
	seen := stubHub(t, map[string]any{"POST /api/v1/syncs/fleet/approve-prune": hubv1.Sync{
		Name: "fleet", PruneWaits: &hubv1.PruneWaits{Revision: "abc", Pools: []string{"a", "b"}, Of: 3},
	}})
	approve := []string{"hub", "sync", "approve-prune", "fleet"}
	cloop(t, append(approve, "--revision", "abc")...).want(t, 0, "Sync fleet may let 2 pools go at abc, and does so now: `cloop fleet status` shows when it has.\n", "")
	if want := `POST /api/v1/syncs/fleet/approve-prune {"revision":"abc"}`; len(*seen) != 1 || (*seen)[0] != want {
		t.Errorf("the hub got %q, want %q", *seen, want)
	}
	if r := cloop(t, approve...); r.code != 2 {
		t.Errorf("without a revision it ends with %d", r.code)
	}
	stubHub(t, map[string]any{"POST /api/v1/syncs/fleet/approve-prune": &hubv1.Problem{
		Status: http.StatusConflict, Code: hubv1.CodeConflict, Detail: "sync fleet waits at revision abd, not abc", Remedy: "look",
	}})
	if r := cloop(t, append(approve, "--revision", "abc")...); r.code == 0 {
		t.Error("a refusal ends with 0")
	}
}
