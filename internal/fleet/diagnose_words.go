package fleet

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"cloop.dev/cloop/schemas"
)

// meaning is what an error of kustomize means: what to say, what to do, and
// where within the step, if that is more exact than the step.
type meaning struct {
	says *regexp.Regexp
	// own: a step of which that is said is wrong by itself.
	own     bool
	inWords func(f *failure, match []string)
}

// failure is a step that kustomize refuses.
type failure struct {
	scan *scan
	item *item
	part *part

	rule, message, remedy string
	at                    placed
	needs                 needs
}

// needs are what a step lacks, as far as it is known.
type needs struct {
	// own: it is wrong by itself.
	own bool
	// kind and name of an object that is not there.
	kind, name string
	// pointer to a field that an object does not have.
	pointer string
}

// words says what is wrong with a step.
func (s *scan) words(it *item, n int, said string) *failure {
	f := &failure{scan: s, item: it, part: &it.parts[n], rule: RuleBuild, message: it.field + ": " + said, at: it.parts[n].at}
	for _, m := range meanings {
		if match := m.says.FindStringSubmatch(said); match != nil {
			f.needs.own = m.own
			m.inWords(f, match)
			break
		}
	}
	return f
}

func (f *failure) problem() schemas.Problem {
	problem := broken(f.rule, f.message)
	problem.File, problem.Line, problem.Column = f.at.file, int(f.at.line), int(f.at.column)
	if f.remedy != "" {
		problem.Hint = f.remedy
	}
	return problem
}

// meanings are tried in order.
var meanings = []meaning{
	{regexp.MustCompile(`no resource matches strategic merge patch "([^"]*)"|failed to find unique target for patch (\S+)`), false, (*failure).noTarget},
	{regexp.MustCompile(`must specify a target for JSON patch`), true, func(f *failure, _ []string) {
		f.message, f.remedy = "a JSON patch does not say what it patches", "add a target to the entry, such as target: {kind: ExecutorPool}"
		f.atNode(f.part.node)
	}},
	{regexp.MustCompile(`Unexpected kind: (.*)$`), true, func(f *failure, match []string) {
		f.message, f.remedy = fmt.Sprintf("there is no operation %q", match[1]), "write add, remove, replace, move, copy or test"
	}},
	{regexp.MustCompile(`(?i)testing (?:value|path) .*failed`), false, func(f *failure, _ []string) {
		if op := f.part.operation; op != nil {
			f.message, f.remedy = fmt.Sprintf("%s is not what the operation test expects", op.Path), "correct the value, or remove the operation"
			f.needs.pointer = op.Path
		}
	}},
	{regexp.MustCompile(`(?i)missing (?:value|path|key)|nonexistent|out of bounds|invalid index|invalid array index`), false, (*failure).noPath},
	{regexp.MustCompile(`unable to parse requirement: (.*)$|(?:couldn't|unable to) parse the selector string(.*)$`), true, (*failure).badSelector},
	{regexp.MustCompile(`(error parsing regexp: .*)$`), true, func(f *failure, match []string) {
		f.message, f.remedy = "the target is no regular expression: "+match[1], "correct it; a text with special characters needs a backslash before them"
		f.atField("target", "select", "name")
	}},
	{regexp.MustCompile(`patch and path can't be set at the same time`), true, func(f *failure, _ []string) {
		f.message, f.remedy = "the entry has both a patch and a path", "remove one of the two, or make two entries of it"
		f.atNode(f.part.node)
	}},
	{regexp.MustCompile(`must specify one of patch and path|must specify a path or patch`), true, func(f *failure, _ []string) {
		f.message, f.remedy = "the entry has neither a patch nor a path", "add one of the two"
	}},
	{regexp.MustCompile(`unable to parse SM or JSON patch|unable to parse.*patch`), true, func(f *failure, _ []string) {
		if f.part.operation != nil {
			f.message, f.remedy = "kustomize reads a patch that begins with [ as JSON, and this is none", "put names and texts in double quotes, or begin each operation with a dash on a line of its own"
			return
		}
		f.message, f.remedy = "this is no patch: neither an object with apiVersion, kind and metadata.name nor a list of operations", "correct its text"
	}},
	{regexp.MustCompile(`nothing selected by (\S+?)(?::(.*))?$`), false, func(f *failure, match []string) {
		f.message, f.remedy = fmt.Sprintf("the source of the replacement, %s, is not among the objects here", idWords(match[1])), "correct the source, or list what defines it in resources"
		f.needs.kind, f.needs.name = idParts(match[1])
		f.atField("source")
	}},
	{regexp.MustCompile(`multiple matches for selector|more than one match`), false, func(f *failure, _ []string) {
		f.message, f.remedy = "the source of the replacement is more than one object", "add its name, kind or namespace"
		f.atField("source")
	}},
	{regexp.MustCompile("fieldPath `([^`]*)` is missing for replacement source (\\S+)"), false, func(f *failure, match []string) {
		f.message, f.remedy = fmt.Sprintf("the source of the replacement, %s, has no field %s", idWords(match[2]), match[1]), "correct fieldPath, or add the field to the source"
		f.needs.pointer = pointerTo(match[1])
		f.atField("source", "fieldPath")
	}},
	{regexp.MustCompile("unable to find field \"?`?([^\"`]*)\"?`? in replacement target"), false, func(f *failure, match []string) {
		f.message, f.remedy = fmt.Sprintf("a target of the replacement has no field %s", match[1]), "correct it, or write options: {create: true}"
		f.needs.pointer = pointerTo(match[1])
	}},
	{regexp.MustCompile("cannot decode !!(\\S+) `([^`]*)` as a !!(\\S+)"), false, (*failure).wrongType},
	{regexp.MustCompile(`missing metadata\.name in object \{(.*)$`), true, (*failure).noName},
	{regexp.MustCompile(`expected kind != 'Component'|is a [Cc]omponent`), true, func(f *failure, _ []string) {
		f.message, f.remedy = fmt.Sprintf("%v is a Component", f.item.value), "list it in components"
	}},
	{regexp.MustCompile(`must specify --enable-helm`), true, func(f *failure, _ []string) {
		f.message, f.remedy = f.item.field+": charts are never rendered here", "commit what `helm template` renders of it, and list that in resources"
	}},
	{regexp.MustCompile(`external plugins disabled|unable to load external plugin|plugins? disabled`), true, func(f *failure, _ []string) {
		f.message, f.remedy = f.item.field+": plugins, programs and functions in containers are never run", "commit what it renders, and list that in resources"
	}},
	{regexp.MustCompile(`expected kind 'Component'`), true, func(f *failure, _ []string) {
		f.message, f.remedy = fmt.Sprintf("%v is no Component", f.item.value), "list it in resources, or write kind: Component in it"
	}},
	{regexp.MustCompile(`invalid literal source (.*?),`), true, func(f *failure, match []string) {
		f.message, f.remedy = fmt.Sprintf("the literal %s has no value", quotedText(match[1], strings.HasPrefix(f.item.field, "secretGenerator"))), "write NAME=VALUE"
		f.atField("literals")
	}},
	{regexp.MustCompile(`ID conflict|already registered id`), false, func(f *failure, _ []string) {
		f.rule, f.message = RuleDuplicateObject, fmt.Sprintf("two objects become one by %s", f.item.field)
		f.remedy = "give one of them another name or namespace"
	}},
}

