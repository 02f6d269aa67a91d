package fleet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fluxcd/pkg/kustomize/filesys"
	"go.yaml.in/yaml/v3"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	kfilesys "sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	manifests "cloop.dev/cloop/kustomize"
	"cloop.dev/cloop/schemas"
)

// originAnnotation is where kustomize says which file an object comes from.
const originAnnotation = "config.kubernetes.io/origin"

// kustomizeLock guards kyaml's global OpenAPI schema, which every run of
// kustomize reads and writes without care for another.
var kustomizeLock sync.Mutex

// kustomize renders a directory with a kustomization. Its error is the
// context's; everything else is a problem.
func (b *builder) kustomize(ctx context.Context, dir, file string) (*rendering, error) {
	s := &scan{root: b.root, comments: &b.comments}
	if err := s.visit(ctx, dir, file, 0); err != nil {
		if ctx.Err() != nil {
			return nil, buildError(dir, ctx.Err())
		}
		rule := RuleBuild
		if errors.Is(err, errBounds) {
			rule = RuleTooLarge
		}
		return &rendering{problems: append(s.problems, located(broken(rule, err.Error()), file))}, nil
	}
	if s.refused {
		return &rendering{problems: s.problems}, nil
	}
	tracked := s.tracking() <= maxTracking
	resources, err := b.run(dir, file, tracked)
	if err != nil {
		return &rendering{problems: s.explain(err, b.dir, file)}, nil
	}
	out := &rendering{}
	for _, resource := range resources.Resources() {
		data, err := resource.MarshalJSON()
		if err != nil {
			return nil, buildError(dir, err)
		}
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(data); err != nil {
			out.problems = append(out.problems, located(broken(RuleBuild, err.Error()), file))
			continue
		}
		source := origin(obj, dir, file)
		if !tracked {
			source = s.likeliest(obj, file)
		}
		out.objects = append(out.objects, s.object(obj, source))
	}
	return out, nil
}

// explain turns kustomize's error into problems: where the scan has found what
// is wrong it has better places than kustomize's one long line.
func (s *scan) explain(err error, dir, file string) []schemas.Problem {
	if len(s.problems) > 0 {
		return s.problems
	}
	text := strings.ReplaceAll(err.Error(), dir+string(filepath.Separator), "")
	text = strings.ReplaceAll(text, dir, ".")
	return []schemas.Problem{located(broken(RuleBuild, strings.Join(strings.Fields(text), " ")), file)}
}

// maxTracking bounds what kustomize may spend on noting where objects come from.
// It notes each patch on every object, in a list that it reads and writes whole
// each time: a hundred pools with a patch each took three seconds, a thousand
// more than ten minutes. Beyond the bound the scan tells the source.
var maxTracking = 100_000

// tracking is how often kustomize would go over an entry of its lists.
func (s *scan) tracking() int {
	objects, patches := 0, 0
	for i := range s.layers {
		switch {
		case s.layers[i].patch:
			patches++
		case s.layers[i].document != nil:
			objects++
		}
	}
	return objects * patches * patches
}

// likeliest is the file that defines an object as far as names tell; the
// kustomization where none does.
func (s *scan) likeliest(obj *unstructured.Unstructured, file string) string {
	if i := s.sourceOf(obj, ""); i >= 0 {
		return s.layers[i].file
	}
	return file
}

