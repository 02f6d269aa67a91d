package diff_test

import (
	"testing"

	"cloop.dev/cloop/internal/fleet/diff"
)

// everything is a report in all its formats.
func everything(t testing.TB, report *diff.Report) string {
	t.Helper()
	report.Judge(diff.FailOnAny)
	all := ""
	for _, format := range diff.Formats() {
		data, err := report.Render(format)
		if err != nil {
			t.Fatal(err)
		}
		all += string(data)
	}
	return all
}
