package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/schemas"
)

// noteSource notes which repository a source of Flux fetches, and what it leaves out.
func (b *builder) noteSource(o *renderedObject) {
	obj := o.Object
	if gvk := obj.GroupVersionKind(); gvk.Group != fluxSourceGroup || gvk.Kind != v1alpha1.SourceGitRepository {
		return
	}
	if b.sources == nil {
		b.sources, b.specs = map[string][]string{}, map[string][]specIgnore{}
	}
	name, url := obj.GetKind()+" "+obj.GetNamespace()+"/"+obj.GetName(), textAt(obj, "spec", "url")
	if !slices.Contains(b.sources[name], url) {
		b.sources[name] = append(b.sources[name], url)
	}
	at := o.locate(schemas.Problem{Path: "spec.ignore"})
	b.specs[name] = append(b.specs[name], specIgnore{textAt(obj, "spec", "ignore"), placed{file: at.File, line: int32(at.Line)}}) //nolint:gosec // files are bounded
}

// elsewhere marks the appliers that read another repository, and so another path of
// the name: those whose repository is called otherwise than every remote of this one
// or, where it is no clone, than that which the appliers of what defines them read. A
// mirror is mostly called the same, whatever the address; and what applies the file that
// defines it reads this one, however that is called. Of a source that the repository does
// not have, it tells whether Flux applies what defines the applier by another one.
func (b *builder) elsewhere(found []applier) {
	remotes := map[string]bool{}
	for remote := range b.remotes() {
		if remotes[path.Base(remote)] = true; strings.HasPrefix(remote, "/") {
			// A clone of a directory, which is called as somebody liked.
			remotes = nil
			break
		}
	}
	urls := make([][]string, len(found))
	for i := range found {
		a := &found[i]
		a.elsewhere = false
		if a.url != "" {
			urls[i] = []string{a.url}
		} else if a.object != nil {
			urls[i] = b.sources[sourceOf(a.object.Object)]
		}
		if slices.ContainsFunc(urls[i], func(url string) bool { return url == "" || strings.ContainsAny(url, "${}") }) {
			urls[i] = nil
		}
		if len(urls[i]) > 0 && a.applies(a.in) && remotes != nil {
			for _, url := range urls[i] {
				remotes[path.Base(RepositoryOf(url))] = true
			}
		}
	}
	parents := pathsOf(found)
	for i := range found {
		a := &found[i]
		here, sources := maps.Clone(remotes), map[string]bool{}
		for _, j := range parents.applying(found, a.in) {
			p := &found[j]
			if p.object != nil && !p.sync {
				sources[sourceOf(p.object.Object)] = true
			}
			for _, url := range urls[j] {
				if len(remotes) == 0 {
					if here == nil {
						here = map[string]bool{}
					}
					here[path.Base(RepositoryOf(url))] = true
				}
			}
		}
		switch {
		case len(urls[i]) > 0:
			a.elsewhere = len(here) > 0 && !slices.ContainsFunc(urls[i], func(url string) bool { return here[path.Base(RepositoryOf(url))] })
			a.reads = urls[i][0]
		case a.object != nil && !a.sync:
			source := sourceOf(a.object.Object)
			a.elsewhere = source != "" && len(sources) > 0 && !sources[source]
		}
	}
}

// pathsOf finds appliers by their path.
func pathsOf(appliers []applier) byPath {
	found := byPath{}
	for i := range appliers {
		found[appliers[i].path] = append(found[appliers[i].path], i)
	}
	return found
}

// byPath: path → the appliers of it.
type byPath map[string][]int

// applying are those that apply a root or file, ascending.
func (p byPath) applying(appliers []applier, in string) (found []int) {
	for dir := in; ; dir = path.Dir(dir) {
		for _, i := range p[dir] {
			if appliers[i].applies(in) {
				found = append(found, i)
			}
		}
		if dir == "." {
			break
		}
	}
	slices.Sort(found)
	return found
}

// sourceOf names the source of Flux that a sync reads; empty: none.
func sourceOf(obj *unstructured.Unstructured) string {
	kind, namespace := textAt(obj, "spec", "sourceRef", "kind"), textAt(obj, "spec", "sourceRef", "namespace")
	if kind == "" {
		return ""
	}
	if namespace == "" {
		namespace = obj.GetNamespace()
	}
	return kind + " " + namespace + "/" + textAt(obj, "spec", "sourceRef", "name")
}

// hintElsewhere says of a variable without a value that what applies the path applies
// that of another repository.
func (c *checker) hintElsewhere() {
	if c.appliers == nil {
		return
	}
	for i := range c.findings {
		f := &c.findings[i]
		if f.problem.Rule != RuleUnresolvedVariable || f.subject == noSubject {
			continue
		}
		root := c.report.Subjects[f.subject].Root
		at := slices.IndexFunc(*c.appliers, func(a applier) bool { return a.elsewhere && a.path == root })
		if at < 0 {
			continue
		}
		a := &(*c.appliers)[at]
		f.problem.Hint += fmt.Sprintf("; %s in %s applies %s of another repository, %s", a.name, a.in, a.path, cmp.Or(a.reads, "which its source names"))
		if a.reads != "" {
			f.problem.Hint += ": if this is a fork of it or it has another name now, `git remote add upstream` with that address says so"
		}
	}
}
