package fleet

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/types"

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
}

// RootReport is one kustomization root, or one path that was asked for.
type RootReport struct {
	Path string `json:"path"`
	// Documents, Judged and Pools count as those of a Report do.
	Documents int `json:"documents"`
	Judged    int `json:"judged"`
	Pools     int `json:"pools"`
	// Failed says that the root has an error of its own; rules between roots
	// count for none of them.
	Failed bool `json:"failed"`
}

// Unfound lists the roots in which there was nothing to check and nothing wrong
// either: a wrong path more often than a sound one.
func (r *Report) Unfound() []string {
	var paths []string
	for _, root := range r.Roots {
		if root.Documents == 0 && !root.Failed {
			paths = append(paths, root.Path)
		}
	}
	return paths
}

// Failed says whether any problem is an error rather than a warning.
func (r *Report) Failed() bool { return hasError(r.Problems) }

func hasError(problems []schemas.Problem) bool {
	return slices.ContainsFunc(problems, func(p schemas.Problem) bool { return p.Severity == schemas.SeverityError })
}

// Check renders every kustomization below root that no other refers to, or the
// paths, relative to root; a repository without a kustomization is one root. It
// validates every document, applies the rules that span documents, and puts
// each problem at its source. A root that cannot be rendered is a problem like
// any other. Its error is ErrPathNotFound for a path that is not there, or ErrBuild
// where the repository itself cannot be read.
func Check(ctx context.Context, v *schemas.Validator, root string, paths ...string) (*Report, error) {
	b, err := newBuilder(root)
	if err != nil {
		return nil, pathError(root, pathReason(err))
	}
	defer b.close()
	if len(paths) == 0 {
		if paths, err = b.roots(ctx); err != nil {
			return nil, err
		}
	}
	c := newChecker(v)
	for _, name := range paths {
		if err := c.path(ctx, b, name); err != nil {
			return nil, err
		}
	}
	return c.result(), nil
}

// BuildChecked is Build, and Check of that one path, with one rendering for
// both: for whoever applies what it has checked. Its errors are Build's; a
// problem of a document is in the report only.
func BuildChecked(ctx context.Context, v *schemas.Validator, root, path string) ([]Rendered, *Report, error) {
	b, err := newBuilder(root)
	if err != nil {
		return nil, nil, pathError(path, err)
	}
	defer b.close()
	out, err := b.build(ctx, path)
	if err != nil {
		return nil, nil, err
	}
	rendered, err := out.sound(path)
	if err != nil {
		return nil, nil, err
	}
	c := newChecker(v)
	r := c.begin(path)
	r.rendering(out)
	r.end()
	return rendered, c.result(), nil
}

// maxDirectories bounds how many directories are searched for kustomizations.
const maxDirectories = 20_000

// roots finds the directories with a kustomization that no other refers to.
func (b *builder) roots(ctx context.Context) ([]string, error) {
	found, referred := []string{}, map[string]bool{}
	visited := 0
	err := fs.WalkDir(b.root.FS(), ".", func(dir string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case !entry.IsDir():
			return nil
		case dir != "." && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		}
		if visited++; visited > maxDirectories {
			return fmt.Errorf("%w: more than %d directories", errBounds, maxDirectories)
		}
		kustomization, err := kustomizationIn(b.root, dir)
		if err != nil || kustomization == "" {
			return err
		}
		if !b.refersTo(dir, kustomization, referred) {
			found = append(found, dir)
		}
		return nil
	})
	if err != nil {
		return nil, buildError("the repository", pathReason(err))
	}
	roots := slices.DeleteFunc(found, func(dir string) bool { return referred[dir] })
	if len(found) == 0 {
		return []string{"."}, nil
	}
	if len(roots) == 0 {
		// They refer to each other in a circle, which kustomize reports.
		return found, nil
	}
	return roots, nil
}

// refersTo notes the directories that a kustomization refers to, and says
// whether it is a component, which is nothing by itself.
func (b *builder) refersTo(dir, file string, referred map[string]bool) (component bool) {
	data, err := (&scan{root: b.root}).read(file)
	if err != nil {
		return false
	}
	var k kustomizationFile
	if err := yaml.Unmarshal(data, &k); err != nil {
		return false
	}
	for _, entry := range k.directories() {
		referred[path.Join(dir, entry.Value)] = true
	}
	return k.Kind == types.ComponentKind
}
