package diff

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"cloop.dev/cloop/internal/fleet/output"
	"cloop.dev/cloop/internal/printable"
)

// Formats lists the formats that a report has, in the order in which help texts
// name them.
func Formats() []output.Format {
	return []output.Format{output.Text, output.JSON, output.YAML, output.Markdown}
}

// Render shows the report in a format. Its error is of an unknown format.
func (r *Report) Render(format output.Format) ([]byte, error) {
	switch format {
	case output.Text:
		return r.text(), nil
	case output.JSON:
		return r.json()
	case output.YAML:
		data, err := json.Marshal(r)
		if err != nil {
			return nil, err
		}
		return printable.YAML(data)
	case output.Markdown:
		return r.markdown(), nil
	}
	return nil, fmt.Errorf("no such format: %s", format)
}

func (r *Report) json() ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(r); err != nil {
		return nil, err
	}
	return printable.JSON(b.Bytes()), nil
}

// text is for eyes: a paragraph for each overlay that differs, and the summary
// last.
func (r *Report) text() []byte {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(output.Logged(fmt.Sprintf(format, args...)) + "\n")
	}
	for i := range r.Overlays {
		overlay := &r.Overlays[i]
		if overlay.Unchanged && overlay.Note == "" {
			continue
		}
		line("%s", overlay.title())
		if overlay.Note != "" {
			line("  note: %s", overlay.Note)
		}
		for j := range overlay.Failures {
			failure := &overlay.Failures[j]
			line("  %s", failure.says())
			for _, problem := range failure.Problems {
				line("    %s", problem.String())
			}
		}
		for j := range overlay.Objects {
			overlay.Objects[j].text(&b, line)
		}
		b.WriteByte('\n')
	}
	for _, note := range r.Notes {
		line("note: %s", note)
	}
	if r.Reason == "" {
		line("%s", r.Summary)
	}
	return []byte(b.String())
}

// title names an overlay for people.
func (o *Overlay) title() string {
	if o.By == "" {
		return o.Path
	}
	if o.In != "" {
		return o.Path + " (" + o.By + " in " + o.In + ")"
	}
	return o.Path + " (" + o.By + ")"
}

// says names the revision that failed, and what that means.
func (f *Failure) says() string {
	more := ""
	if f.More > 0 {
		more = fmt.Sprintf(" (and %d problems more)", f.More)
	}
	if f.Revision == AtBase {
		return "not compared: the base cannot be rendered" + more
	}
	return "not compared: the work tree cannot be rendered, `cloop fleet check` shows all" + more
}

func (o *Object) text(b *strings.Builder, line func(string, ...any)) {
	line("  %s %s, %s", o.title(), o.happening(), o.Class)
	if o.Meaning != "" {
		line("    %s", o.Meaning)
	}
	if len(o.Fields) > 0 {
		var table strings.Builder
		w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
		for _, field := range o.Fields {
			_, _ = fmt.Fprintf(w, "    %s\t%s\t%s → %s\n", printable.Line(field.Path), field.Class, cell(field.From), cell(field.To))
		}
		// A strings.Builder does not fail.
		_ = w.Flush()
		for row := range strings.SplitSeq(strings.TrimSuffix(table.String(), "\n"), "\n") {
			line("%s", row)
		}
	}
	for _, impact := range o.Impact {
		line("    %s: %s", impact.place(), impact)
	}
}

func (i Impact) place() string {
	if i.Where == atHub {
		return "at the hub"
	}
	return "in cluster " + i.Where
}

// maxCell bounds a value in a table, in characters.
const maxCell = 60

func cell(value any) string {
	text := printable.Line(written(value))
	if runes := []rune(text); len(runes) > maxCell {
		text = string(runes[:maxCell-1]) + "…"
	}
	return text
}
