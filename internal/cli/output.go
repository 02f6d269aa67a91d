package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/yaml"
)

// Formats of what is listed or shown.
const (
	formatText = "text"
	formatJSON = "json"
	formatYAML = "yaml"
)

// target is one -o: a format, and the file that it goes to.
type target struct {
	format string
	// file is empty for standard output.
	file string
}

// targets splits the values of -o, which `fleet check` takes several of.
func (o *options) targets() []target {
	if len(o.output) == 0 {
		return []target{{format: formatText}}
	}
	var targets []target
	for _, value := range o.output {
		format, file, _ := strings.Cut(value, "=")
		targets = append(targets, target{format: format, file: file})
	}
	return targets
}

// checkOutput refuses formats that there are not, and two that would be mixed
// on standard output.
func (o *options) checkOutput() error {
	var onStdout []string
	for _, t := range o.targets() {
		switch t.format {
		case formatText, formatJSON, formatYAML:
		default:
			return fmt.Errorf("-o %s: no such format: use text, json or yaml", t.format)
		}
		if t.file == "" {
			onStdout = append(onStdout, t.format)
		}
	}
	if len(onStdout) > 1 {
		return fmt.Errorf("-o %s: only one format can go to standard output: write the others to a file with -o %s=FILE",
			strings.Join(onStdout, ","), onStdout[1])
	}
	return nil
}

// text says whether standard output is for eyes.
func (a *app) text() bool {
	for _, t := range a.options.targets() {
		if t.file == "" {
			return t.format == formatText
		}
	}
	return false
}

// show writes a value in every format that was asked for. Text is what the
// function writes; cells that it separates by tabs are aligned.
func (a *app) show(value any, text func(io.Writer)) error {
	for _, t := range a.options.targets() {
		if t.file == "" {
			if err := encode(a.stdout, t.format, value, text); err != nil {
				return fmt.Errorf("write the result: %w", err)
			}
			continue
		}
		if err := encodeFile(t, value, text); err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	return nil
}

func encodeFile(t target, value any, text func(io.Writer)) error {
	file, err := os.Create(t.file)
	if err != nil {
		return err
	}
	if err := encode(file, t.format, value, text); err != nil {
		_ = file.Close()
		return err
	}
	return file.Close()
}

func encode(w io.Writer, format string, value any, text func(io.Writer)) error {
	switch format {
	case formatJSON:
		encoder := json.NewEncoder(w)
		encoder.SetEscapeHTML(false)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	case formatYAML:
		encoded, err := yaml.Marshal(value)
		if err != nil {
			return err
		}
		_, err = w.Write(encoded)
		return err
	}
	aligned := tabwriter.NewWriter(w, 0, 8, 3, ' ', 0)
	text(aligned)
	return aligned.Flush()
}

// row writes cells that the columns of a table line up on.
func row(w io.Writer, cells ...any) {
	for i, cell := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		fmt.Fprint(w, cell)
	}
	fmt.Fprint(w, "\n")
}

// listed keeps an empty list from being shown as null.
func listed[T any](items []T) []T {
	if items == nil {
		return []T{}
	}
	return items
}

// dash stands for an empty cell, so that columns can be counted by a script.
func dash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// age is how long ago a time was, in its largest unit.
func age(now, then time.Time) string {
	d := now.Sub(then)
	switch {
	case then.IsZero():
		return "-"
	case d < 0:
		return "0s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// shortRevision is the part of a commit hash that people recognise.
func shortRevision(revision string) string {
	if len(revision) > 12 {
		return revision[:12]
	}
	return revision
}