// run calls kustomize as Flux does: files anywhere in the repository, no plugins
// but the built-in ones, no Helm, no functions.
//
// What it costs, measured with Go 1.26 and kustomize 0.21 on the objects of
// TestBuildMemory: on the first strategic merge kyaml parses the OpenAPI
// document of all of Kubernetes. That allocates 43 MiB and grows the process by
// 30 MiB, and 4 MiB of it stay for ever, against 80 MiB that a process may have
// when idle. So a run sees a schema of the kinds that Git sync applies, with
// every merge key that they have in the whole one, and afterwards none: a build
// then allocates 6 MiB and leaves nothing. Lists of other kinds are replaced, as
// those of custom resources are.
func (b *builder) run(dir, file string, tracked bool) (resources resmap.ResMap, err error) {
	secure, err := filesys.MakeFsOnDiskSecure(b.dir)
	if err != nil {
		return nil, err
	}
	kustomization := filepath.Join(b.dir, filepath.FromSlash(file))
	data, err := secure.ReadFile(kustomization)
	if err != nil {
		return nil, err
	}
	if tracked {
		if data, err = withOrigins(data); err != nil {
			return nil, err
		}
	}
	kustomizeLock.Lock()
	defer kustomizeLock.Unlock()
	defer func() {
		// kustomize panics on some inputs; a committer must not be able to end
		// the process with one.
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("kustomize failed: %v", panicked)
		}
	}()
	openapi.ResetOpenAPI()
	defer openapi.ResetOpenAPI()
	openapi.SuppressBuiltInSchemaUse()
	openapi.AddDefinitions(mergeKeys())

	kustomizer := krusty.MakeKustomizer(&krusty.Options{
		LoadRestrictions: types.LoadRestrictionsNone,
		PluginConfig:     types.DisabledPluginConfig(),
	})
	overlaid := overlaidFile{FileSystem: secure, path: kustomization, data: data, aliased: &aliases{}}
	return kustomizer.Run(overlaid, filepath.Join(b.dir, filepath.FromSlash(dir)))
}

// overlaidFile is a file system in which one file has another content, and in
// which no file has aliases beyond the bounds.
type overlaidFile struct {
	kfilesys.FileSystem
	path    string
	data    []byte
	aliased *aliases
}

// ReadFile is filesys.FileSystem's.
func (o overlaidFile) ReadFile(name string) ([]byte, error) {
	if filepath.Clean(name) == o.path {
		return o.data, nil
	}
	if info, err := os.Stat(name); err == nil && info.Size() > maxFile {
		// Such as what a generator takes in; the scan has bounded the rest.
		return nil, fmt.Errorf("%w: %s is larger than %d MiB", errBounds, filepath.Base(name), maxFile>>20)
	}
	data, err := o.FileSystem.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if err := o.aliased.add(filepath.Base(name), data); err != nil {
		return nil, err
	}
	return data, nil
}

// withOrigins has kustomize annotate each object with the file it comes from.
// The key is added at the end, so that line numbers in errors stay the author's.
func withOrigins(kustomization []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(kustomization, &document); err != nil {
		return nil, err
	}
	addition := "buildMetadata: [" + types.OriginAnnotations + "]\n"
	if document.Kind == 0 {
		return []byte(addition), nil
	}
	fields := document.Content[0]
	if fields.Kind != yaml.MappingNode {
		return nil, errors.New("the kustomization is no object")
	}
	for i := 0; i+1 < len(fields.Content); i += 2 {
		if fields.Content[i].Value != "buildMetadata" {
			continue
		}
		list := fields.Content[i+1]
		if list.Kind != yaml.SequenceNode {
			*list = yaml.Node{Kind: yaml.SequenceNode}
		}
		list.Content = append(list.Content, &yaml.Node{Kind: yaml.ScalarNode, Value: types.OriginAnnotations})
		return yaml.Marshal(&document)
	}
	if fields.Style&yaml.FlowStyle == 0 && len(fields.Content) > 0 && fields.Column == 1 {
		appended := append(append([]byte{}, kustomization...), "\n"+addition...)
		var check yaml.Node
		if err := yaml.Unmarshal(appended, &check); err == nil && len(check.Content[0].Content) == len(fields.Content)+2 {
			return appended, nil
		}
	}
	var value yaml.Node
	if err := yaml.Unmarshal([]byte(addition), &value); err != nil {
		return nil, err
	}
	fields.Style = 0
	fields.Content = append(fields.Content, value.Content[0].Content...)
	return yaml.Marshal(&document)
}

