package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/printable"
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

// formatsAnnotation of a command lists its formats, separated by commas, where
// they are more than text, json and yaml.
const formatsAnnotation = "cloop.dev/formats"

// formatsOf are the formats that a command has.
func formatsOf(cmd *cobra.Command) []string {
	if formats, ok := cmd.Annotations[formatsAnnotation]; ok {
		return strings.Split(formats, ",")
	}
	return []string{formatText, formatJSON, formatYAML}
}

// alternatives joins names for a sentence.
func alternatives(names []string) string {
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// checkOutput refuses, before any work is done, formats that there are not, two
// that would be mixed in one place, and files that cannot be written.
func (o *options) checkOutput(formats []string) error {
	places := map[string]string{}
	for _, value := range o.output {
		format, file, toFile := strings.Cut(value, "=")
		switch {
		case !slices.Contains(formats, format):
			return fmt.Errorf("-o %s: no such format: use %s", format, alternatives(formats))
		case toFile && file == "":
			return fmt.Errorf("-o %s: the file has no name: use -o %s=FILE", value, format)
		}
		place := placeOf(file)
		other, taken := places[place]
		switch {
		case taken && file == "":
			return fmt.Errorf("-o %s,%s: only one format can go to standard output: write the others to a file with -o %s=FILE", other, format, format)
		case taken:
			return fmt.Errorf("-o %s: %s goes to that file already: give each format its own", value, other)
		}
		places[place] = format
		if err := writable(file); file != "" && err != nil {
			return fmt.Errorf("-o %s: %w", value, err)
		}
	}
	return nil
}

// placeOf is equal for names of one file, as far as that is to be known before it
// is there; empty for no name.
func placeOf(file string) string {
	if file == "" {
		return ""
	}
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	} else if directory, err := filepath.EvalSymlinks(filepath.Dir(file)); err == nil {
		file = filepath.Join(directory, filepath.Base(file))
	}
	if absolute, err := filepath.Abs(file); err == nil {
		return absolute
	}
	return filepath.Clean(file)
}

// writable says why a file cannot be written, as far as that is to be known
// before.
func writable(file string) error {
	directory := filepath.Dir(file)
	switch info, err := os.Stat(directory); {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("there is no directory %s: create it first", directory)
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a directory: name a file in one", directory)
	}
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		return errors.New("it is a directory: name a file in it")
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

// observeShown is told of what commands show: tests hold it to what Outputs lists.
var observeShown = func(_ string, _ any) {}

// show writes a value in every format that was asked for. Text is what the
// function writes; cells that it separates by tabs are aligned.
func (a *app) show(value any, text func(io.Writer)) error {
	observeShown(a.command, value)
	for _, t := range a.options.targets() {
		var b bytes.Buffer
		err := encode(&b, t.format, value, text)
		if err == nil {
			err = a.write(t, b.Bytes())
		}
		if err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
	return nil
}

// write puts an output where it was asked for. A file is replaced at once: what
// collects it never finds a part.
func (a *app) write(t target, data []byte) error {
	if t.file == "" {
		_, err := a.stdout.Write(data)
		return err
	}
	name, mode := t.file, fs.FileMode(0o644)
	// The file that a link leads to is meant, not the link.
	if linked, err := filepath.EvalSymlinks(name); err == nil {
		name = linked
	}
	switch info, err := os.Stat(name); {
	case err == nil && !info.Mode().IsRegular():
		// /dev/stdout, or a pipe: there is nothing to replace.
		return writeInto(name, data)
	case err == nil:
		mode = info.Mode().Perm()
	}
	return atomicfile.Write(name, data, mode)
}

func writeInto(name string, data []byte) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Close())
}

func encode(w io.Writer, format string, value any, text func(io.Writer)) error {
	switch format {
	case formatJSON:
		return writeJSON(w, value)
	case formatYAML:
		asJSON, err := json.Marshal(value)
		if err != nil {
			return err
		}
		encoded, err := printable.YAML(asJSON)
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

func writeJSON(w io.Writer, value any) error {
	encoder := json.NewEncoder(printable.JSONWriter{To: w})
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(value)
}

// row writes cells that the columns of a table line up on.
func row(w io.Writer, cells ...any) {
	say(w, strings.TrimPrefix(strings.Repeat("\t%v", len(cells)), "\t")+"\n", cells...)
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
