package fleet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/fluxcd/pkg/kustomize/filesys"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	kfilesys "sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/openapi"

	"cloop.dev/cloop/schemas"
)

// kustomizeTurn guards kyaml's global OpenAPI schema, which every run of
// kustomize reads and writes without care for another: who runs it has put something
// there.
var kustomizeTurn = make(chan struct{}, 1)

// maxTurn is how long a run may take, and how long another waits for it. What is
// let near kustomize takes it seconds.
var maxTurn = 5 * time.Minute

// errStuck is a run that does not end.
var errStuck = errors.New("kustomize does not come to an end")

// kustomize renders a directory with a kustomization. Its error is the
// context's; everything else is a problem.
func (b *builder) kustomize(ctx context.Context, dir, file string) (*rendering, error) {
	s := &scan{root: b.root, gate: b.gate, comments: b.comments, memo: b.memo}
	if err := s.visit(ctx, dir, file, 0, 0); err != nil {
		if ctx.Err() != nil {
			return nil, buildError(dir, ctx.Err())
		}
		problem := located(broken(RuleBuild, err.Error()), file)
		if errors.Is(err, errBounds) {
			problem = tooLarge(err, file)
		}
		return &rendering{problems: append(s.problems, problem)}, nil
	}
	if s.blank {
		return &rendering{problems: s.problems}, nil
	}
	if s.refused || len(s.lost()) > 0 {
		return s.refusedBy(ctx, b, dir, file, nil), nil
	}
	out, ok, err := s.inBatches(ctx, b, dir, file)
	if err != nil {
		return nil, err
	}
	if !ok {
		s.unfold()
		if err := s.tooMuch(); err != nil {
			return s.refusedBy(ctx, b, dir, file, err), nil
		}
		modern := s.modernized(b)
		if out, err = s.rendered(ctx, b, dir, file, modern); err != nil && len(modern) > 0 && ctx.Err() == nil && !errors.Is(err, errStuck) {
			out, err = s.rendered(ctx, b, dir, file, nil)
		}
		if ctx.Err() != nil {
			return nil, buildError(dir, ctx.Err())
		}
		if errors.Is(err, errStuck) {
			return &rendering{problems: []schemas.Problem{tooLarge(fmt.Errorf("%w: %w", errBounds, err), file)}, lost: true}, nil
		}
		if err != nil {
			return s.refusedBy(ctx, b, dir, file, err), nil
		}
	}
	out.batched = ok
	s.relate(out.objects, file)
	return out, nil
}

// rendered runs kustomize once, over files of which some may be replaced.
func (s *scan) rendered(ctx context.Context, b *builder, dir, file string, replaced map[string][]byte) (*rendering, error) {
	run, reused, err := b.remembered(ctx, dir, replaced, s.knowledge())
	if err != nil {
		return nil, err
	}
	return s.objectsOf(run, reused, file), nil
}

// objectsOf are the objects of a run, with the layers that made them.
func (s *scan) objectsOf(run *run, reused bool, file string) *rendering {
	out := &rendering{objects: make([]renderedObject, 0, len(run.objects))}
	for _, wrong := range run.wrong {
		out.problems = append(out.problems, located(broken(RuleBuild, wrong.Error()), file))
	}
	for i, tree := range run.trees() {
		textsForNulls(tree)
		object := s.object(tree, file)
		object.digest, object.reused = &run.objects[i].digest, reused
		out.objects = append(out.objects, object)
	}
	return out
}

// made is an object as kustomize rendered it. What is remembered is its text: the tree
// takes five times as much memory, and is soon made again.
type made struct {
	text   []byte
	digest [sha256.Size]byte
}

func madeAs(text []byte) made { return made{text, sha256.Sum256(text)} }

// tree is the object, another one each time.
func (m *made) tree() *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	if err := json.Unmarshal(m.text, &obj.Object); err != nil {
		panic(err) // the text was written from such a tree
	}
	return obj
}

// Nets for what the scan does not foresee, each far beyond what it lets through: what
// kustomize reads for a root, and what the objects that it renders are as text.
const (
	maxHanded   = 4 * maxRootBytes
	maxRendered = 4 * maxRootBytes
)

// madeOf takes the objects out of what kustomize rendered.
func madeOf(resources resmap.ResMap) (*run, error) {
	out := &run{objects: make([]made, 0, resources.Size()), fresh: make([]*unstructured.Unstructured, 0, resources.Size())}
	size := 0
	for _, resource := range resources.Resources() {
		data, err := resource.MarshalJSON()
		if err != nil {
			return nil, err
		}
		if size += len(data); size > maxRendered {
			return nil, fmt.Errorf("%w: its objects are together larger than %d MiB", errBounds, maxRendered>>20)
		}
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(data); err != nil {
			out.wrong = append(out.wrong, err)
			continue
		}
		out.objects, out.fresh = append(out.objects, madeAs(data)), append(out.fresh, obj)
	}
	return out, nil
}

// relate lets objects find those that their values were taken from, also those
// that are local to the kustomization.
func (s *scan) relate(objects []renderedObject, file string) {
	if !slices.ContainsFunc(s.layers, func(l layer) bool { return l.copied != nil }) {
		return
	}
	all := make([]*renderedObject, len(objects))
	for i := range objects {
		all[i] = &objects[i]
	}
	for i := range s.layers {
		if l := &s.layers[i]; l.resource() && !l.merges && !l.left && l.local() {
			one := s.object(l.made(), file)
			all = append(all, &one)
		}
	}
	for _, o := range all {
		o.siblings = all
	}
}

