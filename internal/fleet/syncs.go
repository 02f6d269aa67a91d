package fleet

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/fluxcd/pkg/envsubst/parse"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/schemas"
)

// applier is an object of the repository that has a path applied: a PoolSync, a
// Kustomization of Flux, or an Application of Argo CD.
type applier struct {
	// name is the object's, and in is the root or plain file that has it.
	name, in string
	// object is nil of Argo CD's. place is where it is written.
	object *renderedObject
	place  placed
	// sync tells a PoolSync from the others.
	sync bool
	// path is cleaned, and relative to the repository's root.
	path string
	// source is as a synced has it; empty for Argo CD.
	source string
	// plain: the path is a directory without a kustomization, all below which is
	// applied as one. With directory it is as Argo CD has it; chart: it makes something
	// else of what lies there than the documents.
	plain, chart bool
	directory    *argoDirectory
	// leaves is what of the repository does not come to it.
	leaves withheld
	// kustomizations of the repository: directory → file. Argo CD builds none of those
	// below a directory.
	kustomizations map[string]string
	// pathField is the field of an Application that has the path, and at where it is.
	pathField string
	at        placed
	// url is of the repository that it reads, as it says itself; empty: it does not.
	// elsewhere: that is another than this one, and reads says which for people.
	url, reads string
	elsewhere  bool
	// facts of what is no Application.
	facts *facts
	// fate of what it applies; made are the paths of an ApplicationSet's Applications;
	// nil of all else.
	fate Fate
	made *pathsMade
	// variables are nil where it replaces none. References to objects of a
	// cluster have no values here.
	variables *Variables
	// serverSide: an Application says that it applies on the server's side.
	serverSide bool
	// alteration is what it changes by fields of its own; nil: nothing. See alters.
	// unrendered are those fields where they are not applied here, and digest is equal
	// where they say the same. unknown are those of unrendered that depend on what is
	// not in the repository.
	alteration          *alteration
	unrendered, unknown []schemas.Problem
	digest              string
}

// alters is what it changes of what its path renders by fields of its own, as far as
// that is applied here. Whatever applies the whole of a repository may mean another one.
func (a *applier) alters() *alteration {
	if a == nil || a.plain && (a.path == "." || a.argo()) {
		return nil
	}
	return a.alteration
}

// argo says whether it is Argo CD's.
func (a *applier) argo() bool { return a.object == nil }

// WithinRepository is a path as objects give it, cleaned and relative to the
// repository's root, which it cannot leave.
func WithinRepository(name string) string {
	return cmp.Or(strings.TrimPrefix(path.Clean("/"+name), "/"), ".")
}

const (
	fluxGroup       = "kustomize.toolkit.fluxcd.io"
	fluxSourceGroup = "source.toolkit.fluxcd.io"
	argoGroup       = "argoproj.io"
)

// namesApplier says whether a text may define an applier, or what one reads.
func namesApplier(data []byte) bool {
	return bytes.Contains(data, []byte(v1alpha1.PoolSyncKind)) && bytes.Contains(data, []byte(v1alpha1.Group)) ||
		bytes.Contains(data, []byte(fluxGroup)) || bytes.Contains(data, []byte(fluxSourceGroup)) || bytes.Contains(data, []byte(argoGroup))
}

// appliers finds those that the repository defines: in plain files, and in what
// its roots render, patched as they are.
func (b *builder) appliers(ctx context.Context) ([]applier, error) {
	if b.applied == nil {
		found, err := b.findAppliers(ctx)
		if err != nil {
			return nil, err
		}
		b.plainPaths(found)
		if found, err = b.inherited(ctx, found); err != nil {
			return nil, err
		}
		// What applies them, and how, is known now.
		b.leave(found)
		b.plainPaths(found)
		b.applied = &found
	}
	return *b.applied, nil
}

