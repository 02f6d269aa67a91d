// Package rulepage makes the reference page of the rules of `fleet check`, with
// an example of each that a test builds.
//
// In come the rules of package fleet and the examples beside this file. Out
// comes Markdown. No command imports it but the one that writes the page, so
// that the examples are in no other binary.
package rulepage

import (
	"bytes"
	"embed"
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/internal/fleet"
)

//go:embed examples/*.txt
var examples embed.FS

// Example is what a rule looks like: a repository that breaks it and nothing
// else, and one that breaks nothing.
type Example struct {
	// Note is a sentence on when the rule counts; may be empty.
	Note      string
	Bad, Good []File
}

// File is a file of a repository.
type File struct{ Name, Content string }

// ExampleOf reads the example of a rule. Its error says that there is none, or
// that it has no two repositories.
func ExampleOf(id string) (Example, error) {
	data, err := examples.ReadFile("examples/" + id + ".txt")
	if err != nil {
		return Example{}, fmt.Errorf("rule %s has no example: write internal/fleet/rulepage/examples/%s.txt", id, id)
	}
	var example Example
	var file *File
	for line := range strings.Lines(string(data)) {
		name, header := strings.CutPrefix(strings.TrimSuffix(line, " --\n"), "-- ")
		switch {
		case header && strings.HasPrefix(name, "bad/"):
			example.Bad = append(example.Bad, File{Name: strings.TrimPrefix(name, "bad/")})
			file = &example.Bad[len(example.Bad)-1]
		case header && strings.HasPrefix(name, "good/"):
			example.Good = append(example.Good, File{Name: strings.TrimPrefix(name, "good/")})
			file = &example.Good[len(example.Good)-1]
		case file == nil:
			example.Note += line
		default:
			file.Content += line
		}
	}
	if len(example.Bad) == 0 || len(example.Good) == 0 {
		return Example{}, fmt.Errorf("the example of rule %s has no files bad/… or good/…", id)
	}
	return example, nil
}

const introduction = `<!-- Written by cmd/docgen from internal/fleet. Change it there. -->

# Rules of fleet check

What ` + "`cloop fleet check`" + ` reports, by the id that every output names. An error makes the answer no; a
warning does not. [check.md](../check.md) tells how to run it, [rules.md](../rules.md) how to turn a rule
off, give it another severity, and write rules of your own. A rule that is *fixed* cannot be turned off: an
API server, the hub or kustomize refuses the document anyway.

Each example is a repository: the first breaks this rule and no other, the second none. A test checks both.
`

const ofTheRepository = `
## rules-of-the-repository

A finding by an id that is not on this page is by a rule of the repository's own, in ` + "`.cloop/rules.cue`" + `.
[rules.md](../rules.md#rules-of-your-own) tells how they are written.
`

// Page is docs/reference/rules.md: a section for each rule under its id, which
// the outputs link to.
func Page() ([]byte, error) {
	var b bytes.Buffer
	b.WriteString(introduction)
	for _, rule := range fleet.Rules() {
		example, err := ExampleOf(rule.ID)
		if err != nil {
			return nil, err
		}
		kind := string(rule.Severity)
		if rule.Fixed {
			kind += ", fixed"
		}
		remedy := strings.ToUpper(rule.Remedy[:1]) + strings.TrimSuffix(rule.Remedy[1:], ".") + "."
		fmt.Fprintf(&b, "\n## %s\n\n*%s.* %s %s\n", rule.ID, kind, rule.Meaning, remedy)
		if example.Note != "" {
			fmt.Fprintf(&b, "\n%s", example.Note)
		}
		b.WriteString("\nBad:\n")
		writeFiles(&b, example.Bad, nil)
		b.WriteString("\nGood:\n")
		writeFiles(&b, example.Good, example.Bad)
	}
	b.WriteString(ofTheRepository)
	return b.Bytes(), nil
}

// writeFiles writes files, but for those that were above as they are: what is the
// same in both is not what the rule is about.
func writeFiles(b *bytes.Buffer, files, above []File) {
	b.WriteString("\n```yaml\n")
	for i, file := range files {
		if i > 0 {
			b.WriteString("\n")
		}
		if slices.Contains(above, file) {
			fmt.Fprintf(b, "# %s, as above\n", file.Name)
			continue
		}
		fmt.Fprintf(b, "# %s\n%s", file.Name, file.Content)
	}
	b.WriteString("```\n")
}