// localConfig is the annotation of objects that kustomize leaves out in the end.
const localConfig = "config.kubernetes.io/local-config"

// local says whether a resource, or what a generator makes, is left out.
func (l *layer) local() bool {
	value, ok := l.document.Object.GetAnnotations()[localConfig]
	if _, options := entryNamed(l.document.Node, "options"); l.generated && options != nil {
		if _, annotations := entryNamed(options, "annotations"); annotations != nil {
			if _, node := entryNamed(annotations, localConfig); node != nil {
				value, ok = node.Value, true
			}
		}
	}
	return ok && value != "false"
}

// made is about what a layer's object is like in the end; of what a generator
// makes only the keys are known.
func (l *layer) made() *unstructured.Unstructured {
	object := l.whole().Object.DeepCopy()
	object.SetName(l.named())
	object.SetNamespace(l.namespace)
	for pointer := range l.given {
		_ = unstructured.SetNestedField(object.Object, "", tokens(pointer)...)
	}
	return object
}

// run calls kustomize as Flux does: files anywhere in the repository, no plugins
// but the built-in ones, no Helm, no functions.
//
// replaced: file, absolute → its content for this run.
func (b *builder) run(ctx context.Context, dir string, replaced map[string][]byte, knows knowledge) (resmap.ResMap, error) {
	files, err := b.files(replaced)
	if err != nil {
		return nil, err
	}
	return b.runOver(ctx, dir, files, knows)
}

// files are those of the tree as a run sees them.
func (b *builder) files(replaced map[string][]byte) (boundedFiles, error) {
	secure, err := filesys.MakeFsOnDiskSecure(b.dir)
	return boundedFiles{FileSystem: secure, gate: b.gate, aliased: &aliases{}, handed: new(atomic.Int64), replaced: replaced}, err
}

// runOver returns when the context is done, though kustomize does not: it has no way
// to be interrupted. Nobody else has a turn then until it ends.
func (b *builder) runOver(ctx context.Context, dir string, files kfilesys.FileSystem, knows knowledge) (resmap.ResMap, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, maxTurn, errStuck)
	defer cancel()
	select {
	case kustomizeTurn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	type result struct {
		resources resmap.ResMap
		err       error
	}
	done := make(chan result, 1)
	go func() {
		defer func() { <-kustomizeTurn }()
		var out result
		out.resources, out.err = runKustomize(filepath.Join(b.dir, filepath.FromSlash(dir)), files, knows)
		done <- out
	}()
	select {
	case out := <-done:
		return out.resources, out.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func runKustomize(dir string, files kfilesys.FileSystem, knows knowledge) (resources resmap.ResMap, err error) {
	defer func() {
		// kustomize panics on some inputs; a committer must not be able to end
		// the process with one.
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("kustomize failed: %v", panicked)
		}
	}()
	defer openapi.ResetOpenAPI()
	knows.teach()

	kustomizer := krusty.MakeKustomizer(&krusty.Options{
		LoadRestrictions: types.LoadRestrictionsNone,
		PluginConfig:     types.DisabledPluginConfig(),
	})
	return kustomizer.Run(files, dir)
}

// boundedFiles is a file system in which every file is a regular one, is not too
// large, and has no aliases beyond the bounds.
type boundedFiles struct {
	kfilesys.FileSystem
	gate *gate
	// aliased counts the aliases of what is read, and handed its bytes; nil: nobody
	// does.
	aliased *aliases
	handed  *atomic.Int64
	// replaced: see run. A file without content is not there.
	replaced map[string][]byte
}

func (f boundedFiles) isReplaced(name string) bool {
	_, replaced := f.replaced[filepath.Clean(name)]
	return replaced
}

// ReadFile is filesys.FileSystem's.
func (f boundedFiles) ReadFile(name string) ([]byte, error) {
	if data, replaced := f.replaced[filepath.Clean(name)]; replaced {
		if data == nil {
			return nil, fmt.Errorf("read %s: %w", filepath.Base(name), fs.ErrNotExist)
		}
		return data, nil
	}
	if inner, ok := Inside(f.gate.top, name); ok && f.gate.instead[inner] != nil {
		return f.gate.instead[inner], nil
	}
	if err := f.gate.refuse(name); err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	if info, err := os.Stat(name); err == nil {
		// Such as what a generator takes in; the scan has bounded the rest.
		switch {
		case info.Mode()&(fs.ModeNamedPipe|fs.ModeDevice|fs.ModeSocket) != 0:
			return nil, fmt.Errorf("%s: %w", filepath.Base(name), errNoFile)
		case info.Size() > maxFile:
			return nil, fmt.Errorf("%w: %s is larger than %d MiB", errBounds, filepath.Base(name), maxFile>>20)
		}
	}
	data, err := f.FileSystem.ReadFile(name)
	if err != nil || f.aliased == nil {
		return data, err
	}
	if f.handed.Add(int64(len(data))) > maxHanded {
		return nil, fmt.Errorf("%w: kustomize reads more than %d MiB for this root", errBounds, maxHanded>>20)
	}
	if err := f.aliased.add(filepath.Base(name), data); err != nil {
		return nil, fmt.Errorf("%w: %s", errBounds, strings.TrimPrefix(err.Error(), errFile.Error()+": "))
	}
	return data, nil
}
