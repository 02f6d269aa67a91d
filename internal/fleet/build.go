package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// Rendered is one object that a path renders, with the place in the repository
// that defines it.
type Rendered struct {
	// Document is the object, not defaulted. File is SourcePath; Line is where
	// the source document begins. Node is nil where kustomize made the object.
	schemas.Document
	// SourcePath is the file that defines the object, relative to the
	// repository's root, with slashes.
	SourcePath string
}

// Build renders path, which is relative to root and inside it: a kustomization,
// a directory of YAML files (with what lies below it), or one file. It reads
// nothing outside root, neither over a symbolic link nor over the network, and
// runs no program. No document is no error: the caller decides what an empty
// build means.
//
// Errors are ErrPathNotFound, or ErrBuild with every problem that has a place in
// the repository.
func Build(ctx context.Context, root, path string) ([]Rendered, error) {
	b, err := newBuilder(root)
	if err != nil {
		return nil, pathError(path, err)
	}
	defer b.close()
	result, err := b.build(ctx, path)
	if err != nil {
		return nil, err
	}
	return result.sound(path)
}

// sound returns the objects of a rendering without a problem of its own.
func (r *rendering) sound(path string) ([]Rendered, error) {
	if len(r.problems) > 0 {
		return nil, buildError(path, listed(r.problems))
	}
	rendered := make([]Rendered, len(r.objects))
	for i := range r.objects {
		rendered[i] = r.objects[i].Rendered
	}
	return rendered, nil
}

// maxListed bounds how many problems an error lists.
const maxListed = 5

func listed(problems []schemas.Problem) error {
	texts := make([]string, 0, maxListed+1)
	for i := range problems[:min(len(problems), maxListed)] {
		texts = append(texts, problems[i].String())
	}
	if more := len(problems) - maxListed; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return errors.New(strings.Join(texts, "; "))
}

// applicable: kinds that Git sync applies beside those of cloop.dev. Each is
// harmless to whoever cannot already write the repository; a Secret never is.
var applicable = map[schema.GroupKind]bool{
	{Group: "", Kind: "ServiceAccount"}:                 true,
	{Group: "", Kind: "ResourceQuota"}:                  true,
	{Group: "", Kind: "LimitRange"}:                     true,
	{Group: "networking.k8s.io", Kind: "NetworkPolicy"}: true,
}

// Applicable says whether Git sync applies objects of a kind: those of
// cloop.dev, ServiceAccount, ResourceQuota, LimitRange and NetworkPolicy.
func Applicable(gvk schema.GroupVersionKind) bool {
	return gvk.Group == v1alpha1.GroupVersion.Group || applicable[gvk.GroupKind()]
}

// ExecutorPools are the rendered objects that are one.
func ExecutorPools(rendered []Rendered) []Rendered {
	return ofKind(rendered, v1alpha1.ExecutorPoolKind)
}

// HubPools are the rendered objects that are one.
func HubPools(rendered []Rendered) []Rendered { return ofKind(rendered, v1alpha1.HubPoolKind) }

func ofKind(rendered []Rendered, kind string) []Rendered {
	var found []Rendered
	for i := range rendered {
		if isKind(rendered[i].Object, kind) {
			found = append(found, rendered[i])
		}
	}
	return found
}

func isKind(obj *unstructured.Unstructured, kind string) bool {
	return obj.GetKind() == kind && obj.GroupVersionKind().Group == v1alpha1.GroupVersion.Group
}

// renderedObject is an object with the layers that made it, in the order in
// which they apply. Without layers its document has the positions itself.
type renderedObject struct {
	Rendered
	layers []layer
}

// rendering is what one path renders, and what is wrong with it. A path with
// problems may have no objects, or those that could be read.
type rendering struct {
	objects  []renderedObject
	problems []schemas.Problem
	// kustomization is the file that the path is rendered by, empty for plain
	// files.
	kustomization string
}

// builder renders paths of one repository.
type builder struct {
	dir  string // absolute, without symbolic links
	root *os.Root
}

