package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/fluxcd/pkg/envsubst"
	"github.com/fluxcd/pkg/envsubst/parse"
	yamlv3 "go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

// Variables are the values for ${NAME} in what a path renders. Nil replaces
// nothing; one without values still takes the defaults that the text gives.
type Variables struct {
	values map[string]variable
	// refused: name → why what is given for it is no value.
	refused map[string]refusal
	// roots: path → values that win over the others in what it renders.
	roots map[string]*Variables
}

// variable is a value and the place that gives it; the place is empty where no
// file does.
type variable struct {
	text string
	at   placed
}

// refusal says why something is no value, and what to do.
type refusal struct{ why, remedy string }

// maxValue bounds one value, in bytes, as the kind PoolSync does.
const maxValue = 4096

// variableName is what a variable may be called, as in Flux and in a PoolSync.
var variableName = regexp.MustCompile(`^[_a-zA-Z][_a-zA-Z0-9]*$`)

// NewVariables makes variables of values, a later map before an earlier one. An
// error names every value that cannot be one.
func NewVariables(values ...map[string]string) (*Variables, error) {
	v := &Variables{values: map[string]variable{}}
	var wrong []error
	for _, from := range values {
		for _, name := range slices.Sorted(maps.Keys(from)) {
			wrong = append(wrong, v.set(name, from[name], placed{}))
		}
	}
	return v, errors.Join(wrong...)
}

// set takes a value in, on one line as Flux does.
func (v *Variables) set(name, text string, at placed) error {
	switch {
	case !variableName.MatchString(name):
		return fmt.Errorf("%q is no name of a variable: use letters, digits and underscores, and no digit first", name)
	case len(text) > maxValue:
		return fmt.Errorf("the value of %s is longer than %d bytes: shorten it", name, maxValue)
	}
	v.put(name, text, at)
	return nil
}

func (v *Variables) put(name, text string, at placed) {
	v.values[name] = variable{strings.ReplaceAll(text, "\n", ""), at}
}

// Over returns variables whose values win over those of others.
func (v *Variables) Over(others *Variables) *Variables {
	if others == nil {
		return v
	}
	all := &Variables{values: map[string]variable{}, refused: map[string]refusal{}}
	maps.Copy(all.values, others.values)
	maps.Copy(all.values, v.values)
	maps.Copy(all.refused, others.refused)
	maps.Copy(all.refused, v.refused)
	for _, one := range []*Variables{others, v} {
		for root, values := range one.roots {
			all = all.With(root, values)
		}
	}
	return all
}

// With returns variables with values that hold in one root alone, a path relative
// to the repository's, and win over the others there.
func (v *Variables) With(root string, values *Variables) *Variables {
	all := &Variables{values: map[string]variable{}, refused: map[string]refusal{}, roots: map[string]*Variables{}}
	if v != nil {
		maps.Copy(all.values, v.values)
		maps.Copy(all.refused, v.refused)
		maps.Copy(all.roots, v.roots)
	}
	all.roots[root] = values.Over(all.roots[root])
	return all
}

// in are the variables as they are in a root.
func (v *Variables) in(root string) *Variables {
	if v == nil || v.roots[root] == nil {
		return v
	}
	return v.roots[root].Over(&Variables{values: v.values, refused: v.refused})
}

// VariablesOf are the variables of a PoolSync; nil where it replaces nothing.
// read returns the data of an object that spec.substitute.from names, and nil
// for one that is not there.
func VariablesOf(spec *v1alpha1.Substitution, read func(v1alpha1.SubstituteReference) (map[string]string, error)) (*Variables, error) {
	if spec == nil {
		return nil, nil
	}
	var values []map[string]string
	for _, reference := range spec.From {
		data, err := read(reference)
		if err == nil && data == nil && !reference.Optional {
			err = errors.New("it does not exist: create it, or set optional")
		}
		if err != nil {
			return nil, fmt.Errorf("read the variables of %s %s: %w", reference.Kind, reference.Name, err)
		}
		values = append(values, data)
	}
	return NewVariables(append(values, spec.Vars)...)
}

