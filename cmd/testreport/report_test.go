package main

import (
	"strings"
	"testing"
	"time"
)

// events are what `go test -json` prints for one package that passes with a
// skipped test, one that fails, and one that does not compile.
const events = `
{"Time":"2026-01-01T10:00:05Z","Action":"start","Package":"cloop.dev/cloop/internal/good"}
{"Time":"2026-01-01T10:00:05Z","Action":"run","Package":"cloop.dev/cloop/internal/good","Test":"TestA"}
{"Time":"2026-01-01T10:00:06Z","Action":"output","Package":"cloop.dev/cloop/internal/good","Test":"TestA","Output":"quiet when it passes\n"}
{"Time":"2026-01-01T10:00:06Z","Action":"pass","Package":"cloop.dev/cloop/internal/good","Test":"TestA","Elapsed":1}
{"Time":"2026-01-01T10:00:06Z","Action":"output","Package":"cloop.dev/cloop/internal/good","Test":"TestB","Output":"=== RUN   TestB\n"}
{"Time":"2026-01-01T10:00:06Z","Action":"output","Package":"cloop.dev/cloop/internal/good","Test":"TestB","Output":"    b_test.go:9: no user namespaces\n"}
{"Time":"2026-01-01T10:00:06Z","Action":"output","Package":"cloop.dev/cloop/internal/good","Test":"TestB","Output":"--- SKIP: TestB (0.00s)\n"}
{"Time":"2026-01-01T10:00:06Z","Action":"skip","Package":"cloop.dev/cloop/internal/good","Test":"TestB","Elapsed":0}
{"Time":"2026-01-01T10:00:07Z","Action":"pass","Package":"cloop.dev/cloop/internal/good","Elapsed":2}
{"Time":"2026-01-01T10:00:06Z","Action":"start","Package":"cloop.dev/cloop/internal/bad"}
{"Time":"2026-01-01T10:00:08Z","Action":"output","Package":"cloop.dev/cloop/internal/bad","Test":"TestC","Output":"    c_test.go:3: got 1, want 2\n"}
{"Time":"2026-01-01T10:00:08Z","Action":"fail","Package":"cloop.dev/cloop/internal/bad","Test":"TestC","Elapsed":1.5}
{"Time":"2026-01-01T10:00:08Z","Action":"output","Package":"cloop.dev/cloop/internal/bad","Test":"TestD","Output":"WARNING: DATA RACE\n"}
{"Time":"2026-01-01T10:00:08Z","Action":"output","Package":"cloop.dev/cloop/internal/bad","Test":"TestD","Output":"Write at 0x1 by goroutine 7:\n"}
{"Time":"2026-01-01T10:00:08Z","Action":"output","Package":"cloop.dev/cloop/internal/bad","Test":"TestD","Output":"==================\n"}
{"Time":"2026-01-01T10:00:08Z","Action":"output","Package":"cloop.dev/cloop/internal/bad","Test":"TestD","Output":"quiet, too\n"}
{"Time":"2026-01-01T10:00:08Z","Action":"pass","Package":"cloop.dev/cloop/internal/bad","Test":"TestD","Elapsed":0}
{"Time":"2026-01-01T10:00:09Z","Action":"output","Package":"cloop.dev/cloop/internal/bad","Output":"WARNING: DATA RACE\n"}
{"Time":"2026-01-01T10:00:10Z","Action":"fail","Package":"cloop.dev/cloop/internal/bad","Elapsed":4}
{"ImportPath":"cloop.dev/cloop/internal/broken","Action":"build-output","Output":"broken.go:1:1: expected 'package'\n"}
{"ImportPath":"cloop.dev/cloop/internal/broken","Action":"build-fail"}
{"Time":"2026-01-01T10:00:10Z","Action":"skip","Package":"cloop.dev/cloop/internal/empty","Elapsed":0}
`

func TestReport(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	if err := r.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	r.finish(12 * time.Second)
	printed := out.String()
	for _, want := range []string{
		"got 1, want 2",
		"WARNING: DATA RACE",
		"Write at 0x1 by goroutine 7",
		"expected 'package'",
		"internal/broken does not compile",
		"internal/good TestB: b_test.go:9: no user namespaces",
		"compile and link                                       7.0 s",
		"tests                                                  5.0 s",
		"2 passed, 3 failed, 1 not run",
	} {
		if !strings.Contains(printed, want) {
			t.Errorf("the report lacks %q:\n%s", want, printed)
		}
	}
	if strings.Contains(printed, "quiet") {
		t.Error("the report shows the output of a test that passed")
	}
	if r.passed(false) {
		t.Error("a report with failures passed")
	}
}

func TestSkipsFailOnlyWhenStrict(t *testing.T) {
	var out strings.Builder
	r := newReport(&out)
	r.unable("the race detector", "there is no C compiler")
	r.finish(time.Second)
	if !r.passed(false) {
		t.Error("a skip failed a report that is not strict")
	}
	if r.passed(true) {
		t.Error("a strict report passed with a skip")
	}
	if want := "not run on this machine: 1\n  the race detector: there is no C compiler"; !strings.Contains(out.String(), want) {
		t.Errorf("the report does not say %q:\n%s", want, out.String())
	}
}
