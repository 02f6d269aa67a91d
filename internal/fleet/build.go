package fleet

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/fleet/ignored"
	"cloop.dev/cloop/internal/fleet/policy"
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

// Build renders path, as BuildWith does without replacing a variable.
func Build(ctx context.Context, root, path string) ([]Rendered, error) {
	return BuildWith(ctx, root, path, nil)
}

// BuildWith renders path, which is relative to root and inside it: a kustomization,
// a directory of YAML files (with what lies below it), or one file. It reads
// nothing outside root, neither over a symbolic link nor over the network, and
// runs no program. No document is no error: the caller decides what an empty
// build means. Variables are replaced last, as Flux does; one that has neither a
// value nor a default is an error.
//
// Errors are ErrPathNotFound, or ErrBuild with every problem that has a place in
// the repository.
func BuildWith(ctx context.Context, root, path string, variables *Variables) ([]Rendered, error) {
	return buildAs(ctx, root, path, nil, variables)
}

// buildAs is BuildWith of what an applier makes of a path; nil: nothing else.
func buildAs(ctx context.Context, root, path string, of *applier, variables *Variables) ([]Rendered, error) {
	b, err := newBuilder(root)
	if err != nil {
		return nil, pathError(path, err)
	}
	defer b.close()
	result, err := b.buildAs(ctx, path, of)
	if err != nil {
		return nil, err
	}
	result.substitute(variables, nil)
	result.problems = append(result.problems, b.ignoring.wrong()...)
	return result.sound(path)
}

// BuildFetched is BuildWith of what a PoolSync takes of a repository by a source of Flux:
// without what that leaves out of its artifact by the repository's .sourceignore files or
// by default. The source's own spec.ignore is not known here. nil: it has no such source.
func BuildFetched(ctx context.Context, root, path string, from *v1alpha1.SourceReference, variables *Variables) ([]Rendered, error) {
	if from == nil {
		return BuildWith(ctx, root, path, variables)
	}
	obj := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"sourceRef": map[string]any{"kind": from.Kind, "name": from.Name, "namespace": from.Namespace}}}}
	of := &applier{object: &renderedObject{Rendered: Rendered{Document: schemas.Document{Object: obj}}}, path: WithinRepository(path), sync: true}
	return buildAs(ctx, root, path, of, variables)
}

// substitute replaces the variables of all objects, with what a memo knows of
// them; nil: there is none.
func (r *rendering) substitute(variables *Variables, m *memo) {
	of := answerOf(variables.Digest())
	for i := range r.objects {
		r.problems = append(r.problems, m.substitute(&r.objects[i], variables, of)...)
	}
}

// sound returns the objects of a rendering without a problem of its own. What was
// rendered in part has problems, and none of it is to be applied.
func (r *rendering) sound(path string) ([]Rendered, error) {
	if len(r.problems) > 0 {
		return nil, buildError(path, listed(r.problems))
	}
	rendered := make([]Rendered, len(r.objects))
	for i := range r.objects {
		rendered[i] = r.objects[i].handedOut()
	}
	return rendered, nil
}

// handedOut is the object as those have it who compare, push or apply it.
func (o *renderedObject) handedOut() Rendered {
	out := o.Rendered
	out.Object = withoutNulls(out.Object)
	return out
}

// maxListed bounds how many problems an error lists.
const maxListed = 5

func listed(problems []schemas.Problem) error {
	texts := make([]string, len(problems))
	for i := range problems {
		texts[i] = problems[i].String()
	}
	return errors.New(strings.Join(count.First(texts, maxListed), "; "))
}

// Errors are the problems that are errors rather than warnings.
func (r *Report) Errors() []schemas.Problem {
	return slices.DeleteFunc(slices.Clone(r.Problems), func(p schemas.Problem) bool { return p.Severity != schemas.SeverityError })
}

// maxRefused bounds how many problems a Refusal names.
const maxRefused = 20

// Refusal says why whoever applies what Git says applies none of it: the problems,
// one a line with its rule, as far as there is room.
func Refusal(problems []schemas.Problem) error {
	lines := make([]string, len(problems))
	for i := range problems {
		lines[i] = problems[i].String() + " [" + problems[i].Rule + "]"
	}
	return errors.New(strings.Join(count.First(lines, maxRefused), "\n"))
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
	layers []*layer
	// digest of the object as it was rendered, by kustomize or with its variables
	// replaced; nil: it is not known. reused: an earlier build rendered it.
	digest *[sha256.Size]byte
	reused bool
	// siblings are all objects of the root, where values are taken from others.
	siblings []*renderedObject
	// variables: pointer to a field that is one variable's value → where that is
	// given.
	variables map[string]placed
	// origins of its root's kustomization, where that was written anew.
	origins *origins
	// common is the metadata that it has of its applier; nil: none, or it is set. See finish.
	common *commonMetadata
	// without is what its root was rendered without; nil: nothing.
	without *leftOut
}

// rendering is what one path renders, and what is wrong with it. A path with
// problems may have no objects, or those that could be read.
type rendering struct {
	objects  []renderedObject
	problems []schemas.Problem
	// batched says that kustomize rendered it in batches.
	batched bool
	// partial says that it was rendered without what kustomize refuses; there are
	// problems then. lost says that objects may not be there for such a reason.
	partial, lost bool
	// met are the files that were read for it, where it is kept.
	met map[string]bool
}