// origin takes kustomize's annotation off the object and returns the file that
// it names, relative to the repository's root.
func origin(obj *unstructured.Unstructured, dir, file string) string {
	annotations := obj.GetAnnotations()
	text, ok := annotations[originAnnotation]
	if !ok {
		return file
	}
	delete(annotations, originAnnotation)
	if len(annotations) == 0 {
		unstructured.RemoveNestedField(obj.Object, "metadata", "annotations")
	} else {
		obj.SetAnnotations(annotations)
	}
	var from struct {
		Path         string `yaml:"path"`
		ConfiguredIn string `yaml:"configuredIn"`
	}
	if err := yaml.Unmarshal([]byte(text), &from); err != nil {
		return file
	}
	for _, name := range []string{from.Path, from.ConfiguredIn} {
		if name != "" {
			return path.Join(dir, filepath.ToSlash(name))
		}
	}
	return file
}

// object finds the layers that made an object: its own document, and the
// patches that mean it.
func (s *scan) object(obj *unstructured.Unstructured, source string) renderedObject {
	out := renderedObject{Rendered: Rendered{SourcePath: source}}
	out.Document = schemas.Document{Object: obj, File: source, Line: 1}
	own := s.sourceOf(obj, source)
	names := []string{obj.GetName()}
	if own >= 0 {
		document := s.layers[own].document
		out.Line = document.Line
		names = append(names, document.Object.GetName())
		out.layers = append(out.layers, s.layers[own])
	}
	for i := range s.layers {
		if s.layers[i].patch && s.layers[i].applies(obj, names) {
			out.layers = append(out.layers, s.layers[i])
		}
	}
	return out
}

// sourceOf finds the document of the source file, or of any where that is empty,
// that became the object; -1 where there is none. Prefixes, suffixes and namespaces may have been added, so
// of several documents of the kind the one with the most alike name counts.
func (s *scan) sourceOf(obj *unstructured.Unstructured, source string) int {
	best, score := -1, 0
	for i := range s.layers {
		l := &s.layers[i]
		if l.patch || l.document == nil || source != "" && l.file != source || l.document.Object.GroupVersionKind() != obj.GroupVersionKind() {
			continue
		}
		likeness := 1
		switch name := l.document.Object.GetName(); {
		case name == obj.GetName():
			likeness = 10_000
		case name != "" && strings.Contains(obj.GetName(), name):
			likeness = 1 + len(name)
		}
		if l.document.Object.GetNamespace() == obj.GetNamespace() {
			likeness++
		}
		if likeness > score {
			best, score = i, likeness
		}
	}
	return best
}

func (l *layer) applies(obj *unstructured.Unstructured, names []string) bool {
	if l.target != nil {
		return l.target.selects(obj, names...)
	}
	if l.document == nil {
		return false
	}
	gvk := l.document.Object.GroupVersionKind()
	if gvk.Kind != obj.GetKind() || gvk.Group != obj.GroupVersionKind().Group {
		return false
	}
	for _, name := range names {
		if name == l.document.Object.GetName() {
			return true
		}
	}
	return false
}

// mergeKeys are the lists that a strategic merge patch merges rather than
// replaces in the kinds that Git sync applies, as Kubernetes' OpenAPI document
// has them. The cloop.dev kinds have none unless the kustomization brings the
// component with the rest of the document: what is rendered here is what
// kubectl, Flux and Argo CD render.
var mergeKeys = sync.OnceValue(func() spec.Definitions {
	var document spec.Swagger
	if err := document.UnmarshalJSON(manifests.OpenAPI()); err != nil {
		// It is compiled in, and a test builds with it.
		panic(fmt.Sprintf("read the embedded OpenAPI document: %v", err))
	}
	maps.DeleteFunc(document.Definitions, func(name string, _ spec.Schema) bool {
		return strings.HasPrefix(name, "dev.cloop.")
	})
	return document.Definitions
})
