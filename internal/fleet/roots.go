package fleet

import (
	"context"
	"errors"
	"slices"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// Renderer renders the roots of a repository one by one as Check does, for
// whoever compares what they render. It is used by one goroutine at a time.
type Renderer struct {
	b *builder
	// given are the values that the repository does not have.
	given *Variables
	// roots: path → the root that Roots found there, and adopted those of another revision.
	roots   map[string]root
	adopted map[string]bool
	spent   spent
}

// NewRenderer opens a repository's directory. Variables are as Checking has
// them. Its error is ErrPathNotFound.
func NewRenderer(dir string, given *Variables) (*Renderer, error) {
	b, err := newBuilder(dir)
	if err != nil {
		return nil, pathError(dir, pathReason(err))
	}
	b.given = given
	return &Renderer{b: b, given: given, roots: map[string]root{}, adopted: map[string]bool{}}, nil
}

// Track has only what Git tracks read. It comes before anything is rendered.
func (r *Renderer) Track(tracked *Tracked) { r.b.gate.tracked = tracked }

// CopyOf says that the directory is of the repository of another, such as a revision of
// it without Git's own directory. It comes before anything is rendered.
func (r *Renderer) CopyOf(other *Renderer) { r.b.cloneOf = other.b }

// Close ends it.
func (r *Renderer) Close() { r.b.close() }

// Roots lists the paths that a check of the whole repository renders. Its error
// is ErrBuild.
func (r *Renderer) Roots(ctx context.Context) ([]string, error) {
	found, _, err := r.b.expand(ctx, nil)
	if err != nil {
		return nil, err
	}
	paths := make([]string, len(found))
	for i, at := range found {
		paths[i], r.roots[at.path] = at.path, at
	}
	return paths, nil
}

// Adopt has a path that another revision renders by itself, and this one does
// not, rendered as it is there: of a plain directory as much as is a root there.
func (r *Renderer) Adopt(other *Renderer) {
	for path, at := range other.roots {
		if _, known := r.roots[path]; !known && at.kustomization == "" {
			r.roots[path], r.adopted[path] = at, true
		}
	}
}

// Adopted says whether a path is no root here, but a part of one or nothing: see Adopt.
func (r *Renderer) Adopted(path string) bool { return r.adopted[path] }

// Way is one way in which a path is applied.
type Way struct {
	// By names the object of the repository that applies it; empty where none
	// does.
	By string
	// In is the root, or the plain file, that defines that object.
	In string
	// Clusters are the directories clusters/NAME from which that object comes. Appliers
	// has them.
	Clusters []string
	// Path is the one that this object names, at or above what is applied in this way;
	// empty where it is of another repository.
	Path string
	// Fate is what becomes of what it has applied.
	Fate Fate
	// Digest is equal for ways that replace the same variables by the same, and change
	// the same of what the path renders.
	Digest string

	variables *Variables
	of        *applier
	leaves    withheld
}

// alters is equal for ways that change the same of what the path renders, and to which the
// same does not come.
func (w *Way) alters() string {
	digest := ""
	if a := w.of.alters(); a != nil {
		digest = a.digest
	} else if w.of != nil && w.of.plain {
		digest = w.of.directory.digest()
	}
	return digest + w.leaves.digest()
}

// Ways are those of a path, at least one. Its error is the context's.
func (r *Renderer) Ways(ctx context.Context, path string) ([]Way, error) {
	appliers, err := r.b.appliers(ctx)
	if err != nil {
		return nil, err
	}
	var ways []Way
	for _, v := range variants(appliers, path, r.given) {
		way := Way{By: v.by, In: v.in, variables: v.variables, of: v.of, leaves: r.b.leavesBy(appliers, path, v.of)}
		way.Digest = v.variables.Digest() + way.alters()
		if v.of != nil {
			way.Path, way.Fate = v.of.path, v.of.fate
		}
		ways = append(ways, way)
	}
	return ways, nil
}

// Appliers are the ways of all objects that apply a path, which need not be there. Its
// error is the context's.
func (r *Renderer) Appliers(ctx context.Context) ([]Way, error) {
	appliers, err := r.b.appliers(ctx)
	if err != nil {
		return nil, err
	}
	ways, clusters := make([]Way, len(appliers)), clustersOf(appliers)
	for i := range appliers {
		a := &appliers[i]
		ways[i] = Way{By: a.name, In: a.in, Path: a.path, Fate: a.fate, Clusters: clusters[i], of: a}
		if a.elsewhere {
			ways[i].Path = ""
		}
	}
	return ways, nil
}

// Unread are the files that cannot be read, or rendered, and may have more that applies a
// path. It comes after Ways or Appliers.
func (r *Renderer) Unread() (files []string) {
	for i := range r.b.doubts {
		files = append(files, r.b.doubts[i].File)
	}
	return files
}

// MakesSome says whether it is an ApplicationSet, which makes Applications of paths.
func (w *Way) MakesSome() bool { return w.of != nil && w.of.made != nil && w.Path != "" }

// Makes says whether it may make one of a path. list are the names in a directory.
func (w *Way) Makes(path string, list func(dir string) []string) bool {
	return w.MakesSome() && w.of.made.has(path, list)
}

// As is the way as another object has it, of what nobody else applies.
func (w Way) As(other Way) Way {
	w.By, w.In, w.Path, w.Fate = other.By, other.In, other.Path, other.Fate
	return w
}

// ReadsJSON says whether documents may be files of JSON, as they may for Argo CD.
func (w *Way) ReadsJSON() bool { return w.of != nil && w.of.argo() }

// Comparable says whether all of a path is rendered by itself, or nothing is there.
func (r *Renderer) Comparable(path string) bool {
	if _, known := r.roots[path]; known {
		return true
	}
	_, _, err := r.b.find(path)
	return err != nil
}

// Render renders a path in each of the ways, in their order; what the objects
// are like before variables are replaced is rendered once for those that change the same of it. The problems are those
// of the path, and those of a way; what has a variable without a value is among
// the objects as it was, and its problem has RuleUnresolvedVariable.
//
// Its error is ErrPathNotFound, also for a plain directory that is not rendered by
// itself, or ErrBuild where the context ended.
func (r *Renderer) Render(ctx context.Context, path string, ways []Way) ([]Rendering, error) {
	all := make([]Rendering, len(ways))
	rendered := map[string]*rendering{}
	// Where it is not there, rendering it says so.
	_, kustomization, _ := r.b.find(path)
	for i, way := range ways {
		out := rendered[way.alters()]
		if out == nil {
			var err error
			if out, err = r.render(ctx, path, &way); err != nil {
				return nil, err
			}
			if err := r.bear(ctx, path, out); err != nil {
				return nil, err
			}
			if out.partial {
				// What is left of it is for a check, and nothing to compare.
				out = &rendering{problems: out.problems}
			}
			rendered[way.alters()] = out
		}
		if problem, omit := r.spent.omitted(r.b, root{path: path, kustomization: kustomization}, variant{by: way.By}); omit {
			all[i].Problems = []schemas.Problem{problem}
			continue
		}
		r.spent.begin()
		ours := false
		one := rendering{objects: slices.Clone(out.objects), problems: slices.Clone(out.problems)}
		one.substitute(way.variables, nil)
		for j := range one.objects {
			one.objects[j].finish()
		}
		all[i].Problems = one.problems
		for j := range one.objects {
			r.spent.add(&one.objects[j])
			ours = ours || one.objects[j].Object.GroupVersionKind().Group == v1alpha1.Group
			all[i].Objects = append(all[i].Objects, one.objects[j].handedOut())
		}
		r.spent.end(ours)
	}
	for i := range all {
		all[i].Problems = append(all[i].Problems, r.b.ignoring.wrong()...)
	}
	return all, nil
}

// bear tells what is another team's, as a check does.
func (r *Renderer) bear(ctx context.Context, path string, out *rendering) error {
	appliers, err := r.b.appliers(ctx)
	if err != nil {
		return err
	}
	who := applicantOf(appliers, path)
	if len(r.b.doubts) > 0 {
		who = another
	}
	return r.b.bearOthers(ctx, path, who, out)
}

// Rendering is what a path renders in one way.
type Rendering struct {
	Objects  []Rendered
	Problems []schemas.Problem
}

func (r *Renderer) render(ctx context.Context, path string, way *Way) (*rendering, error) {
	of := way.of
	clean, kustomization, err := r.b.find(path)
	switch {
	case err != nil:
		return nil, err
	case kustomization != "":
		return r.b.as(ctx, r.b.without(root{path: clean, kustomization: kustomization}, way.leaves), of)
	}
	at, known := r.roots[clean]
	if !known || at.kustomization != "" {
		return nil, pathError(path, errors.New("it is a part of another root"))
	}
	return r.b.as(ctx, r.b.without(at.as(of), way.leaves), of)
}