// Digest is equal for variables that replace the same by the same.
func (v *Variables) Digest() string {
	if v == nil {
		return ""
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(v.values)) {
		b.WriteString(name + "=" + strconv.Quote(v.values[name].text) + "\n")
	}
	sum := sha256.Sum256([]byte(b.String()))
	return hex.EncodeToString(sum[:])
}

// lenient has what has no value stand for itself, in an object.
func (v *Variables) lenient(obj *unstructured.Unstructured) *Variables {
	all := v
	eachText(obj.Object, "", func(_, text string) {
		if !strings.Contains(text, "$") {
			return
		}
		tree, err := parseText(text)
		if err != nil {
			return
		}
		for _, name := range v.missing(tree.Root) {
			if all == v {
				all = v.Over(&Variables{})
			}
			all.put(name, "${"+name+"}", placed{})
		}
	})
	return all
}

// Objects with this label or annotation are left as they are.
const (
	substituteKey     = v1alpha1.Group + "/substitute"
	fluxSubstituteKey = "kustomize.toolkit.fluxcd.io/substitute"
	substituteOff     = "disabled"
)

// substituted says whether variables in the object are replaced at all: of other
// kinds than those that are applied, and those that say what is applied, nothing is.
func substituted(obj *unstructured.Unstructured) bool {
	for _, from := range []map[string]string{obj.GetLabels(), obj.GetAnnotations()} {
		if from[substituteKey] == substituteOff || from[fluxSubstituteKey] == substituteOff {
			return false
		}
	}
	return (Applicable(obj.GroupVersionKind()) || isFlux(obj)) && speaksOf(obj.Object, "$")
}

// hasVariables says whether any of the objects may have one.
func (r *rendering) hasVariables() bool {
	return slices.ContainsFunc(r.objects, func(o renderedObject) bool { return substituted(o.Object) && speaksOf(o.Object.Object, "${") })
}

// speaksOf says whether a text is somewhere in a value.
func speaksOf(value any, text string) bool {
	found := false
	eachText(value, "", func(_, s string) { found = found || strings.Contains(s, text) })
	return found
}

// eachText visits every text of a value, keys too, with the JSON pointer of the
// field that it stands in.
func eachText(value any, pointer string, visit func(pointer, text string)) {
	switch node := value.(type) {
	case string:
		visit(pointer, node)
	case map[string]any:
		for key, child := range node {
			visit(pointer+"/"+escape(key), key)
			eachText(child, pointer+"/"+escape(key), visit)
		}
	case []any:
		for i, child := range node {
			eachText(child, pointer+"/"+strconv.Itoa(i), visit)
		}
	}
}

// whole is a text that is one variable and nothing else.
var whole = regexp.MustCompile(`^\$\{([_a-zA-Z][_a-zA-Z0-9]*)\}$`)

// substitute replaces the variables of an object, as Flux does: in its text as
// YAML, so that a number may be made of a text. What has no value is a problem,
// and the object is then as it was; but what Flux's own object lacks is for Flux to say.
func (o *renderedObject) substitute(v *Variables) []schemas.Problem {
	if v == nil || !substituted(o.Object) {
		return nil
	}
	if isFlux(o.Object) {
		v = v.lenient(o.Object)
	}
	if problems := o.unresolved(v); len(problems) > 0 {
		if isFlux(o.Object) {
			return nil
		}
		return problems
	}
	changed, err := v.replaced(o.Object)
	if err != nil {
		return []schemas.Problem{o.unreplaced(v, err)}
	}
	if changed == nil {
		return nil
	}
	textsForNulls(changed)
	sources := map[string]placed{}
	o.sources(v, o.Object.Object, [2]string{}, sources)
	o.Object, o.variables, o.digest = changed, sources, nil
	return nil
}

// sources notes where fields are given whose place the object does not tell once
// its variables are replaced: whose value is one variable, and those of a key with
// variables, and what is below it. at is the pointer before that and after it.
func (o *renderedObject) sources(v *Variables, value any, at [2]string, sources map[string]placed) {
	if at[0] != at[1] {
		sources[at[1]] = o.at(at[0], 0)
	}
	switch node := value.(type) {
	case string:
		if match := whole.FindStringSubmatch(node); match != nil {
			if given := v.values[match[1]].at; given.file != "" {
				sources[at[1]] = given
			}
		}
	case map[string]any:
		for key, child := range node {
			o.sources(v, child, [2]string{at[0] + "/" + escape(key), at[1] + "/" + escape(v.key(key))}, sources)
		}
	case []any:
		for i, child := range node {
			index := "/" + strconv.Itoa(i)
			o.sources(v, child, [2]string{at[0] + index, at[1] + index}, sources)
		}
	}
}

