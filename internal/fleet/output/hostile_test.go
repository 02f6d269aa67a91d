package output_test

import (
	"path"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/output"
	"cloop.dev/cloop/schemas"
)

// hostile is what somebody may put into a file of a pull request, or name one,
// to make a reader of the answer do something.
var hostile = []string{
	"::error::pwned", " ::add-mask::a", "\n::stop-commands::x", "a\r\n::warning file=x::y", "##[add-path]/tmp", "##vso[task.setvariable variable=a]b", "###", "%0A::error::x", "%25", "100%",
	"]]>", "]]]]><![CDATA[>", "<script>alert(1)</script>", "<!-- cloop-fleet-check -->", "-->", "&lt;b&gt;", "&#64;everyone", "<img src=x onerror=y>", "</details>", "<a\thref='https://evil.example'>",
	"`", "``", "a`b`c", "`a``b`", "``x`y``z`", "```\nx\n```", "~~~", strings.Repeat("`", 60), "` `", "\\`@everyone\\`",
	"@everyone", "@ everyone", "@org/team", "hello @everyone, look", "(@everyone)", "#1", "org/repo#1", "!1", "GH-12", "~label", "%milestone", "$`x`$", "deadbeefcafe", "0!", "www.", "user@example.com", ":tada:",
	"[x](https://evil.example)", "![i](https://evil.example/x.png)", "[x]: https://evil.example", "https://evil.example", "www.evil.example", "HTTPS://EVIL.EXAMPLE", "https\u200b://x",
	"|", "a|b|c", "---|---", "---", "===", "1. x", "- [ ] x", "* * *", "> x", "# x", "**x**", "_x_", "\\", "x\\", "\\\n", "[TOC]", "[[_TOC_]]", "{{ x }}", "{0}",
	"/close", "\n/merge", "\r\n/approve", "\n\n# Approved\n\nby @admin",
	"\x00", "\x1b[31mred\x1b[0m", "\x1b]8;;https://evil.example\x07x", "\b\b\bok", "\u202egnp.exe", "\u2066x\u2069", "\u200b\u200d\ufeff", "\u2028x\u2029", "\u0085", "\ufffe", "\uffff", "\U000e0041", "\ufffd", "\u3164\u115f", "⚠️",
	"\xff\xfe", "a\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "é ü 😀 日本語", "a\tb", "  two  spaces  ", " ", "", "\u00a0", "'", `"`, `"'`, "a=b,c=d", "section_start:1:x\r\x1b[0K",
	"../../etc/passwd", "/etc/passwd", "c:\\x", "file:///x", "javascript:alert(1)", "//evil.example/x", "a?b#c", "http:x",
	strings.Repeat("x", 100_000), strings.Repeat("é@", 3_000), strings.Repeat("] (", 2_000),
}

// wrong is a problem at a line of a file.
func wrong(file string, line int) schemas.Problem {
	return schemas.Problem{Rule: schemas.RuleCEL, Severity: schemas.SeverityError, File: file, Line: line, Column: 5,
		Object: "ExecutorPool team/gpu", Path: "spec.hubURL", Message: "must be an https URL", Hint: "do this"}
}

// reportOf is a report with one root and a pool that has the problems.
func reportOf(problems ...schemas.Problem) *fleet.Report {
	subject := fleet.Subject{Root: "clusters/eu", Object: "ExecutorPool team/gpu", Pool: "gpu", File: "pools/gpu.yaml", Line: 1}
	for i := range problems {
		subject.Problems = append(subject.Problems, i)
	}
	return &fleet.Report{
		Roots:    []fleet.RootReport{{Path: "clusters/eu", Documents: 1, Judged: 1, Pools: 1, Failed: true}},
		Problems: problems, Subjects: []fleet.Subject{subject}, Documents: 1, Judged: 1, Pools: 1,
	}
}

// everywhere is a report that has the text wherever a repository can put it,
// once as an error and once as a warning, of a pool, an object and a file.
func everywhere(text string) *fleet.Report {
	file := inRepository(text)
	if text == "" {
		text = "-"
	}
	problem := schemas.Problem{Rule: text, Severity: schemas.SeverityError, File: file, Line: 2, Column: 3, Object: "HubPool " + text, Path: text, Message: text, Hint: text}
	warning := problem
	warning.Severity, warning.Message = schemas.SeverityWarning, "x "+text
	plain := schemas.Problem{Rule: schemas.RuleSyntax, Severity: schemas.SeverityError, File: file, Message: text}
	return &fleet.Report{
		Roots:    []fleet.RootReport{{Path: file, Documents: 1, Judged: 1, Pools: 1, Failed: true}, {Path: "docs/" + file}},
		Problems: []schemas.Problem{problem, warning, plain},
		Subjects: []fleet.Subject{
			{Root: file, Object: "HubPool " + text, Pool: text, File: file, Line: 1, Problems: []int{0}},
			{Root: file, Object: text, File: file, Line: 1, Problems: []int{0, 1}},
			{Root: file, File: file, Problems: []int{2}},
		},
		Documents: 1, Judged: 1, Pools: 1,
		// One is like a problem that counts, numbers aside.
		Suppressed: []fleet.Suppressed{
			{Problem: plain, Ignored: fleet.Ignored{By: "config", Reason: text, File: file, Line: 1}},
			{Problem: problem, Ignored: fleet.Ignored{By: "comment", Reason: text, File: file, Line: 1}},
		},
		Rules: []fleet.Rule{{ID: text, Severity: schemas.SeverityError, Meaning: text, Remedy: text}},
	}
}

// inRepository is a path as a check has it, with a name as a file can have it.
func inRepository(name string) string {
	if clean := path.Clean("/" + strings.ReplaceAll(name, "\x00", "")); clean != "/" {
		return strings.TrimLeft(clean, "/")
	}
	return "."
}

// Whatever a repository says, every output is valid and does only what is ours.
func TestHostileTextDoesNotAct(t *testing.T) {
	for _, text := range hostile {
		rendered(t, output.Judge(everywhere(text)))
		if t.Failed() {
			t.Fatalf("with %.100q", text)
		}
	}
}

// FuzzRender looks for text that does.
func FuzzRender(f *testing.F) {
	for i, text := range hostile {
		// The others are TestHostileTextDoesNotAct's; the long ones take seconds
		// with the race detector.
		if i%2 == 0 && len(text) < 1000 {
			f.Add(text, hostile[(i+7)%50], hostile[(i+31)%50])
		}
	}
	f.Fuzz(func(t *testing.T, file, name, message string) {
		report := everywhere(message)
		file = inRepository(file)
		for i := range report.Problems {
			p := &report.Problems[i]
			p.File, p.Object, p.Path = file, "ExecutorPool "+name, name
		}
		report.Subjects[0].Pool, report.Roots[0].Path = name, file
		for i := range report.Subjects {
			report.Subjects[i].Root, report.Subjects[i].File = file, file
		}
		rendered(t, output.Judge(report))
	})
}
