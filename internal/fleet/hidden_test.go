package fleet_test

import (
	"strings"
	"testing"
)

// What a Secret holds, and what a field's name says is one, is in no message.
func TestSecretsAreInNoMessage(t *testing.T) {
	overlay := func(rest string) string { return "resources: [../../pools/base, s.yaml]\n" + rest }
	replaced := overlay("replacements:\n- source: {kind: Secret, name: s, fieldPath: stringData.password}\n  targets: [{select: {kind: ExecutorPool}, fieldPaths: [spec.maxRunners]}]\n")
	for name, files := range map[string]map[string]string{
		"a replacement":         {"clusters/eu/kustomization.yaml": replaced},
		"a literal":             {"clusters/eu/kustomization.yaml": overlay("secretGenerator:\n- name: a\n  literals: [hunter2]\n")},
		"a label of that name":  {"clusters/eu/kustomization.yaml": overlay(""), "pools/base/gpu.yaml": basePool + "  runnerLabels: {token: \"hunter2 \\\" x\"}\n"},
		"a token of a forge":    {"clusters/eu/kustomization.yaml": overlay(""), "pools/base/gpu.yaml": strings.Replace(basePool, "https://cloop.example.com", "ghp_hunter2hunter2hunter2", 1)},
		"a private key":         {"clusters/eu/kustomization.yaml": overlay(""), "pools/base/gpu.yaml": strings.Replace(basePool, "https://cloop.example.com", `"-----BEGIN RSA PRIVATE KEY----- hunter2"`, 1)},
		"a field of the Secret": {"clusters/eu/kustomization.yaml": overlay(""), "clusters/eu/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: [hunter2]\n"},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, with(with(sound(), map[string]string{"clusters/eu/s.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {password: hunter2}\n"}), files))
			if !report.Failed() && name != "a field of the Secret" {
				t.Error("nothing is wrong")
			}
			for _, problem := range report.Problems {
				if strings.Contains(problem.String(), "hunter2") {
					t.Errorf("shown: %s", problem)
				}
			}
		})
	}
}