// atNode puts it at a node of the file that the entry stands in.
func (f *failure) atNode(node *yaml.Node) {
	file := f.item.file
	if f.part.replacement != nil {
		file = f.part.at.file
	}
	f.at = placed{file: file, line: int32(node.Line), column: int32(node.Column)}
}

// atField puts it at a field of the entry, as far as there is one.
func (f *failure) atField(names ...string) {
	node := f.part.node
	for _, name := range names {
		key, value := entryNamed(node, name)
		if key == nil {
			continue
		}
		f.atNode(key)
		node = value
	}
}

// noName is an object without a name, put where it stands.
func (f *failure) noName([]string) {
	f.message, f.remedy = "an object has no metadata.name", "give it a name that stays: generateName would make another object each time"
	file, _ := f.item.value.(string)
	file = path.Join(f.item.dir, file)
	for i := range f.scan.layers {
		l := &f.scan.layers[i]
		if l.resource() && !l.generated && l.file == file && l.document.Object.GetName() == "" {
			f.message = "an object of kind " + l.document.Object.GetKind() + " has no metadata.name"
			line, column := l.whole().Position("/metadata/generateName")
			f.at = placed{file: file, line: int32(line), column: int32(column)}
			return
		}
	}
}

func (f *failure) noTarget(match []string) {
	id := match[1] + match[2]
	f.message = fmt.Sprintf("it patches %s, which is not among the objects here", idWords(id))
	f.remedy = "correct the name, kind and namespace in the patch, or add a target to the entry"
	f.needs.kind, f.needs.name = idParts(id)
	l := f.part.layer
	if l == nil {
		return
	}
	for i := l.number; i < len(f.scan.layers) && f.scan.layers[i].entry == l.entry; i++ {
		other := &f.scan.layers[i]
		if other.document != nil && strings.Contains(id, "/"+other.document.Object.GetName()+".") {
			line, column := other.document.Position("/metadata/name")
			f.at = placed{file: other.file, line: int32(line), column: int32(column)}
			return
		}
	}
}

func (f *failure) noPath([]string) {
	op := f.part.operation
	if op == nil {
		return
	}
	f.needs.pointer = op.lacked()
	f.message = fmt.Sprintf("an object that it patches has no %s to %s", op.Path, op.Op)
	f.remedy = "correct the path, or remove the operation"
	switch op.Op {
	case "add":
		f.message = fmt.Sprintf("an object that it patches has nothing to add %s to", op.Path)
		f.remedy = "add what it is in first, or correct the path"
	case "replace":
		f.remedy = "correct the path, or write op: add"
	case "move", "copy":
		f.message = fmt.Sprintf("an object that it patches lacks what %s to %s needs", op.Op, op.Path)
		f.remedy = "correct from and path"
	}
}