// plainPaths notes which of them apply a directory without a kustomization, and what of
// what they change is not applied here.
func (b *builder) plainPaths(found []applier) {
	for i := range found {
		a := &found[i]
		_, kustomization, err := b.under(a.leaves).find(a.path)
		info, noFile := b.root.Stat(a.path)
		a.plain = err == nil && kustomization == "" && noFile == nil && info.IsDir()
		if b.surveyed != nil {
			a.kustomizations = b.surveyed.kustomizations
		}
		if a.plain && a.argo() {
			_, noChart := b.root.Stat(path.Join(a.path, "Chart.yaml"))
			a.plain = !a.chart && noChart != nil
		}
		if a.unrendered = a.unknown; a.alteration != nil && a.alters() == nil {
			a.unrendered, a.digest = slices.Concat(a.unknown, a.alteration.unrendered()), a.digest+a.alteration.digest
		}
	}
}

func (b *builder) findAppliers(ctx context.Context) ([]applier, error) {
	s, err := b.surveyAll(ctx)
	if err != nil {
		return nil, err
	}
	found, err := b.appliersIn(ctx, s)
	if err != nil {
		return nil, err
	}
	// Those that lie below what only gathers are none before it is known to.
	below, _ := b.defined(s.loose(s.covered))
	for err == nil && s.dissolve(slices.Concat(found, below)) {
		// There are other roots now.
		found, err = b.appliersIn(ctx, s)
	}
	if err != nil {
		return nil, err
	}
	return b.appliersBelow(s, found), nil
}

// appliersBelow adds those in directories that are applied as plain ones, though a
// kustomization lies above: at the top of a repository, one may list something else.
func (b *builder) appliersBelow(s *survey, found []applier) []applier {
	files := s.loose(s.covered)
	for len(files) > 0 {
		b.plainPaths(found)
		var applied []string
		files = slices.DeleteFunc(files, func(file string) bool {
			is := slices.ContainsFunc(found, func(a applier) bool { return a.plain && a.path != "." && a.applies(file) })
			if is {
				applied = append(applied, file)
			}
			return is
		})
		more, lost := b.defined(applied)
		if b.doubt(lost...); len(more) == 0 {
			break
		}
		found = append(found, more...)
		b.elsewhere(found)
	}
	return found
}

// appliersIn are those in the plain files of a survey, and in what its roots render.
func (b *builder) appliersIn(ctx context.Context, s *survey) ([]applier, error) {
	found, lost := b.defined(s.plain)
	b.doubt(lost...)
	for _, dir := range s.order {
		if s.components[dir] || s.referred[dir] || !s.reaches(dir, map[string]bool{}, namesApplier) {
			continue
		}
		met := b.gate.meeting()
		out, err := b.kustomize(ctx, dir, s.kustomizations[dir])
		if read := met(); err == nil {
			out.met = read
		}
		if err != nil {
			return nil, err
		}
		for i := range out.objects {
			b.noteSource(&out.objects[i])
			found = out.objects[i].applier(found, dir)
		}
		b.doubt(out.problems...)
		b.keep(dir, out)
	}
	b.elsewhere(found)
	return found, nil
}

// defined are the appliers that files define as they are; lost are why there may be
// more.
func (b *builder) defined(files []string) (found []applier, lost []schemas.Problem) {
	for _, file := range files {
		data, err := b.gate.read(file)
		if err != nil || !namesApplier(data) {
			continue
		}
		part := parsed(file, data)
		lost = append(lost, part.problems...)
		for i := range part.objects {
			b.noteSource(&part.objects[i])
			found = part.objects[i].applier(found, file)
		}
	}
	return found, lost
}

// maxKept bounds how many objects are kept of what was rendered in search of
// appliers; the rest is rendered again when its turn comes.
const maxKept = 2_000

func (b *builder) keep(dir string, out *rendering) {
	total := len(out.objects)
	for _, other := range b.kept {
		total += len(other.objects)
	}
	if total > maxKept {
		return
	}
	if b.kept == nil {
		b.kept = map[string]*rendering{}
	}
	b.kept[dir] = out
}