// key is a key with its variables replaced.
func (v *Variables) key(key string) string {
	if !strings.Contains(key, "$") {
		return key
	}
	after, err := envsubst.Eval(key, func(name string) (string, bool) {
		value, ok := v.values[name]
		return value.text, ok
	})
	if err != nil {
		return key
	}
	return after
}

// about is a problem with a field of the object; its place is yet to be found.
func (o *renderedObject) about(rule, path, message string) schemas.Problem {
	problem := broken(rule, message)
	problem.Object, problem.Path = describe(o.Object), path
	return problem
}

// maxQuoted bounds how much of a text with variables is quoted, in bytes.
const maxQuoted = 80

// unresolved are the variables of the object that have no value, each at the
// field that speaks of it.
func (o *renderedObject) unresolved(v *Variables) []schemas.Problem {
	var problems []schemas.Problem
	seen := map[[2]string]bool{}
	eachText(o.Object.Object, "", func(pointer, text string) {
		if !strings.Contains(text, "$") {
			return
		}
		path := printPath(o.Object.Object, pointer)
		tree, err := parseText(text)
		if err != nil {
			why, remedy := unparsed(text, err)
			problem := o.locate(o.about(RuleSubstitution, path, fmt.Sprintf("%q cannot be replaced: %s", printable.Clip(text, maxQuoted), why)))
			problem.Hint = cmp.Or(remedy, problem.Hint)
			problems = append(problems, problem)
			return
		}
		for _, name := range v.missing(tree.Root) {
			if key := [2]string{pointer, name}; !seen[key] {
				seen[key] = true
				problems = append(problems, o.locate(v.valueless(name, o.about(RuleUnresolvedVariable, path, "${"+name+"} has no value"))))
			}
		}
	})
	slices.SortFunc(problems, func(a, b schemas.Problem) int {
		return cmp.Or(cmp.Compare(a.Path, b.Path), cmp.Compare(a.Message, b.Message))
	})
	return problems
}

// yamlWord is what YAML 1.1, as Kubernetes reads it, takes for a boolean or null where
// it is not in quotes.
var yamlWord = regexp.MustCompile(`^(?i:y|yes|on|n|no|off|true|false|null)$`)

// valueless tells a problem with a variable without a value why it has none, where
// somebody meant to give one.
func (v *Variables) valueless(name string, problem schemas.Problem) schemas.Problem {
	switch refused := v.refused[name]; {
	case refused.why != "":
		problem.Message += ": " + refused.why
		problem.Hint = refused.remedy
	case yamlWord.MatchString(name):
		problem.Hint = fmt.Sprintf("write the name in quotes where it is set, %q: …, since YAML reads it as another word without them, or give it another; %s", name, problem.Hint)
	}
	return problem
}

// missing are the variables of a text without a value and without a default.
func (v *Variables) missing(node parse.Node) (names []string) {
	switch n := node.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			names = append(names, v.missing(child)...)
		}
	case *parse.FuncNode:
		if _, ok := v.values[n.Param]; !ok && !defaults[n.Name] {
			names = append(names, n.Param)
		}
		for _, child := range n.Args {
			names = append(names, v.missing(child)...)
		}
	}
	return names
}

// defaults are the operators that need no value, as Flux's strict mode has it.
var defaults = map[string]bool{"-": true, "+": true, "=": true, "?": true, ":-": true, ":+": true, ":=": true, ":?": true}

// Bounds on what a substitution may take: the text that it makes, in bytes, and
// what matching patterns costs, in bytes compared.
const (
	maxSubstituted = 4 << 20
	maxMatching    = 1 << 28
)