func (f *failure) badSelector(match []string) {
	f.message, f.remedy = "the selector cannot be read: "+strings.TrimSpace(match[1]+match[2]), "write it as for kubectl get --selector, such as tier in (gpu, cpu)"
	for _, name := range []string{"labelSelector", "annotationSelector"} {
		if _, target := entryNamed(f.part.node, "target"); target != nil {
			if key, _ := entryNamed(target, name); key != nil {
				f.atNode(key)
				return
			}
		}
	}
}

// mapOfTexts is a field whose values are texts whatever their names.
var mapOfTexts = regexp.MustCompile(`(?i)(labels|annotations|nodeSelector|data)\.`)

// wrongType is a text in the place of a number: it is put where the text is
// written, if a replacement took it from there.
func (f *failure) wrongType(match []string) {
	kinds := map[string]string{"int": "a whole number", "float": "a number", "bool": "true or false"}
	kind := kinds[match[3]]
	if kind == "" {
		kind = match[3]
	}
	f.message, f.remedy = fmt.Sprintf("%s: %q is not %s", f.item.field, match[2], kind), "write "+kind
	entry := f.part.replacement
	if entry == nil {
		return
	}
	f.remedy = fmt.Sprintf("write %s in the source, or correct the replacement", kind)
	if mapOfTexts.MatchString(f.part.field) {
		f.remedy = "put the value that is there in quotes: a label, an annotation or the like is a text"
	}
	from := sourceName(entry)
	is := "which has to be"
	if mapOfTexts.MatchString(f.part.field) {
		// What is there is a number for want of quotes.
		is = "where there is"
	}
	f.message = fmt.Sprintf("the replacement at %s:%d puts %s from %s into %s, %s %s", f.part.at.file, f.part.at.line, quotedText(match[2], strings.HasPrefix(from, "Secret ")), from, f.part.field, is, kind)
	if at, ok := f.scan.copiedFrom(f.item, f.part); ok {
		f.at = at
	}
}

// sourceName names the source of a replacement.
func sourceName(entry map[string]any) string {
	source, ok := entry["source"].(map[string]any)
	if !ok {
		return "sourceValue"
	}
	text := func(key string) string { value, _ := source[key].(string); return value }
	field := text("fieldPath")
	if field == "" {
		field = "metadata.name"
	}
	return strings.TrimSpace(text("kind")+" "+text("name")) + " " + field
}

// copiedFrom is where what a replacement takes is written last before it does.
func (s *scan) copiedFrom(it *item, of *part) (placed, bool) {
	for i := range s.layers {
		l := &s.layers[i]
		if l.copied == nil || l.entry != it.entry() || l.file != of.at.file || l.copied.at != whereIs(of.node) {
			continue
		}
		if l.copied.given != nil {
			return placed{file: l.file, line: int32(l.copied.given.lines), column: int32(l.copied.given.columns)}, true
		}
		return l.copied.origin(s.before(i), "", 0)
	}
	return placed{}, false
}

// maxBefore bounds the objects of which is looked for what wrote them last.
const maxBefore = 1000

// before are the objects as far as they are known before a layer changes them, which
// kustomize has not rendered.
func (s *scan) before(number int) (objects []*renderedObject) {
	for i := range s.layers[:number] {
		l := &s.layers[i]
		if !l.resource() || l.merges || l.left {
			continue
		}
		if len(objects) == maxBefore {
			break
		}
		o := s.object(l.made(), l.file)
		o.layers = slices.DeleteFunc(o.layers, func(l *layer) bool { return l.number >= number })
		objects = append(objects, &o)
	}
	for _, o := range objects {
		o.siblings = objects
	}
	return objects
}

// lacked is the pointer to what is not there where an operation has no path.
func (op *operation) lacked() string {
	switch op.Op {
	case "add":
		return op.Path[:max(strings.LastIndexByte(op.Path, '/'), 0)]
	case "move", "copy":
		return op.From
	}
	return op.Path
}

// pointerTo is the pointer to a field of kustomize's spelling, whatever objects have.
func pointerTo(field string) (pointer string) {
	for _, token := range splitField(field) {
		pointer += "/" + escape(token)
	}
	return pointer
}

// idWords is an identity as kustomize prints it, for people:
// KIND.VERSION.GROUP/NAME.NAMESPACE.
func idWords(id string) string {
	_, last, ok := strings.Cut(id, "/")
	if !ok {
		return id
	}
	kind, name := idParts(id)
	if kind == "" {
		kind = "an object"
	}
	if name == "" {
		return kind + " of any name"
	}
	if namespace := last[strings.LastIndexByte(last, '.')+1:]; namespace != last && !strings.HasPrefix(namespace, "[") {
		name = namespace + "/" + name
	}
	return kind + " " + name
}

// idParts are the kind and the name of such an identity; empty where it has none.
func idParts(id string) (kind, name string) {
	gvk, name, _ := strings.Cut(id, "/")
	kind, _, _ = strings.Cut(gvk, ".")
	if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
		name = name[:dot]
	}
	if strings.HasPrefix(kind, "[") {
		kind = ""
	}
	if strings.HasPrefix(name, "[") {
		name = ""
	}
	return kind, name
}