// taken is what was kept of a directory, and else what it renders.
func (b *builder) taken(ctx context.Context, dir, kustomization string) (*rendering, error) {
	if out, ok := b.kept[dir]; ok && b.gate.reads(out.met) {
		delete(b.kept, dir)
		return out, nil
	}
	return b.kustomize(ctx, dir, kustomization)
}

// reaches says whether a kustomization is, or refers to, over others too, a file that
// has what is looked for.
func (s *survey) reaches(dir string, seen map[string]bool, has func([]byte) bool) bool {
	if seen[dir] {
		return false
	}
	seen[dir] = true
	if data, err := s.b.gate.read(s.kustomizations[dir]); err == nil && has(data) {
		return true
	}
	return slices.ContainsFunc(s.refers[dir], func(name string) bool {
		if _, ok := s.kustomizations[name]; ok {
			return s.reaches(name, seen, has)
		}
		data, err := s.b.gate.read(name)
		return err == nil && has(data)
	})
}

// applier adds the object to others if it is one.
func (o *renderedObject) applier(others []applier, in string) []applier {
	obj, values, from := o.Object, []string{"spec", "substitute", "vars"}, []string{"spec", "substitute"}
	switch gvk := obj.GroupVersionKind(); {
	case isKind(obj, v1alpha1.PoolSyncKind):
	case isFlux(obj):
		values, from = []string{"spec", "postBuild", "substitute"}, []string{"spec", "postBuild"}
	case gvk.Group == argoGroup:
		return append(others, o.argoAppliers(in)...)
	default:
		return others
	}
	where, _, _ := unstructured.NestedString(obj.Object, "spec", "path")
	self := *o
	found := applier{name: describe(obj), object: &self, place: o.defined(), in: in, path: WithinRepository(where), sync: isKind(obj, v1alpha1.PoolSyncKind), facts: o.syncFacts(), fate: fateBy(obj)}
	found.source, found.url = found.facts.sync.source, found.facts.sync.url
	if !found.sync {
		found.alteration = o.alterationOf()
	}
	if _, substitutes, _ := unstructured.NestedMap(obj.Object, from...); substitutes {
		found.variables = o.given(values, found.sync)
	}
	return append(others, found)
}

// given are the variables in a field of an applier, each with its place. The kind's
// own rules report what is no name and no value of a PoolSync's; what is none in a
// Kustomization of Flux is told where it is missed, and its values have no bound.
func (o *renderedObject) given(field []string, sync bool) *Variables {
	v := &Variables{values: map[string]variable{}, refused: map[string]refusal{}}
	all, _, _ := unstructured.NestedFieldNoCopy(o.Object.Object, field...)
	fields, _ := all.(map[string]any)
	for name, value := range fields {
		at := o.locate(schemas.Problem{Path: strings.Join(field, ".") + "." + name})
		place := placed{file: at.File, line: int32(at.Line), column: int32(at.Column)}
		text, isText := value.(string)
		switch {
		case !isText:
			remedy := "write it in quotes"
			if o.variables != nil {
				remedy = ownQuotes
			}
			v.refused[name] = refusal{fmt.Sprintf("%s in %s of %s is no text (%s:%d)", name, strings.Join(field, "."), describe(o.Object), at.File, at.Line), remedy}
		case sync:
			if err := v.set(name, text, place); err != nil {
				v.refused[name] = refusal{err.Error(), fmt.Sprintf("correct it at %s:%d", at.File, at.Line)}
			}
		default:
			v.put(name, text, place)
			if missing := unreplacedIn(text); missing != "" {
				delete(v.values, name)
				written, remedy := unreplacedAs(missing, text)
				v.refused[name] = refusal{fmt.Sprintf("%s in %s of %s has %s, which nothing replaces here (%s:%d)", name, strings.Join(field, "."), describe(o.Object), printable.Clip(written, maxQuoted), at.File, at.Line), remedy}
			}
		}
	}
	return v
}

