package fleet

import (
	"context"
	"slices"

	"k8s.io/utils/clock"

	"cloop.dev/cloop/schemas"
)

// Report is all that is wrong with a repository.
type Report struct {
	// Roots that were rendered, by path.
	Roots []RootReport `json:"roots"`
	// Problems of all roots, by file and line, each once however many roots
	// show it.
	Problems []schemas.Problem `json:"problems"`
	// Subjects are the rendered objects, root by root, and the files that have a
	// problem of their own.
	Subjects []Subject `json:"subjects"`
	// Documents counts the rendered objects, Judged those of them that are of
	// cloop.dev: of others only the kind is looked at.
	Documents int `json:"documents"`
	Judged    int `json:"judged"`
	// Pools counts hub pools, each once however many halves and clusters it has.
	Pools int `json:"pools"`
	// Sparse says that the checkout is: what is not in the work tree was not checked.
	Sparse bool `json:"sparse,omitempty"`
	// Suppressed are the findings that the repository bears; they count nowhere
	// else.
	Suppressed []Suppressed `json:"suppressed,omitempty"`
	// Rules are the repository's own.
	Rules []Rule `json:"rules,omitempty"`
}

// RootReport is one kustomization root, or one path that was asked for.
type RootReport struct {
	// Path of the root, relative to the repository.
	Path string `json:"path"`
	// Documents, Judged and Pools count as those of a Report do.
	Documents int `json:"documents"`
	Judged    int `json:"judged"`
	Pools     int `json:"pools"`
	// Incomplete says that some of it could not be read or rendered: the counts are
	// of the rest.
	Incomplete bool `json:"incomplete,omitempty"`
	// Failed says that the root has an error. One of a rule between roots counts
	// for the root that it is shown in.
	Failed bool `json:"failed"`

	// found: something was wrong, or is to be known.
	found bool
}

// Unfound lists the roots in which there was nothing to check and nothing wrong
// either: a wrong path more often than a sound one.
func (r *Report) Unfound() []string {
	var paths []string
	for _, root := range r.Roots {
		if root.Documents == 0 && !root.Failed && !root.found {
			paths = append(paths, root.Path)
		}
	}
	return paths
}

// Failed says whether any problem is an error rather than a warning. A variable
// without a value is none: what it stands for is not known.
func (r *Report) Failed() bool {
	return slices.ContainsFunc(r.Problems, func(p schemas.Problem) bool {
		return p.Severity == schemas.SeverityError && p.Rule != RuleUnresolvedVariable
	})
}

func hasError(problems []schemas.Problem) bool {
	return slices.ContainsFunc(problems, func(p schemas.Problem) bool { return p.Severity == schemas.SeverityError })
}

// Unresolved counts the variables without a value, each once at every place that
// speaks of it. What depends on them was not judged.
func (r *Report) Unresolved() (count int) {
	for i := range r.Problems {
		if r.Problems[i].Rule == RuleUnresolvedVariable {
			count++
		}
	}
	return count
}

// Check is Checking.Check without values for variables.
func Check(ctx context.Context, v *schemas.Validator, root string, paths ...string) (*Report, error) {
	return Checking{Validator: v}.Check(ctx, root, paths...)
}

// Checking is how a repository is checked.
type Checking struct {
	Validator *schemas.Validator
	// Variables are the values for what the repository has none for: that which
	// none of its PoolSyncs applies, and what those take from their cluster.
	Variables *Variables
	// Base renders what a change starts from, for rules of the repository that look
	// at changes; nil: nothing is known of that.
	Base *Renderer
	// Tracked are the files that are read; nil: all that lie in the repository but
	// Git's own.
	Tracked *Tracked
	// Sparse says that the work tree has only a part of what is committed, so that
	// what others lack may lie in the rest.
	Sparse bool
	// Clock tells when ignores with a last day expire; nil: the machine's.
	Clock clock.PassiveClock
}

// Check renders every kustomization below root that no other refers to, and the
// plain directories with documents of cloop.dev in them. Of the paths, relative to root, each that
// is such a directory is looked through in the same way, and every other is a
// root. A root that several PoolSyncs of the repository apply with variables is
// checked for each.
//
// Check validates every document, applies the rules that span documents, and
// puts each problem at its source. A root that cannot be rendered is a problem
// like any other. Its error is ErrPathNotFound for a path that is not there, or
// ErrBuild where the repository itself cannot be read.
func (o Checking) Check(ctx context.Context, root string, paths ...string) (*Report, error) {
	b, err := newBuilder(root)
	if err != nil {
		return nil, pathError(root, pathReason(err))
	}
	defer b.close()
	b.gate.tracked, b.given = o.Tracked, o.Variables
	if isBare(b.root) {
		return nil, bareError(root)
	}
	roots, problems, err := b.expand(ctx, paths)
	if err != nil {
		return nil, err
	}
	c := newChecker(o.Validator)
	c.variables, c.lost, c.report.Sparse = o.Variables, o.Sparse, o.Sparse
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	c.governed(ctx, b, o.Clock, len(paths) == 0)
	if o.Base != nil {
		o.Base.b.cloneOf = b
	}
	c.government.base = &baseline{renderer: o.Base, now: map[string]bool{}}
	for _, at := range roots {
		c.government.base.now[at.path] = true
	}
	appliers, err := b.appliers(ctx)
	if err != nil {
		return nil, err
	}
	c.appliers, c.doubts = &appliers, b.doubts
	c.government.base.appliers = appliers
	for _, at := range roots {
		if err := c.root(ctx, b, at); err != nil {
			return nil, err
		}
	}
	if !o.Sparse {
		c.absentPaths(b)
		c.absentArtifacts(b)
	}
	if err := c.twice(ctx, b); err != nil {
		return nil, err
	}
	if b.whole {
		unlisted, err := b.surveyed.unlisted(ctx, c.filesWithErrors())
		if err != nil {
			return nil, err
		}
		problems = append(problems, unlisted...)
	}
	problems = append(problems, b.beyond...)
	problems = append(problems, b.ignoring.wrong()...)
	if problems = append(problems, c.alteredRoots(roots)...); len(problems) > 0 {
		// What cannot be searched, or nothing reads, belongs to no root.
		r := c.begin(".", nil)
		r.broken(problems)
	}
	c.hintSparse()
	return c.concluded(ctx, root)
}

// hintSparse says of what is missing that it may only not be checked out.
func (c *checker) hintSparse() {
	for i := range c.findings {
		if p := &c.findings[i].problem; c.report.Sparse && p.Rule == RuleMissingReference {
			p.Hint += "; the checkout is sparse: `git sparse-checkout add DIR` if it is committed and only not checked out"
		}
	}
}

// concluded is the result. A context that has ended meanwhile is an error: rules
// were not applied, and nothing found is not nothing wrong.
func (c *checker) concluded(ctx context.Context, name string) (*Report, error) {
	report := c.result()
	if ctx.Err() != nil {
		return nil, buildError(name, ctx.Err())
	}
	return report, nil
}

// BuildChecked is BuildWith, and a check of what that renders, with one rendering
// for both: for whoever applies what it has checked. Its errors are BuildWith's;
// a problem of a document is in the report only.
func BuildChecked(ctx context.Context, v *schemas.Validator, root, path string, variables *Variables) ([]Rendered, *Report, error) {
	built, err := buildWith(ctx, v, root, path, variables, nil)
	if err != nil {
		return nil, nil, err
	}
	return built.Objects, built.Report, nil
}
