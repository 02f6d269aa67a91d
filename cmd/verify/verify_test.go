package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestCoverageNamesEveryProblem(t *testing.T) {
	tests := map[string]bool{"internal/pool.TestDecide": true}
	lines := []string{
		coverageHeader,
		"scale-1\tScaling\tstarts one\tinternal/pool.TestDecide",
		"scale-2\tScaling\tstops one\tinternal/pool.TestGone",
		"scale-2\tScaling\tstops two\tlater: volumes come with persistence",
		"scale-3\tScaling\tstops three\tlater: ",
		"scale-4\tScaling\tstops four\t",
		"scale-5\tScaling",
	}
	want := []string{
		"docs/spec-coverage.tsv:3: scale-2 names internal/pool.TestGone, which does not exist",
		"docs/spec-coverage.tsv:4: scale-2 is there twice",
		"docs/spec-coverage.tsv:5: scale-3 is for later without a reason",
		"docs/spec-coverage.tsv:6: scale-4 names no test and no reason",
		"docs/spec-coverage.tsv:7: 2 columns",
	}
	if got := checkCoverage(lines, tests); !slices.Equal(got, want) {
		t.Errorf("problems are\n%q, want\n%q", got, want)
	}
}

func TestClaimsWithoutATestAreNamed(t *testing.T) {
	tests := map[string]bool{"internal/hub.TestThere": true}
	got := checkClaims([]string{
		"| cannot | shown by |", "| --- | --- |",
		"| do this | `internal/hub.TestThere` |", "| do that | `internal/hub.TestGone` |", "| do more | trust us |", "It can do the rest.",
	}, tests)
	want := []string{"docs/threat-model.md:4: there is no test internal/hub.TestGone", "docs/threat-model.md:5: a claim without a test"}
	if !slices.Equal(got, want) {
		t.Errorf("problems are\n%q, want\n%q", got, want)
	}
}

func TestDifferencesNameFileAndLine(t *testing.T) {
	before := map[string][]byte{"same": []byte("a"), "changed": []byte("a\nb\nc"), "removed": nil}
	after := map[string][]byte{"same": []byte("a"), "changed": []byte("a\nx\nc"), "made": nil}
	want := []string{
		"changed:2: not what make generate writes: run make generate and commit",
		"made: make generate makes it: run make generate and commit",
		"removed: make generate removes it: run make generate and commit",
	}
	if got := differences(before, after); !slices.Equal(got, want) {
		t.Errorf("problems are\n%q, want\n%q", got, want)
	}
}

func TestDeadLinks(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "docs", "start.md"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	line := "[a](docs/start.md#top) [b](https://example.com/x) [c](#here) ![d](docs/gone.png) `^[a-z]([0-9]*)$`"
	if got, want := deadLinks(root, "README.md", line), []string{"docs/gone.png"}; !slices.Equal(got, want) {
		t.Errorf("dead links are %q, want %q", got, want)
	}
}
