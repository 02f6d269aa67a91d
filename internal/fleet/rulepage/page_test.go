package rulepage_test

import (
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/fleet/rulepage"
	"cloop.dev/cloop/schemas"
)

// Each example raises exactly its rule where it is bad, and nothing where it is
// good.
func TestExamples(t *testing.T) {
	validator, err := schemas.NewValidator()
	if err != nil {
		t.Fatal(err)
	}
	check := func(t *testing.T, files []rulepage.File) *fleet.Report {
		dir := t.TempDir()
		content := map[string]string{}
		for _, file := range files {
			content[file.Name] = file.Content
		}
		fleettest.WriteFiles(t, dir, content)
		report, err := fleet.Check(t.Context(), validator, dir)
		if err != nil {
			t.Fatal(err)
		}
		return report
	}
	for _, rule := range fleet.Rules() {
		t.Run(rule.ID, func(t *testing.T) {
			example, err := rulepage.ExampleOf(rule.ID)
			if err != nil {
				t.Fatal(err)
			}
			broken := check(t, example.Bad).Problems
			if len(broken) == 0 || slices.ContainsFunc(broken, func(p schemas.Problem) bool { return p.Rule != rule.ID || p.Severity != rule.Severity }) {
				t.Errorf("the bad example raises %v", broken)
			}
			if slices.ContainsFunc(broken, func(p schemas.Problem) bool { return p.File == "" || p.Line < 1 || p.Column < 1 }) {
				t.Errorf("a problem of the bad example has no place: %+v", broken)
			}
			if sound := check(t, example.Good); len(sound.Problems) > 0 || sound.Judged == 0 {
				t.Errorf("the good example raises %v, with %d documents judged", sound.Problems, sound.Judged)
			}
		})
	}
}

func TestPageHasEveryRule(t *testing.T) {
	page, err := rulepage.Page()
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range fleet.Rules() {
		if !strings.Contains(string(page), "\n## "+rule.ID+"\n") {
			t.Errorf("the page lacks %s", rule.ID)
		}
	}
}
