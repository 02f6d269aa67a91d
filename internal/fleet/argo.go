package fleet

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gobwas/glob"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/konfig"

	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

// argoAppliers are the paths that an Application of Argo CD has applied. The paths of
// an ApplicationSet are made of what it finds: that of its template says at least that
// Argo CD applies.
func (o *renderedObject) argoAppliers(in string) (found []applier) {
	obj, spec := o.Object, []string{"spec"}
	switch obj.GetKind() {
	case "Application":
	case "ApplicationSet":
		spec = []string{"spec", "template", "spec"}
	default:
		return nil
	}
	path := strings.Join(spec, ".")
	options, _, _ := unstructured.NestedStringSlice(obj.Object, append(spec, "syncPolicy", "syncOptions")...)
	defer func() {
		for i := range found {
			_, found[i].serverSide = serverSideOption(options)
		}
	}()
	source, _, _ := unstructured.NestedMap(obj.Object, append(spec, "source")...)
	found = o.argoApplier(found, in, source, path+".source")
	several, _, _ := unstructured.NestedSlice(obj.Object, append(spec, "sources")...)
	for i, source := range several {
		if source, ok := source.(map[string]any); ok {
			found = o.argoApplier(found, in, source, fmt.Sprintf("%s.sources[%d]", path, i))
		}
	}
	return found
}

// argoApplier adds one source of an Application, which is at a path of it.
func (o *renderedObject) argoApplier(others []applier, in string, source map[string]any, path string) []applier {
	at := &unstructured.Unstructured{Object: source}
	where := textAt(at, "path")
	if where == "" {
		return others
	}
	a := applier{name: describe(o.Object), place: o.defined(), in: in, path: WithinRepository(where), url: textAt(at, "repoURL"), fate: fateBy(o.Object)}
	if strings.Contains(where, "{{") {
		a.made = pathsMadeBy(o.Object, a.path)
	}
	a.pathField = path + ".path"
	found := o.locate(schemas.Problem{Path: a.pathField})
	a.at = placed{file: found.File, line: int32(found.Line), column: int32(found.Column)} //nolint:gosec // files are bounded
	for _, tool := range []string{"helm", "plugin", "chart"} {
		a.chart = a.chart || !isEmpty(source[tool])
	}
	recurse, _, _ := unstructured.NestedBool(source, "directory", "recurse")
	a.directory = &argoDirectory{recurse: recurse, include: textAt(at, "directory", "include"), exclude: textAt(at, "directory", "exclude")}
	a.alteration, a.unknown = o.argoAlteration(source, path)
	for i := range a.unknown {
		a.digest += a.unknown[i].Message
	}
	return append(others, a)
}

// argoAlteration is what a source of an Application changes by its kustomize, as a
// Kustomization of Flux would say it; nil: nothing. Fields of an ApplicationSet with a
// part that its generators give are unknown.
func (o *renderedObject) argoAlteration(source map[string]any, path string) (altered *alteration, unknown []schemas.Problem) {
	fields, _, _ := unstructured.NestedMap(source, "kustomize")
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if o.Object.GetKind() == "ApplicationSet" && speaksOf(fields[name], "{{") {
			text, _ := json.Marshal(fields[name])
			unknown = append(unknown, o.locate(o.about(RuleUnrendered, path+".kustomize."+name, "what this changes is not applied to what is checked: its generators say what "+printable.Clip(string(text), maxQuoted)+" is")))
			delete(fields, name)
		}
	}
	a := &alteration{spec: map[string]any{}, written: map[string]string{"path": path + ".path"}}
	set := func(as string, value any, written string) {
		if !isEmpty(value) {
			a.spec[as], a.written[as] = value, path+".kustomize."+written
		}
	}
	for as, written := range map[string]string{"namePrefix": "namePrefix", "nameSuffix": "nameSuffix", "targetNamespace": "namespace", "patches": "patches", "components": "components"} {
		set(as, fields[written], written)
	}
	if ignores, _ := fields["ignoreMissingComponents"].(bool); ignores {
		a.spec["ignoreMissingComponents"] = true
	}
	var images []any
	texts, _, _ := unstructured.NestedStringSlice(fields, "images")
	for _, text := range texts {
		images = append(images, imageOf(text))
	}
	set("images", images, "images")
	common := map[string]any{}
	for as, written := range map[string]string{"labels": "commonLabels", "annotations": "commonAnnotations"} {
		if !isEmpty(fields[written]) {
			common[as] = fields[written]
			a.written["commonMetadata."+as] = path + ".kustomize." + written
		}
	}
	set("commonMetadata", common, "commonLabels")
	if len(a.written) == 1 {
		return nil, unknown
	}
	a.by = o.unfolded()
	// What comes from JSON always encodes.
	text, _ := json.Marshal(a.spec)
	a.digest = string(text)
	return a, unknown
}

