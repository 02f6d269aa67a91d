package output_test

import (
	"encoding/json"
	"testing"

	"cloop.dev/cloop/internal/fleet/output"
)

// violation is an entry of a Code Quality report.
type violation struct {
	Description, Fingerprint, Severity string
	CheckName                          string `json:"check_name"`
}

func readGitLab(t *testing.T, data []byte) []violation {
	t.Helper()
	var violations []violation
	if err := json.Unmarshal(data, &violations); err != nil {
		t.Fatal(err)
	}
	return violations
}

func validGitLab(t *testing.T, _ *output.Result, data []byte) {
	t.Helper()
	against(t, codeQualitySchema, data)
	prints := map[string]bool{}
	for _, v := range readGitLab(t, data) {
		if prints[v.Fingerprint] {
			t.Errorf("the fingerprint %s is there twice: GitLab shows the first only", v.Fingerprint)
		}
		prints[v.Fingerprint] = true
		noControls(t, output.GitLab, v.Description)
	}
}
