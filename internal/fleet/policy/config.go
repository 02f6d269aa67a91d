package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"cloop.dev/cloop/schemas"
)

// ConfigFile is where a repository says which findings it bears.
const ConfigFile = ".cloop/config.yaml"

// Bounds on the files of .cloop.
const (
	// maxFile in bytes: ten times what a large fleet has to say.
	maxFile = 64 << 10
	// maxIgnores bounds the ignores, each of which is held against each finding.
	maxIgnores = 200
	maxPaths   = 50
	// maxFailures bounds how many problems of a file are told.
	maxFailures = 50
)

// Config is what a configuration says.
type Config struct {
	// Severities: rule → what it weighs here.
	Severities map[string]schemas.Severity
	Ignores    []*Ignore
	Excludes   []*Exclude
}

// Exclude keeps directories from being looked through for what to check.
type Exclude struct {
	// Reason is why, never empty.
	Reason string
	paths  []pattern
}

// Excluded says whether nothing in a directory is looked for.
func (c *Config) Excluded(dir string) bool {
	return slices.ContainsFunc(c.Excludes, func(e *Exclude) bool { return matchAny(e.paths, dir) })
}

// ParseConfig reads a configuration. What cannot be meant is a problem at its
// line and counts for nothing; the rest counts.
func ParseConfig(file string, data []byte, known Known) (*Config, []schemas.Problem) {
	r := &configReader{file: file, known: known, config: &Config{Severities: map[string]schemas.Severity{}}}
	r.read(data)
	return r.config, r.problems
}

type configReader struct {
	file     string
	known    Known
	config   *Config
	problems []schemas.Problem
	failed   int
}

// fail counts the problems even where there are more than anybody reads.
func (r *configReader) fail(node *yaml.Node, path, message, hint string) {
	if r.failed++; r.failed > maxFailures {
		return
	}
	r.problems = append(r.problems, place{r.file, node.Line, node.Column}.problem(path, message, hint))
}

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

func (r *configReader) read(data []byte) {
	if len(data) > maxFile {
		r.fail(&yaml.Node{}, "", fmt.Sprintf("the file is larger than %d KiB", maxFile>>10), "ignore whole directories rather than files")
		return
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document yaml.Node
	switch err := decoder.Decode(&document); {
	case errors.Is(err, io.EOF):
		return
	case err != nil:
		r.syntax(err)
		return
	}
	var more yaml.Node
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		r.fail(&more, "", "the file has more than one document", "put all into one")
		return
	}
	root := document.Content[0]
	if root.Kind == yaml.ScalarNode && root.ShortTag() == "!!null" || r.aliased(&document) {
		return
	}
	for _, f := range r.fields(root, "", "severities", "ignore", "exclude") {
		switch f.name {
		case "severities":
			r.severities(f.value)
		case "ignore":
			r.ignores(f.value)
		case "exclude":
			r.excludes(f.value)
		}
	}
}

func (r *configReader) syntax(err error) {
	at := &yaml.Node{Line: 1}
	text := err.Error()
	if match := yamlLine.FindStringSubmatch(text); match != nil {
		text = text[len(match[0]):]
		at.Line, _ = strconv.Atoi(match[1])
	}
	r.fail(at, "", text, "correct the YAML; nothing of the file counts until then")
}

// aliased refuses anchors: a few lines of them stand for more than there is
// memory.
func (r *configReader) aliased(node *yaml.Node) bool {
	if node.Kind == yaml.AliasNode {
		r.fail(node, "", "there is an alias", "write out what it stands for")
		return true
	}
	for _, child := range node.Content {
		if r.aliased(child) {
			return true
		}
	}
	return false
}

// entry is a field with the path that problems name it by.
type entry struct {
	name, path string
	key, value *yaml.Node
}

// fields are those of a mapping that are among the names; others are problems.
// Without names every name is good.
func (r *configReader) fields(node *yaml.Node, path string, names ...string) []entry {
	if node.Kind != yaml.MappingNode {
		r.fail(node, path, "this must be a mapping", "write it as docs/rules.md shows")
		return nil
	}
	var all []entry
	seen := map[string]bool{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		f := entry{name: node.Content[i].Value, key: node.Content[i], value: node.Content[i+1]}
		f.path = strings.TrimPrefix(path+"."+f.name, ".")
		switch {
		case seen[f.name]:
			r.fail(f.key, f.path, "the field is there twice", "remove one of the two")
		case len(names) > 0 && !isOne(f.name, names):
			r.fail(f.key, f.path, "unknown field", "the fields here are "+strings.Join(names, ", "))
		default:
			all = append(all, f)
		}
		seen[f.name] = true
	}
	return all
}

func isOne(text string, of []string) bool {
	for _, one := range of {
		if text == one {
			return true
		}
	}
	return false
}

// text is a scalar that YAML takes for a text, or a date.
func (r *configReader) text(f entry) (string, bool) {
	tag := f.value.ShortTag()
	if f.value.Kind != yaml.ScalarNode || tag != "!!str" && tag != "!!timestamp" {
		r.fail(f.value, f.path, "this must be a text", "put it in quotes")
		return "", false
	}
	text := strings.TrimSpace(f.value.Value)
	if text == "" {
		r.fail(f.value, f.path, "this must not be empty", "say it, or remove the entry")
	}
	return text, text != ""
}