// unreplacedIn is the name of a variable that a value still speaks of; empty: none.
func unreplacedIn(text string) string {
	if !strings.Contains(text, "${") {
		return ""
	}
	tree, err := parseText(text)
	if err != nil {
		return ""
	}
	return spokenOf(tree.Root)
}

// unreplacedAs is how a text speaks of a variable that nothing replaces, and what to do.
func unreplacedAs(name, text string) (written, remedy string) {
	written = regexp.MustCompile(`\$\{` + regexp.QuoteMeta(name) + `[^}]*\}?`).FindString(text)
	if written == "${"+name+"}" {
		return written, "give " + name + " a value where that is applied, or write the value itself"
	}
	// It has a default.
	return written, "have whatever applies that replace variables, if only by their defaults, or write the value itself"
}

// spokenOf is the name of the first variable in a text; empty: it has none.
func spokenOf(node parse.Node) string {
	switch n := node.(type) {
	case *parse.ListNode:
		for _, child := range n.Nodes {
			if name := spokenOf(child); name != "" {
				return name
			}
		}
	case *parse.FuncNode:
		return n.Param
	}
	return ""
}

// appliesPath says whether one of the appliers names a path.
func appliesPath(appliers []applier, path string) bool {
	return slices.ContainsFunc(appliers, func(a applier) bool { return a.path == path && !a.elsewhere })
}

// applies says whether it has a root applied.
func (a *applier) applies(root string) bool {
	if a.elsewhere || !a.plain || a.path == root {
		return !a.elsewhere && a.path == root
	}
	if a.directory != nil {
		return a.path != "." && a.kustomizations[root] == "" && a.directory.reaches(a.path, root)
	}
	return strings.HasPrefix(root, a.path+"/")
}

// applicant is who applies a root, as far as the repository tells.
type applicant int

const (
	// anybody: the repository has no applier.
	anybody applicant = iota
	// poolSync: a PoolSync of the repository.
	poolSync
	// another: Flux, Argo CD, or somebody by hand, since nothing of the repository does.
	another
)

func applicantOf(appliers []applier, root string) applicant {
	if len(appliers) == 0 {
		return anybody
	}
	for i := range appliers {
		if appliers[i].sync && appliers[i].applies(root) {
			return poolSync
		}
	}
	return another
}

// refuses says whether a PoolSync that applies nothing of an object's kind is who
// would apply it. Who has Flux's own objects in a repository has Flux apply them.
func (a applicant) refuses(group string) bool {
	return a == poolSync || a == anybody && !strings.HasSuffix(group, ".toolkit.fluxcd.io")
}

// variant is one way in which a root is applied.
type variant struct {
	// by is the object that applies it, and in the root or plain file that has that;
	// empty where none of the repository does. namesake: another of the name applies it,
	// of another cluster.
	by, in    string
	namesake  bool
	variables *Variables
	of        *applier
}

// variants are the ways in which a root is applied, at least one. What nothing
// in the repository applies has the values that were given, and so has what an
// applier leaves to objects of its cluster.
func variants(appliers []applier, root string, given *Variables) []variant {
	given = given.in(root)
	var all []variant
	for i := range appliers {
		a := &appliers[i]
		if !a.applies(root) {
			continue
		}
		v := a.variables
		if v != nil {
			v = v.Over(given)
		}
		all = append(all, variant{by: a.name, in: a.in, variables: v, of: a})
	}
	named := map[string]int{}
	for i := range all {
		named[all[i].by]++
	}
	for i := range all {
		all[i].namesake = named[all[i].by] > 1
	}
	if len(all) == 0 {
		// Whatever applies the whole of a repository may mean another one, but has
		// the values of what nothing else of this applies.
		for i := range appliers {
			if a := &appliers[i]; a.plain && a.path == "." && a.variables != nil && !a.elsewhere {
				all = append(all, variant{by: a.name, in: a.in, variables: a.variables.Over(given), of: a})
			}
		}
	}
	if len(all) == 0 {
		empty := &Variables{values: map[string]variable{}}
		all = append(all, variant{variables: empty.Over(given)})
	}
	return all
}