// builder renders paths of one repository.
type builder struct {
	dir  string // absolute, without symbolic links
	root *os.Root
	// gate says which files are read.
	gate *gate
	// given are the values that the repository does not have.
	given *Variables
	// applied: see appliers; nil until somebody asks.
	applied *[]applier
	// knownRemotes: see remotes; nil until somebody asks.
	knownRemotes map[string]bool
	// cloneOf knows which repository this is a copy of; nil: this one.
	cloneOf *builder
	// beyond are the bounds that the search for appliers would have passed.
	beyond []schemas.Problem
	// sources: "KIND NAMESPACE/NAME" of a source of Flux → the repositories that it
	// fetches, of several clusters.
	sources map[string][]string
	// doubts are why what appliers the repository has is not known for sure: see doubt.
	doubts []schemas.Problem
	// surveyed: see surveyAll; nil until somebody asks.
	surveyed *survey
	// whole says that roots were looked for in the whole repository.
	whole bool
	// specs: source of Flux, as in sources → the spec.ignore of each that has the name.
	// ignoring: see ignores; nil until somebody asks. views: see under.
	specs    map[string][]specIgnore
	ignoring *ignoring
	views    map[*ignored.Filter]*builder
	// kept: directory → what it renders, from the search for appliers on; taken
	// by the first that asks.
	kept map[string]*rendering
	// memo of earlier builds; nil: there is none.
	memo *memo
	// comments of the files that were read to be rendered.
	comments *comments
	// laws: see law; nil until somebody asks.
	laws *policy.Policy
	// clock measures diagnosing, what the search for places took so far, and
	// diagnosed are those that were found.
	clock      clock.PassiveClock
	diagnosing time.Duration
	diagnosed  []diagnosed
}

// law is what the repository says of its own check.
func (b *builder) law() *policy.Policy {
	if b.laws == nil {
		b.laws = policy.Load(b.root, func(_ *os.Root, name string) ([]byte, error) {
			if !b.gate.tracked.has(name) {
				return nil, fs.ErrNotExist // no commit has it
			}
			return b.gate.read(name)
		}, builtIn{})
	}
	return b.laws
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
	return &builder{dir: absolute, root: root, gate: newGate(absolute, root), clock: clock.RealClock{}, comments: &comments{}}, nil
}

func (b *builder) close() { _ = b.root.Close() }

// build renders a path. Its error is ErrPathNotFound, or the context's.
func (b *builder) build(ctx context.Context, name string) (*rendering, error) {
	return b.buildAs(ctx, name, nil)
}

// buildAs renders a path as an applier has it, which need not be the repository's; nil:
// as it is. Its error may be ErrUnrendered too.
func (b *builder) buildAs(ctx context.Context, name string, of *applier) (*rendering, error) {
	var without withheld
	if of != nil {
		placed := []applier{*of}
		b.leave(placed)
		b, of, without = b.under(placed[0].leaves), &placed[0], placed[0].leaves
	}
	clean, kustomization, err := b.find(name)
	if err != nil {
		return nil, err
	}
	if of != nil {
		placed := []applier{*of}
		b.plainPaths(placed)
		if of = &placed[0]; len(of.unrendered) > 0 {
			return nil, unrenderedError(of.unrendered)
		}
	}
	switch {
	case of.alters() != nil:
		return b.as(ctx, root{path: clean, kustomization: kustomization, applied: true, leaves: without}, of)
	case kustomization != "":
		return b.kustomize(ctx, clean, kustomization)
	}
	return b.plainRoot(ctx, root{path: clean, applied: true, leaves: without})
}

func unrenderedError(fields []schemas.Problem) error {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].Path
	}
	return fmt.Errorf("%s: %w", strings.Join(names, ", "), ErrUnrendered)
}

// find looks for a path in the repository, and for the kustomization that
// renders it; none for plain files. Its error is ErrPathNotFound.
func (b *builder) find(name string) (clean, kustomization string, err error) {
	clean = strings.TrimPrefix(path.Clean(filepath.ToSlash(name)), "/")
	if clean == "" {
		clean = "."
	}
	if !filepath.IsLocal(clean) {
		return "", "", pathError(name, errors.New("the path leaves the repository"))
	}
	info, err := b.root.Stat(clean)
	if err != nil {
		return "", "", pathError(name, pathReason(err))
	}
	if !info.IsDir() {
		return clean, "", nil
	}
	if clean != "." && !b.gate.holds(clean) {
		return "", "", pathError(name, errEmptyDirectory)
	}
	if kustomization, err = b.gate.kustomizationIn(clean); err != nil {
		return "", "", pathError(name, pathReason(err))
	}
	return clean, kustomization, nil
}

// pathReason keeps the temporary directory of a checkout out of the message.
func pathReason(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such file or directory")
	}
	if inner := (*fs.PathError)(nil); errors.As(err, &inner) {
		err = inner.Err
	}
	if strings.Contains(err.Error(), "path escapes") {
		// os.Root's words; it has no error to compare with.
		return errors.New(outOfRepository)
	}
	return err
}

const outOfRepository = "it leads out of the repository"

// located puts a problem at the beginning of a file.
func located(problem schemas.Problem, file string) schemas.Problem {
	problem.File, problem.Line, problem.Column = file, 1, 1
	return problem
}