func (r *configReader) severities(node *yaml.Node) {
	for _, f := range r.fields(node, "severities") {
		severity := schemas.Severity(f.value.Value)
		if severity != schemas.SeverityError && severity != schemas.SeverityWarning {
			r.fail(f.value, f.path, quoted(f.value.Value)+" is no severity", "write error or warning; to turn a rule off, ignore it with a reason")
			continue
		}
		if message, hint := judgeID(r.known, f.name); message != "" {
			r.fail(f.key, f.path, message, hint)
			continue
		}
		r.config.Severities[f.name] = severity
	}
}

func (r *configReader) ignores(node *yaml.Node) {
	r.list(node, "ignore", func(item *yaml.Node, path string) {
		before := r.failed
		if ignore := r.ignore(item, path); r.failed == before {
			r.config.Ignores = append(r.config.Ignores, ignore)
		}
	})
}

func (r *configReader) excludes(node *yaml.Node) {
	r.list(node, "exclude", func(item *yaml.Node, path string) {
		before := r.failed
		exclude := &Exclude{}
		for _, f := range r.fields(item, path, "paths", "reason") {
			switch f.name {
			case "paths":
				exclude.paths = r.paths(f)
			case "reason":
				exclude.Reason, _ = r.text(f)
			}
		}
		r.require(before, item, path, requirement{"paths", len(exclude.paths) == 0, "name directories"}, requireReason(exclude.Reason))
		if r.failed == before {
			r.config.Excludes = append(r.config.Excludes, exclude)
		}
	})
}

// list reads each entry of a list of bounded length.
func (r *configReader) list(node *yaml.Node, name string, read func(item *yaml.Node, path string)) {
	if node.Kind != yaml.SequenceNode {
		r.fail(node, name, "this must be a list", "write it as docs/rules.md shows")
		return
	}
	for i, item := range node.Content {
		if i == maxIgnores {
			r.fail(item, name, fmt.Sprintf("there are more than %d entries", maxIgnores), "name whole directories rather than files")
			return
		}
		read(item, fmt.Sprintf("%s[%d]", name, i))
	}
}

// requirement is a field that has to be there.
type requirement struct {
	name   string
	absent bool
	hint   string
}

func requireReason(reason string) requirement {
	return requirement{"reason", reason == "", "say why: whoever reviews the change reads it"}
}

// require tells of fields that are not there, unless something else failed since.
func (r *configReader) require(before int, node *yaml.Node, path string, fields ...requirement) {
	if r.failed > before {
		return
	}
	for _, missing := range fields {
		if missing.absent {
			r.fail(node, path+"."+missing.name, "this is required", missing.hint)
		}
	}
}

func (r *configReader) ignore(node *yaml.Node, path string) *Ignore {
	ignore := &Ignore{File: r.file, Line: node.Line, Column: node.Column}
	before := r.failed
	for _, f := range r.fields(node, path, "rule", "paths", "reason", "until") {
		switch f.name {
		case "rule":
			r.rule(f, ignore)
		case "paths":
			ignore.paths = r.paths(f)
		case "reason":
			ignore.Reason, _ = r.text(f)
		case "until":
			r.until(f, ignore)
		}
	}
	r.require(before, node, path, requirement{"rule", ignore.Rule == "", "name the rule"},
		requirement{"paths", len(ignore.paths) == 0, `name files or directories; ["**"] is all of them`}, requireReason(ignore.Reason))
	return ignore
}

func (r *configReader) rule(f entry, ignore *Ignore) {
	id, ok := r.text(f)
	if !ok {
		return
	}
	if message, hint := judgeID(r.known, id); message != "" {
		r.fail(f.value, f.path, message, hint)
		return
	}
	ignore.Rule = id
}

func (r *configReader) paths(f entry) (paths []pattern) {
	if f.value.Kind != yaml.SequenceNode || len(f.value.Content) > maxPaths {
		r.fail(f.value, f.path, fmt.Sprintf("this must be a list of at most %d paths", maxPaths), `write [clusters/eu] or ["**"]`)
		return nil
	}
	for i, item := range f.value.Content {
		one := entry{path: fmt.Sprintf("%s[%d]", f.path, i), value: item}
		text, ok := r.text(one)
		if !ok {
			continue
		}
		path, err := newPattern(text)
		if err != nil {
			r.fail(item, one.path, err.Error(), "write a path such as clusters/eu/** or pools/base/gpu.yaml")
			continue
		}
		paths = append(paths, path)
	}
	return paths
}

func (r *configReader) until(f entry, ignore *Ignore) {
	text, ok := r.text(f)
	if !ok {
		return
	}
	day, err := time.Parse(time.DateOnly, text)
	if err != nil || day.IsZero() {
		r.fail(f.value, f.path, quoted(text)+" is no day", "write the last day that it counts as 2027-03-31")
		return
	}
	ignore.Until = day
}