// appliedRoots adds the kustomizations that are applied though another refers to
// them, or by a path over a symbolic link, which a search for roots does not follow.
// What is reached over a link alone is no root at its real place.
func (b *builder) appliedRoots(roots []root, appliers []applier, top string) []root {
	for _, a := range appliers {
		if a.plain || a.elsewhere || b.excluded(a.path, top) || top != "." && !strings.HasPrefix(a.path, top+"/") || slices.ContainsFunc(roots, func(r root) bool { return r.path == a.path }) {
			continue
		}
		clean, kustomization, err := b.find(a.path)
		if err != nil || kustomization == "" {
			continue
		}
		if real := b.real(a.path); real != a.path && !appliesPath(appliers, real) {
			roots = slices.DeleteFunc(roots, func(r root) bool { return r.path == real })
		}
		roots = append(roots, root{path: clean, kustomization: kustomization})
	}
	return roots
}

// real is where a path of the repository leads to over symbolic links: itself
// where there are none, and where it leads nowhere.
func (b *builder) real(name string) string {
	if inner, ok := Inside(b.dir, b.gate.real(filepath.Join(b.dir, filepath.FromSlash(name)))); ok {
		return inner
	}
	return name
}

// together makes one root of what lies in a plain directory that is applied as
// one, and keeps that out of the plain directories above. Whatever applies the
// whole of a repository may mean another one, so that takes in no kustomization.
func (b *builder) together(roots []root, appliers []applier, top string) []root {
	for _, a := range appliers {
		if !a.plain || a.elsewhere || b.excluded(a.path, top) || top != "." && a.path != top && !strings.HasPrefix(a.path, top+"/") {
			continue
		}
		if a.path == "." && slices.ContainsFunc(roots, func(r root) bool { return r.kustomization != "" && !a.leaves.leave(r.kustomization) }) {
			continue
		}
		kept := make([]root, 0, len(roots)+1)
		real := b.real(a.path)
		directory, agreed := directoryOf(appliers, a.path)
		at := root{path: a.path, applied: true, directory: directory, several: !agreed}
		for _, r := range roots {
			switch {
			case r.path == a.path:
				continue
			case r.path == real && r.kustomization == "" && !appliesPath(appliers, real):
				// It is this one, over a symbolic link.
				continue
			case !a.directory.flat() && (a.path == "." || strings.HasPrefix(r.path, a.path+"/")):
				if appliesPath(appliers, r.path) || a.argo() && r.kustomization != "" {
					break
				}
				if at.directory == nil || at.directory.whole() {
					continue
				}
				if r.read = append(slices.Clone(r.read), at); !b.hasFiles(r) {
					continue
				}
			case !r.applied && (r.path == "." || strings.HasPrefix(a.path, r.path+"/")):
				if at.directory != nil {
					r.read = append(slices.Clone(r.read), at)
					break
				}
				r.except = maps.Clone(r.except)
				if r.except == nil {
					r.except = map[string]bool{}
				}
				r.except[a.path] = true
			}
			kept = append(kept, r)
		}
		kept = append(kept, at)
		roots = kept
	}
	return roots
}

// hasFiles says whether a plain root has any file.
func (b *builder) hasFiles(at root) bool {
	found := errors.New("found")
	err := b.walk(context.Background(), at, walker{
		file:      func(string) error { return found },
		directory: func(string, string) error { return found },
		wrong:     func(schemas.Problem) {},
	})
	return err != nil
}

