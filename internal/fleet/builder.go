package fleet

import (
	"context"
	"encoding/hex"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/schemas"
)

// Builder builds paths of a repository again and again, as its commits come, and
// does again only what a change reaches: kustomize renders what reads a file that
// has changed, and what was judged before and is the same is not judged anew. What
// comes out is what BuildChecked gives.
//
// It remembers the last build of each of a few paths, above all its objects. It is
// safe for concurrent use; builds wait for each other.
type Builder struct {
	validator *schemas.Validator

	mu    sync.Mutex // guards what follows
	memos map[string]*memo
	// recent are the paths of the memos, the one that was built last at the end.
	recent []string
}

// maxMemos bounds how many paths a builder remembers. Who syncs has one, and for
// a while two where its path changes.
const maxMemos = 2

// NewBuilder makes a builder that remembers nothing yet.
func NewBuilder(v *schemas.Validator) *Builder {
	return &Builder{validator: v, memos: map[string]*memo{}}
}

// Built is what a path renders, and what is wrong with it.
type Built struct {
	// Objects that the path renders, in order, those that are held back included.
	// Other builds have the same: they are not to be changed.
	Objects []Rendered
	// HeldBack: Identity of an object → why it is not to be applied. The others may
	// be.
	HeldBack map[string][]schemas.Problem
	// Refused are the errors that no object has, such as two that are one, or a
	// rule of the repository that does not compile: nothing is to be applied.
	Refused []schemas.Problem
	// Report has every problem.
	Report *Report
	// Digest is equal for builds of the same objects, of the same files, with the
	// same problems.
	Digest string
	// Reused counts the objects that an earlier build had rendered, Rendered those
	// that kustomize rendered now, or that are files as they are.
	Reused, Rendered int

	errors []schemas.Problem
}

// Identity is equal for documents that are one object to an API server.
func Identity(obj *unstructured.Unstructured) string { return identity(obj) }

// Build renders and checks a path of the repository in a directory, as
// BuildChecked does, with its errors. The directory may be another each time.
func (b *Builder) Build(ctx context.Context, root, path string, variables *Variables) (*Built, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return buildWith(ctx, b.validator, root, path, variables, b.memoOf(path))
}

// Forget lets go of all that is remembered.
func (b *Builder) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.memos, b.recent = map[string]*memo{}, nil
}

// memoOf is the memo of a path; that of the path that was not built for longest
// goes, where there are too many.
func (b *Builder) memoOf(path string) *memo {
	b.recent = append(slices.DeleteFunc(b.recent, func(other string) bool { return other == path }), path)
	if len(b.recent) > maxMemos {
		delete(b.memos, b.recent[0])
		b.recent = slices.Delete(b.recent, 0, 1)
	}
	if b.memos[path] == nil {
		b.memos[path] = &memo{}
	}
	return b.memos[path]
}

// buildWith builds with a memo, or without one where it is nil.
func buildWith(ctx context.Context, v *schemas.Validator, root, path string, variables *Variables, m *memo) (*Built, error) {
	b, err := newBuilder(root)
	if err != nil {
		return nil, pathError(path, err)
	}
	defer b.close()
	if m != nil {
		b.memo = m
		m.begin(b.law().Digest)
		defer m.end()
	}
	out, err := b.build(ctx, path)
	if err != nil {
		return nil, err
	}
	out.substitute(variables, m)
	rendered, err := out.sound(path)
	if err != nil {
		return nil, err
	}
	c := newChecker(v)
	c.memo = m
	c.governed(ctx, b, nil, false)
	r := c.begin(path, nil)
	r.rendering(out)
	r.end()
	report, err := c.concluded(ctx, path)
	if err != nil {
		return nil, err
	}
	built := &Built{Objects: rendered, Report: report}
	built.holdBack(c, r.subjects)
	built.count(out)
	if m != nil {
		m.keep(!c.government.rules.Cut())
	}
	return built, nil
}

// Errors are the problems that keep something from being applied, sorted as those
// of a report are, then those that the repository bears where somebody else applies.
func (b *Built) Errors() []schemas.Problem { return b.errors }

// holdBack sorts the problems that keep something from being applied by the objects
// that have them. subjects: object → its subject in the report.
func (b *Built) holdBack(c *checker, subjects []int) {
	b.HeldBack = map[string][]schemas.Problem{}
	hold := func(object int, problem schemas.Problem) {
		id := Identity(b.Objects[object].Object)
		b.HeldBack[id] = append(b.HeldBack[id], problem)
	}
	held := make([]bool, len(b.Report.Problems))
	objects := map[int]int{}
	for object, subject := range subjects {
		objects[subject] = object
		for _, i := range b.Report.Subjects[subject].Problems {
			if problem := b.Report.Problems[i]; keepsBack(&problem) && problem.Rule != RuleDuplicateObject {
				held[i] = true
				hold(object, problem)
			}
		}
	}
	for i := range b.Report.Problems {
		problem := b.Report.Problems[i]
		if !keepsBack(&problem) {
			continue
		}
		b.errors = append(b.errors, problem)
		if !held[i] {
			b.Refused = append(b.Refused, problem)
		}
	}
	for i := range c.suppressed {
		// The repository may bear it where somebody else applies this root.
		if problem := c.suppressed[i].problem; problem.Rule == RuleKindNotApplied {
			b.errors = append(b.errors, problem)
			if object, ok := objects[c.suppressed[i].subject]; ok {
				hold(object, problem)
			}
		}
	}
	b.nameless(hold)
}

// keepsBack says whether a problem keeps something from being applied. A person
// may check a repository that Flux applies; a PoolSync must not apply an object of
// a kind that is not its own, and must not pretend that it did.
func keepsBack(problem *schemas.Problem) bool {
	return problem.Severity == schemas.SeverityError || problem.Rule == RuleKindNotApplied
}

// nameless holds back objects without a name, of kinds that are not judged.
func (b *Built) nameless(hold func(int, schemas.Problem)) {
	for i := range b.Objects {
		obj := b.Objects[i].Object
		if obj.GetName() != "" || !Applicable(obj.GroupVersionKind()) || len(b.HeldBack[Identity(obj)]) > 0 {
			continue
		}
		problem := schemas.Problem{
			Rule: schemas.RuleMetadata, Severity: schemas.SeverityError, File: b.Objects[i].SourcePath, Line: b.Objects[i].Line, Column: 1,
			Object: obj.GetKind(), Path: "metadata.name", Message: "Required value", Hint: "an object from Git needs a name that stays",
		}
		b.errors = append(b.errors, problem)
		hold(i, problem)
	}
}

// count fills in the counts and the digest.
func (b *Built) count(out *rendering) {
	texts := make([]string, 0, 2*len(out.objects)+len(b.Report.Problems))
	for i := range out.objects {
		o := &out.objects[i]
		if o.reused {
			b.Reused++
		} else {
			b.Rendered++
		}
		digest := o.sum()
		texts = append(texts, string(digest[:]), o.SourcePath)
	}
	for i := range b.Report.Problems {
		texts = append(texts, b.Report.Problems[i].String())
	}
	digest := answerOf(texts...)
	b.Digest = hex.EncodeToString(digest[:])
}
