package fleet_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

var update = flag.Bool("update", false, "write what is found into testdata/sources")

// Each directory of testdata/sources is a repository with one way in which a
// value comes about. Its README says where its problems are to be put, and what
// is written there.
func TestSources(t *testing.T) {
	const corpus = "testdata/sources"
	cases, err := os.ReadDir(corpus)
	if err != nil || len(cases) < 25 {
		t.Fatalf("%d cases, %v", len(cases), err)
	}
	for _, entry := range cases {
		t.Run(entry.Name(), func(t *testing.T) {
			dir := filepath.Join(corpus, entry.Name())
			readme := filepath.Join(dir, "README.md")
			text, err := os.ReadFile(readme)
			if err != nil {
				t.Fatal(err)
			}
			prose, want, _ := strings.Cut(string(text), "\n```\n")
			report, err := fleet.Check(t.Context(), validator(t), dir)
			if err != nil {
				t.Fatal(err)
			}
			got := sources(t, dir, report)
			if *update {
				if err := os.WriteFile(readme, []byte(prose+"\n```\n"+got+"```\n"), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if want = strings.TrimSuffix(want, "```\n"); got != want {
				t.Errorf("found\n%swant\n%s", got, want)
			}
		})
	}
}

// sources lists the problems of a report: place, rule and field, the root that
// shows it, and the text from that place to the end of the line.
func sources(t *testing.T, dir string, report *fleet.Report) string {
	t.Helper()
	var b strings.Builder
	for i, p := range report.Problems {
		data, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(p.File)))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(data), "\n")
		if p.Line > len(lines) || p.Column > len(lines[p.Line-1])+1 {
			t.Fatalf("there is no %s:%d:%d", p.File, p.Line, p.Column)
		}
		var roots []string
		for _, subject := range report.Subjects {
			for _, index := range subject.Problems {
				if index == i {
					roots = append(roots, subject.Root)
				}
			}
		}
		fmt.Fprintf(&b, "%s:%d:%d %s %s, in %s\n    %s\n", p.File, p.Line, p.Column, p.Rule, p.Path, strings.Join(roots, " and "), lines[p.Line-1][p.Column-1:])
	}
	return b.String()
}