// image is how Argo CD and `kustomize edit set image` write one: NAME=NEW:TAG, and NEW,
// TAG and @DIGEST may each be missing.
var image = regexp.MustCompile(`^(?:([^=]+)=)?([^@]+?)(?::([^:/@]+))?(?:@(.+))?$`)

func imageOf(text string) map[string]any {
	match := image.FindStringSubmatch(text)
	if match == nil {
		return map[string]any{"name": text}
	}
	found := map[string]any{"name": match[2]}
	if match[1] != "" {
		found["name"], found["newName"] = match[1], match[2]
	}
	for field, value := range map[string]string{"newTag": match[3], "digest": match[4]} {
		if value != "" {
			found[field] = value
		}
	}
	return found
}

// argoDirectory is how an Application reads a directory of documents: what lies below
// only with recurse, and of the files those that match include and not exclude, globs
// over the path from the directory in which an asterisk takes slashes too. A nil one
// reads all.
type argoDirectory struct {
	recurse          bool
	include, exclude string
}

func (d *argoDirectory) flat() bool { return d != nil && !d.recurse }

// digest is equal for those that read the same.
func (d *argoDirectory) digest() string {
	if d == nil {
		return ""
	}
	return fmt.Sprintf("%t %q %q", d.recurse, d.include, d.exclude)
}

// has says whether a file below a directory is read.
func (d *argoDirectory) has(dir, file string) bool {
	if d == nil {
		return true
	}
	name := strings.TrimPrefix(file, dir+"/")
	matches := func(pattern string) bool {
		compiled, err := glob.Compile(pattern)
		return err == nil && compiled.Match(name)
	}
	return (d.include == "" || matches(d.include)) && (d.exclude == "" || !matches(d.exclude))
}

// reaches says whether a root or file is read as a part of a directory: one file by
// itself, or a directory all below which is.
func (d *argoDirectory) reaches(dir, name string) bool {
	if !strings.HasPrefix(name, dir+"/") && dir != "." {
		return false
	}
	if d.reads(name) {
		return (d.recurse || path.Dir(name) == dir) && d.has(dir, name)
	}
	return d.whole()
}

// whole says whether all that lies below is read.
func (d *argoDirectory) whole() bool { return d.recurse && d.include == "" && d.exclude == "" }

// takes says whether a file is taken for documents: Argo CD passes over YAML that looks
// like none, such as the files that a git generator finds.
func (r root) takes(data []byte) bool {
	return r.directory == nil && !r.made || ourDocument.Match(data) || bytes.Contains(data, []byte("apiVersion")) && bytes.Contains(data, []byte("kind")) && bytes.Contains(data, []byte("metadata"))
}

// reads says whether a file is of a kind that may have documents.
func (d *argoDirectory) reads(file string) bool {
	if d != nil && slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(file)) {
		return false
	}
	return isYAML(file) || d != nil && strings.EqualFold(path.Ext(file), ".json")
}

// directoryOf is how a plain path is read that several may apply: each as it says, where
// they do not agree.
func directoryOf(appliers []applier, path string) (found *argoDirectory, agreed bool) {
	agreed = true
	met := false
	for i := range appliers {
		a := &appliers[i]
		if !a.plain || !a.applies(path) {
			continue
		}
		directory := a.directory
		if a.path != path {
			directory = nil
		}
		agreed = agreed && (!met || found.digest() == directory.digest())
		found, met = directory, true
	}
	if !agreed {
		return nil, false
	}
	return found, true
}

// as is the root as an applier reads it.
func (r root) as(of *applier) root {
	if of != nil && of.plain && of.path == r.path && r.kustomization == "" {
		r.directory = of.directory
	}
	return r
}
