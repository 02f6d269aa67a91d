package hub_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
)

// The hub takes what the check before the merge took, by the same files of the
// same commit, and refuses what that refused.
func TestSyncHonoursThePolicyOfTheRepository(t *testing.T) {
	f := follow(t, nil)
	f.untilSynced()
	sync := f.synced(f.commit(map[string]string{
		".cloop/rules.cue": `rules: small: {message: "a pool has at most 5 runners", expression: "object.spec.maxRunners <= 5"}` + "\n",
		"hub/demo.yaml":    hubPool("demo", 7, "Revoke", ""),
	}), hubv1.SyncFailed)
	if !strings.Contains(sync.Message, "hub/demo.yaml:1") || !strings.Contains(sync.Message, "a pool has at most 5 runners") {
		t.Errorf("the message is %q", sync.Message)
	}
	if now := f.get("demo"); now.MaxRunners != 2 {
		t.Errorf("the pool has %d runners", now.MaxRunners)
	}
	f.synced(f.commit(map[string]string{"hub/demo.yaml": "# cloop:ignore small until the split\n" + hubPool("demo", 7, "Revoke", "")}), hubv1.SyncReady)
	if now := f.get("demo"); now.MaxRunners != 7 {
		t.Errorf("the pool has %d runners", now.MaxRunners)
	}
	sync = f.synced(f.commit(map[string]string{"hub/demo.yaml": "# cloop:ignore schema because\n" + hubPool("demo", -1, "Revoke", "")}), hubv1.SyncFailed)
	if !strings.Contains(sync.Message, "rule schema cannot be turned off") || f.get("demo").MaxRunners != 7 {
		t.Errorf("the message is %q", sync.Message)
	}
}
