package fleet

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
)

// noteSource notes which repository a source of Flux fetches.
func (b *builder) noteSource(obj *unstructured.Unstructured) {
	if gvk := obj.GroupVersionKind(); gvk.Group != fluxSourceGroup || gvk.Kind != v1alpha1.SourceGitRepository {
		return
	}
	if b.sources == nil {
		b.sources = map[string]string{}
	}
	name, url := obj.GetKind()+" "+obj.GetNamespace()+"/"+obj.GetName(), textAt(obj, "spec", "url")
	if known, met := b.sources[name]; met && known != url {
		url = "" // of two clusters
	}
	b.sources[name] = url
}

// elsewhere marks the appliers that read another repository, and so another path of
// the name: those whose repository is called otherwise than every remote of this one
// or, where it is no clone, than that which the appliers of what defines them read. A
// mirror is mostly called the same, whatever the address.
func (b *builder) elsewhere(found []applier) {
	remotes := map[string]bool{}
	for remote := range b.remotes() {
		if remotes[path.Base(remote)] = true; strings.HasPrefix(remote, "/") {
			// A clone of a directory, which is called as somebody liked.
			remotes = nil
			break
		}
	}
	for i := range found {
		a := &found[i]
		a.elsewhere = false
		if a.url == "" && a.object != nil {
			a.url = b.sources[sourceOf(a.object.Object)]
		}
	}
	for i := range found {
		a := &found[i]
		if a.url == "" || strings.ContainsAny(a.url, "${}") {
			continue
		}
		here := remotes
		if len(here) == 0 {
			here = map[string]bool{}
			for j := range found {
				if p := &found[j]; p.url != "" && p.applies(a.in) {
					here[path.Base(RepositoryOf(p.url))] = true
				}
			}
		}
		a.elsewhere = len(here) > 0 && !here[path.Base(RepositoryOf(a.url))]
	}
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
		f.problem.Hint += fmt.Sprintf("; %s in %s applies %s of another repository, %s", a.name, a.in, a.path, a.url)
	}
}