// replaced is the object with its variables replaced; nil where there are none.
func (v *Variables) replaced(obj *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	before, err := obj.MarshalJSON()
	if err != nil {
		return nil, err
	}
	text, err := yaml.JSONToYAML(before)
	if err != nil {
		return nil, err
	}
	tree, err := parseText(string(text))
	if err != nil {
		return nil, err
	}
	cost := &costs{v: v}
	if size := cost.size(tree.Root); size > maxSubstituted || cost.matching > maxMatching {
		return nil, fmt.Errorf("%w: its variables could make more than %d MiB of it", errBounds, maxSubstituted>>20)
	}
	after, err := envsubst.Eval(string(text), func(name string) (string, bool) {
		value, ok := v.values[name]
		return value.text, ok
	})
	if err != nil {
		return nil, err
	}
	if after == string(text) {
		return nil, nil
	}
	var expanded aliases
	if err := expanded.add("the object", []byte(after)); err != nil {
		return nil, err
	}
	changed := &unstructured.Unstructured{}
	data, err := yaml.YAMLToJSON([]byte(after))
	if err == nil {
		err = changed.UnmarshalJSON(data)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoObject, err)
	}
	return changed, nil
}

// parseText parses a text with variables. The parser is recursive over the whole
// text: what could exhaust the stack is refused.
func parseText(text string) (tree *parse.Tree, err error) {
	if strings.Count(text, "$") > maxExpressions {
		return nil, fmt.Errorf("%w: more than %d variables in one object", errBounds, maxExpressions)
	}
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("it is no text with variables: %v", panicked)
		}
	}()
	return parse.Parse(text)
}

// maxExpressions bounds how many variables one object has.
const maxExpressions = 20_000

// costs bounds from above what replacing takes.
type costs struct {
	v        *Variables
	matching int64
}

// size is at least as long as what a node becomes, in bytes, and at most a
// little above the bound.
func (c *costs) size(node parse.Node) int64 {
	const most = maxSubstituted + 1
	switch n := node.(type) {
	case *parse.TextNode:
		return int64(len(n.Value))
	case *parse.ListNode:
		total := int64(0)
		for _, child := range n.Nodes {
			total = min(total+c.size(child), most)
		}
		return total
	case *parse.FuncNode:
		value, arguments, last := int64(len(c.v.values[n.Param].text)), int64(0), int64(0)
		for _, child := range n.Args {
			last = c.size(child)
			arguments = min(arguments+last, most)
		}
		switch n.Name {
		case "#", "##", "%", "%%":
			c.matching = min(c.matching+value*value*(arguments+1), maxMatching+1)
		case "//":
			return min((value+1)*(last+1), most)
		}
		return min(value+arguments+20, most)
	}
	return 0
}

// ReadVariables reads the values of variables from a text: a YAML or JSON map of
// name to value, or a ConfigMap. file, relative to the repository's root, is
// where a wrong value is reported; empty for a text that is not in it.
func ReadVariables(file string, data []byte) (*Variables, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: it is larger than %d MiB", errBounds, maxFile>>20)
	}
	if err := new(aliases).add("the file", data); err != nil {
		return nil, err
	}
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(data, &document); err != nil {
		return nil, fmt.Errorf("read the variables: %w", err)
	}
	v := &Variables{values: map[string]variable{}}
	if document.Kind == 0 {
		return v, nil
	}
	of := document.Content[0]
	if of.Kind != yamlv3.MappingNode {
		return nil, errNoVariables
	}
	for i := 0; i+1 < len(of.Content); i += 2 {
		if key, value := of.Content[i], of.Content[i+1]; key.Value == "data" && value.Kind == yamlv3.MappingNode {
			return v, v.read(file, value)
		}
	}
	return v, v.read(file, of)
}

var errNoVariables = errors.New("it is no map of name to value, and no ConfigMap: write NAME: value, one a line")

func (v *Variables) read(file string, of *yamlv3.Node) error {
	var wrong []error
	for i := 0; i+1 < len(of.Content); i += 2 {
		key, value := of.Content[i], of.Content[i+1]
		if value.Kind != yamlv3.ScalarNode {
			wrong = append(wrong, fmt.Errorf("line %d: the value of %s is no text: write it in quotes", value.Line, key.Value))
			continue
		}
		at := placed{}
		if file != "" {
			at = placed{file: file, line: int32(key.Line), column: int32(key.Column)}
		}
		wrong = append(wrong, v.set(key.Value, value.Value, at))
	}
	return errors.Join(wrong...)
}
