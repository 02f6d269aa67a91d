package output_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/text"

	"cloop.dev/cloop/internal/fleet/output"
)

var (
	gfm = goldmark.New(goldmark.WithExtensions(extension.GFM))
	// active is what a forge makes something of in text that is not code: a
	// mention, a reference, a link, HTML, an emoji's or a commit's name.
	active = regexp.MustCompile(`[@#~%&$^<>\[\]{}*_|\\` + "`" + `]|![^ ]|://|\bwww\.\S|\bGH-[0-9]|:[a-z0-9]+:|\b[0-9a-f]{7,40}\b`)
)

// validMarkdown reads a comment as a forge does: it has no more than is ours.
func validMarkdown(t *testing.T, _ *output.Result, data []byte) {
	t.Helper()
	if len(data) > 60_000 {
		t.Errorf("the comment has %d bytes", len(data))
	}
	if !strings.HasPrefix(string(data), output.Marker+"\n## ") {
		t.Errorf("the comment does not begin with the marker and the answer: %.100s", data)
	}
	noControls(t, output.Markdown, string(data))
	for _, line := range strings.Split(string(data), "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "/") {
			t.Errorf("GitLab takes a line for a command: %s", line)
		}
	}
	document := gfm.Parser().Parse(text.NewReader(data))
	err := ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch node := node.(type) {
		case *ast.CodeSpan:
			return ast.WalkSkipChildren, nil
		case *ast.HTMLBlock:
			if node.Lines().Len() != 1 || string(node.Lines().Value(data)) != output.Marker+"\n" {
				t.Errorf("there is HTML: %q", node.Lines().Value(data))
			}
		case *ast.Link:
			if !strings.HasPrefix(string(node.Destination), "https://cloop.dev/docs/reference/rules.md#") {
				t.Errorf("there is a link to %s", node.Destination)
			}
		case *ast.Text:
			if found := active.Find(node.Value(data)); found != nil {
				t.Errorf("text has %q: %q", found, node.Value(data))
			}
		case *ast.Document, *ast.Heading, *ast.Paragraph, *ast.TextBlock, *ast.List, *ast.ListItem, *ast.Emphasis:
		default:
			t.Errorf("there is a %s: %s", node.Kind(), data)
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// words of a comment, in code or not.
func markdownText(data []byte) string {
	var b strings.Builder
	document := gfm.Parser().Parse(text.NewReader(data))
	_ = ast.Walk(document, func(node ast.Node, entering bool) (ast.WalkStatus, error) {
		if leaf, ok := node.(*ast.Text); ok && entering {
			b.Write(leaf.Value(data))
			b.WriteByte(' ')
		}
		return ast.WalkContinue, nil
	})
	return b.String()
}

var gaps = regexp.MustCompile("[\\s\u00a0`]+")

// Nothing is lost by what keeps text from acting.
func TestMarkdownShowsTheWholeMessage(t *testing.T) {
	for _, message := range hostile {
		if len(message) > 500 {
			continue
		}
		problem := wrong("a.yaml", 1)
		problem.Message = "before " + message + " after"
		result := output.Judge(reportOf(problem))
		all := rendered(t, result)
		_, visible, _ := strings.Cut(readGitLab(t, all[output.GitLab])[0].Description, "before ")
		visible = strings.TrimSuffix(visible, " (do this) in clusters/eu")
		if got := gaps.ReplaceAllString(markdownText(all[output.Markdown]), ""); !strings.Contains(got, gaps.ReplaceAllString(visible, "")) {
			t.Errorf("of %q the comment shows %q", visible, got)
		}
	}
}