func newBuilder(dir string) (*builder, error) {
	absolute, err := filepath.Abs(dir)
	if err == nil {
		absolute, err = filepath.EvalSymlinks(absolute)
	}
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(absolute)
	if err != nil {
		return nil, err
	}
	return &builder{dir: absolute, root: root}, nil
}

func (b *builder) close() { _ = b.root.Close() }

// build renders a path. Its error is ErrPathNotFound, or the context's.
func (b *builder) build(ctx context.Context, name string) (*rendering, error) {
	clean := path.Clean(filepath.ToSlash(name))
	if clean == "/" || strings.HasPrefix(clean, "/") {
		clean = strings.TrimPrefix(clean, "/")
	}
	if clean == "" {
		clean = "."
	}
	if !filepath.IsLocal(clean) {
		return nil, pathError(name, errors.New("the path leaves the repository"))
	}
	info, err := b.root.Stat(clean)
	if err != nil {
		return nil, pathError(name, pathReason(err))
	}
	if !info.IsDir() {
		return b.plain(ctx, clean)
	}
	kustomization, err := kustomizationIn(b.root, clean)
	if err != nil {
		return nil, pathError(name, pathReason(err))
	}
	if kustomization == "" {
		return b.plain(ctx, clean)
	}
	out, err := b.kustomize(ctx, clean, kustomization)
	if err != nil {
		return nil, err
	}
	out.kustomization = kustomization
	return out, nil
}

// pathReason keeps the temporary directory of a checkout out of the message.
func pathReason(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such file or directory")
	}
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		return inner.Err
	}
	return err
}

// plain reads a file, or a directory and what lies below it. A directory below
// with a kustomization is rendered by it.
func (b *builder) plain(ctx context.Context, name string) (*rendering, error) {
	out := &rendering{}
	s := &scan{root: b.root}
	files := 0
	err := fs.WalkDir(b.root.FS(), name, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if entry.IsDir() {
			return b.plainDirectory(ctx, out, name, file, entry)
		}
		if file != name && !isYAML(file) {
			return nil
		}
		if linked, err := b.root.Stat(file); err == nil && linked.IsDir() {
			return nil
		}
		if files++; files > maxPlainFiles {
			return fmt.Errorf("%w: more than %d files", errBounds, maxPlainFiles)
		}
		return out.file(s, file)
	})
	if errors.Is(err, errBounds) {
		out.problems = append(out.problems, located(broken(RuleTooLarge, err.Error()), name))
		return out, nil
	}
	if err != nil && ctx.Err() != nil {
		return nil, buildError(name, err)
	}
	if err != nil {
		out.problems = append(out.problems, located(broken(RuleBuild, err.Error()), name))
	}
	return out, nil
}

func (b *builder) plainDirectory(ctx context.Context, out *rendering, top, dir string, entry fs.DirEntry) error {
	if dir == top {
		return nil
	}
	if strings.HasPrefix(entry.Name(), ".") {
		return fs.SkipDir
	}
	kustomization, err := kustomizationIn(b.root, dir)
	if err != nil || kustomization == "" {
		return err
	}
	inner, err := b.kustomize(ctx, dir, kustomization)
	if err != nil {
		return err
	}
	out.objects = append(out.objects, inner.objects...)
	out.problems = append(out.problems, inner.problems...)
	return fs.SkipDir
}

func isYAML(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml":
		return true
	}
	return false
}

// file adds the documents of one file.
func (r *rendering) file(s *scan, name string) error {
	data, err := s.read(name)
	if err != nil {
		return err
	}
	documents, problems := schemas.Decode(name, data)
	r.problems = append(r.problems, problems...)
	for i := range documents {
		r.objects = append(r.objects, renderedObject{Rendered: Rendered{Document: documents[i], SourcePath: name}})
	}
	return nil
}

// located puts a problem at the beginning of a file.
func located(problem schemas.Problem, file string) schemas.Problem {
	problem.File, problem.Line, problem.Column = file, 1, 1
	return problem
}