// applierFiles adds the plain files that nothing else has and that define what applies
// something of ours, other than a PoolSync: what they say of it counts. So does a file that
// cannot be read and would define such a thing: nobody knows of what.
func (b *builder) applierFiles(roots []root, appliers []applier, top string) []root {
	var files []string
	ours := b.leadsToOurs(roots, appliers)
	for i := range appliers {
		a := &appliers[i]
		if _, kustomization := a.kustomizations[a.in]; !a.sync && ours[a.in] && !kustomization && isYAML(a.in) {
			files = append(files, a.in)
		}
	}
	for i := range b.doubts {
		if b.isBrokenApplier(&b.doubts[i]) {
			files = append(files, b.doubts[i].File)
		}
	}
	for _, file := range files {
		if b.excluded(file, top) || top != "." && file != top && !strings.HasPrefix(file, top+"/") {
			continue
		}
		if !slices.ContainsFunc(roots, func(r root) bool { return r.path == file || r.kustomization == "" && r.hasFile(file) }) {
			roots = append(roots, root{path: file, loose: true})
		}
	}
	return roots
}

// applierDocument is found in what is, or is meant to be, a document of Flux or Argo CD that
// applies something, or says from where; and templated in a template of such documents, which
// is no YAML before it is filled in.
var (
	applierDocument = regexp.MustCompile(`(?m)^(?:---\s+)?["']?apiVersion["']?\s*:\s*["']?(?:(?:kustomize|source)\.toolkit\.fluxcd\.io|argoproj\.io)/`)
	applierKind     = regexp.MustCompile(`(?m)^["']?kind["']?\s*:\s*["']?(?:Kustomization|GitRepository|Application|ApplicationSet)\b`)
	templated       = regexp.MustCompile(`\{%|<%|\$\{\{`)
)

// isBrokenApplier says whether a problem is with a plain file that would define an applier.
func (b *builder) isBrokenApplier(problem *schemas.Problem) bool {
	if b.surveyed == nil || !slices.Contains(b.surveyed.plain, problem.File) {
		return false
	}
	data, err := b.gate.read(problem.File)
	if err != nil || !applierDocument.Match(data) || !applierKind.Match(data) || templated.Match(data) {
		return false
	}
	lines := bytes.Split(data, []byte("\n"))
	at := min(max(problem.Line-1, 0), len(lines)-1)
	return !bytes.Contains(bytes.Join(lines[max(at-1, 0):at+1], nil), []byte("{{"))
}

// leadsToOurs are the roots and plain files that define what applies something of ours, or
// such a definition. The paths of an ApplicationSet may be anything that is made of its
// generators.
func (b *builder) leadsToOurs(roots []root, appliers []applier) map[string]bool {
	paths, found := pathsOf(appliers), map[string]bool{}
	var reach func(place string)
	reach = func(place string) {
		for _, i := range paths.applying(appliers, place) {
			if in := appliers[i].in; !found[in] {
				found[in] = true
				reach(in)
			}
		}
	}
	any := false
	for _, r := range roots {
		if b.mayBeOurs(r) {
			any = true
			reach(r.path)
		}
	}
	for i := range appliers {
		if a := &appliers[i]; any && !a.elsewhere && a.argo() && strings.Contains(a.path, "{{") && !found[a.in] {
			found[a.in] = true
			reach(a.in)
		}
	}
	return found
}

// hasFile says whether a file lies in a plain root.
func (r root) hasFile(file string) bool {
	if r.path != "." && !strings.HasPrefix(file, r.path+"/") || r.readBy(file) {
		return false
	}
	if r.directory != nil {
		return r.directory.reaches(r.path, file)
	}
	return !within(r.except, file) && (!r.flat || path.Dir(file) == r.path)
}

// excluded says whether a path is one that a search from top leaves out.
func (b *builder) excluded(name, top string) bool {
	for ; name != top && name != "."; name = path.Dir(name) {
		if b.law().Config.Excluded(name) {
			return true
		}
	}
	return false
}
