package fleet_test

import (
	"encoding/json"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

// What a check or a drift report says is kept in conditions and posted to pull
// requests: a password that somebody committed must not go there too.
func TestPasswordsOfACommitAreNotShown(t *testing.T) {
	const password = "hunter2"
	committed := strings.Replace(basePool, "https://", "https://user:"+password+"@", 1)
	if committed == basePool {
		t.Fatal("the fixture has no URL")
	}
	show := func(what string, value any) {
		t.Helper()
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		if text := string(data); strings.Contains(text, password) || !strings.Contains(text, "[redacted]@") {
			t.Errorf("%s: %s", what, text)
		}
	}
	files := with(sound(), map[string]string{"pools/base/gpu.yaml": committed})
	report := check(t, files)
	if !report.Failed() {
		t.Error("user information is no problem")
	}
	show("check", report)
	show("kustomize", check(t, map[string]string{
		"kustomization.yaml": "resources: [\"https://user:" + password + "@git.example.com/x?ref=v1\"]\n",
	}))
	in := agreeing(t)
	set(t, in.Clusters[0].Git[0].Object, "https://user:"+password+"@hub.example.com", "spec", "hubURL")
	drift := fleet.Drift(in)
	show("drift", drift)
	show("drift as text", drift.Text())
}
