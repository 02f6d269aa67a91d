package fleet

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

// Ref is what to follow: the first that is set of Commit (40 hexadecimal
// digits), Semver (a range of versions), Tag and Branch. Empty: branch main.
type Ref struct{ Branch, Tag, Semver, Commit string }

// String names the ref for people, such as "branch main".
func (r Ref) String() string {
	switch {
	case r.Commit != "":
		return "commit " + r.Commit
	case r.Semver != "":
		return "range " + r.Semver
	case r.Tag != "":
		return "tag " + r.Tag
	default:
		return "branch " + branchOf(r)
	}
}

// Full is the reference whose pushes matter, such as refs/heads/main; empty where those
// of any may.
func (r Ref) Full() string {
	switch {
	case r.Commit != "" || r.Semver != "":
		return ""
	case r.Tag != "":
		return plumbing.NewTagReferenceName(r.Tag).String()
	default:
		return plumbing.NewBranchReferenceName(branchOf(r)).String()
	}
}

func branchOf(r Ref) string { return cmp.Or(r.Branch, "main") }

// Revision is what a ref named when it was resolved.
type Revision struct {
	// Commit is 40 hexadecimal digits.
	Commit string
	// Branch or Tag that was followed to it; both are empty where the commit was.
	Branch, Tag string
	// tag is the annotated tag's object; zero: it is none.
	tag plumbing.Hash
}

// String names the revision as Flux does: with what was followed to it.
func (r Revision) String() string {
	if name := r.name(); name != "" {
		return name + "@sha1:" + r.Commit
	}
	return "sha1:" + r.Commit
}

func (r Revision) name() string { return r.Branch + r.Tag }

// Of is what a text in Revision's form says: the name that was followed, empty
// where there was none, and the commit; empty where it says none.
func Of(revision string) (name, commit string) {
	name, commit, found := strings.Cut(revision, "sha1:")
	if !found {
		return "", ""
	}
	return strings.TrimSuffix(name, "@"), commit
}

// CommitOf is the commit of a text in Revision's form, and the text itself where it is in
// another, such as the commit alone, which is all that the hub's own sync writes.
func CommitOf(revision string) string {
	_, commit := Of(revision)
	return cmp.Or(commit, revision)
}

// find looks up what a ref names; an annotated tag is the commit it names.
func (g *Git) find(refs *packp.AdvRefs, ref Ref) (Revision, error) {
	out := Revision{Branch: branchOf(ref)}
	switch {
	case ref.Semver != "":
		tag, err := highest(refs, ref.Semver)
		if err != nil {
			return Revision{}, sourceError("read", g.url, err, "push a tag such as v1.2.3, or correct the range; pre-releases count where the range names one, as in >=1.0.0-0")
		}
		out = Revision{Tag: tag}
	case ref.Tag != "":
		out = Revision{Tag: ref.Tag}
	}
	full := plumbing.NewBranchReferenceName(out.Branch).String()
	if out.Tag != "" {
		full = plumbing.NewTagReferenceName(out.Tag).String()
	}
	hash, ok := refs.References[full]
	peeled, annotated := refs.Peeled[full]
	switch {
	case annotated:
		out.Commit, out.tag = peeled.String(), hash
	case ok:
		out.Commit = hash.String()
	default:
		return Revision{}, sourceError("read", g.url, &noRefError{ref}, "push it, or correct the ref")
	}
	return out, nil
}

// noRefError is a server that answers and does not have the ref.
type noRefError struct{ ref Ref }

func (e *noRefError) Error() string { return fmt.Sprintf("there is no %s", e.ref) }
