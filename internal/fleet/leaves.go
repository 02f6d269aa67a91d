package fleet

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet/ignored"
	"cloop.dev/cloop/schemas"
)

// withheld is what of the repository does not come to whoever applies a path: what Flux's
// source-controller leaves out of its artifact; see package ignored. The zero value is
// all that there is: Argo CD, and a PoolSync and the hub with a Git source of their own,
// take a commit as it is.
type withheld struct {
	filter *ignored.Filter
	// maybe says that it is not known whether Flux applies the path by such an artifact.
	// Then no more is left out than files with nothing of cloop.dev: a definition of ours
	// that nobody looks at is worse than a finding too many.
	maybe bool
}

// surely is what is left out for sure; nil: nothing.
func (l withheld) surely() *ignored.Filter {
	if l.maybe {
		return nil
	}
	return l.filter
}

// leave says whether a file is left out for sure.
func (l withheld) leave(file string) bool {
	filter := l.surely()
	return filter != nil && filter.Leaves(file, false) != nil
}

// digest is equal where the same is left out.
func (l withheld) digest() string {
	switch {
	case l.filter == nil:
		return ""
	case l.maybe:
		return "maybe " + l.filter.Digest()
	}
	return l.filter.Digest()
}

// leftOutError is why a file is not there for Flux, though the repository has it.
type leftOutError struct {
	name string
	by   *ignored.Pattern
}

func (e *leftOutError) Error() string {
	return fmt.Sprintf("Flux leaves it out of what it fetches, by %s", e.by)
}

// Is takes it for a file that is not there, as it is none for Flux.
func (e *leftOutError) Is(target error) bool { return target == fs.ErrNotExist }

// remedy is what to do where something needs it.
func (e *leftOutError) remedy() string {
	name := e.name
	switch {
	case e.by.File == "":
		return "rename it, or take it in with a .sourceignore that has a pattern, such as !/" + name + ": that replaces most of the default exclusions; or remove what refers to it"
	case e.by.InSpec:
		return "take the pattern out of spec.ignore, or write !/" + name + " below it; or remove what refers to it"
	}
	in := name
	if dir := path.Dir(e.by.File); dir != "." {
		in = strings.TrimPrefix(name, dir+"/")
	}
	return "remove the pattern, or write !/" + in + " below it; or remove what refers to it"
}

// leftOut says why a path is left out for sure; nil: it is there, as far as patterns go.
func (g *gate) leftOut(name string, dir bool) error {
	if g.leaves == nil {
		return nil
	}
	if by := g.leaves.Leaves(path.Clean(name), dir); by != nil {
		return &leftOutError{path.Clean(name), by}
	}
	return nil
}

// leftOutIn says why a directory's kustomization is not there, though the repository has
// one; nil: it has none.
func (g *gate) leftOutIn(dir string) error {
	for _, candidate := range konfig.RecognizedKustomizationFileNames() {
		name := path.Join(dir, candidate)
		if info, err := g.root.Stat(name); err == nil && info.Mode().IsRegular() {
			if left := (*leftOutError)(nil); errors.As(g.leftOut(name, false), &left) {
				return &leftOutError{path.Clean(dir), left.by}
			}
		}
	}
	return nil
}

// under is the gate without what a filter leaves out.
func (g *gate) under(filter *ignored.Filter) *gate {
	if filter == g.leaves {
		return g
	}
	other := newGate(g.top, g.root)
	other.tracked, other.instead, other.leaves = g.tracked, g.instead, filter
	return other
}

// under is the builder of what Flux fetches. It shares what the builder has found.
func (b *builder) under(l withheld) *builder {
	filter := l.surely()
	if filter == nil || filter == b.gate.leaves {
		return b
	}
	other := b.views[filter]
	if other == nil {
		other = &builder{dir: b.dir, root: b.root, gate: b.gate.under(filter), clock: b.clock, comments: b.comments, laws: b.law()}
		if b.views == nil {
			b.views = map[*ignored.Filter]*builder{}
		}
		b.views[filter] = other
	}
	other.kept, other.surveyed, other.diagnosing = b.kept, b.surveyed, b.diagnosing
	return other
}

// ignoring are the files with patterns that the repository has.
type ignoring struct {
	files ignored.Files
	// filters: spec.ignore → what is left out with it; "" is of none.
	filters map[string]*ignored.Filter
	// problems with files that cannot be read, and with more patterns than are.
	problems []schemas.Problem
}

// maxIgnoring bounds the directories that are searched for files with patterns, where Git
// does not tell which there are.
const maxIgnoring = 50_000

// ignores reads them, once.
func (b *builder) ignores() *ignoring {
	if b.ignoring != nil {
		return b.ignoring
	}
	in := &ignoring{filters: map[string]*ignored.Filter{}}
	b.ignoring = in
	for _, name := range b.ignoreFiles() {
		data, err := b.gate.read(name)
		switch {
		case errors.Is(err, errBounds):
			in.problems = append(in.problems, tooLarge(err, name))
			continue
		case errors.Is(err, fs.ErrPermission):
			in.problems = append(in.problems, unsearched(name, err))
			continue
		case err != nil:
			// A directory, or a link that leads nowhere: source-controller passes it over.
			continue
		}
		if err := in.files.Add(name, data); err != nil {
			in.problems = append(in.problems, tooManyPatterns(name, 1, err))
			break
		}
	}
	return in
}

func tooManyPatterns(file string, line int, err error) schemas.Problem {
	problem := located(broken(RuleTooLarge, err.Error()+": nothing is left out by them here"), file)
	problem.Line = max(line, 1)
	problem.Hint = "name directories in place of the files in them"
	return problem
}

// ignoreFiles are the .sourceignore files of the repository.
func (b *builder) ignoreFiles() (names []string) {
	if tracked := b.gate.tracked; tracked != nil {
		for name := range tracked.files {
			if path.Base(name) == ignored.Name {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	visited := 0
	_ = fs.WalkDir(b.root.FS(), ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return fs.SkipDir
		case !entry.IsDir():
			if entry.Name() == ignored.Name {
				names = append(names, name)
			}
			return nil
		case entry.Name() == ".git" || name != "." && (isRepository(b.root, name) || b.law().Config.Excluded(name)):
			return fs.SkipDir
		}
		if visited++; visited > maxIgnoring {
			return fs.SkipAll
		}
		return nil
	})
	return names
}

// specIgnore is the spec.ignore of a source, and where it is written.
type specIgnore struct {
	text string
	placed
}

// filter is what Flux leaves out of the artifact of a source. It is never nil.
func (b *builder) filter(spec specIgnore) *ignored.Filter {
	in := b.ignores()
	if known := in.filters[spec.text]; known != nil {
		return known
	}
	list, err := ignored.ReadSpec(spec.file, int(spec.line), spec.text)
	var made *ignored.Filter
	if err == nil {
		made, err = ignored.New(&in.files, list)
	}
	if err != nil {
		in.problems = append(in.problems, tooManyPatterns(spec.file, int(spec.line), err))
		// One of no files at all is within the bounds.
		made, _ = ignored.New(&ignored.Files{}, nil)
	}
	in.filters[spec.text] = made
	return made
}

// wrong are the problems with patterns, of which telling took too much among them.
func (in *ignoring) wrong() []schemas.Problem {
	if in == nil {
		return nil
	}
	problems := slices.Clone(in.problems)
	for _, spec := range slices.Sorted(maps.Keys(in.filters)) {
		filter := in.filters[spec]
		if err := filter.Err(); err != nil {
			p := filter.Most()
			problem := tooManyPatterns(p.File, p.Line, err)
			problem.Hint = "write fewer patterns with wildcards: names and paths without are found at once"
			return append(problems, problem)
		}
	}
	return problems
}

// specOf is the spec.ignore of the source that an applier reads. Several clusters may have
// a source of the name: the one that is written closest to the applier is its own.
func (b *builder) specOf(a *applier) (found specIgnore) {
	closest := -1
	for _, spec := range b.specs[sourceOf(a.object.Object)] {
		here, there := strings.Split(a.place.file, "/"), strings.Split(spec.file, "/")
		same := 0
		for same < min(len(here), len(there)) && here[same] == there[same] {
			same++
		}
		if same > closest {
			found, closest = spec, same
		}
	}
	return found
}

// leave notes of each applier what does not come to it.
func (b *builder) leave(found []applier) {
	for i := range found {
		a := &found[i]
		a.leaves = withheld{}
		switch {
		case a.argo() || a.elsewhere:
		case strings.HasPrefix(sourceOf(a.object.Object), v1alpha1.SourceGitRepository+" "):
			a.leaves = withheld{filter: b.filter(b.specOf(a))}
		case !a.sync:
			// Whoever packed the artifact of another source may have left out the same.
			a.leaves = withheld{b.filter(specIgnore{}), true}
		}
	}
}

// leavesOf is what does not come to those who apply a path, each once: at least one. Where
// nothing of the repository applies it, Flux may: of what it leaves out there speaks a
// .sourceignore, or that it applies something else of the repository.
func (b *builder) leavesOf(appliers []applier, at string) (all []withheld) {
	add := func(l withheld) {
		if !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	flux := false
	for i := range appliers {
		a := &appliers[i]
		flux = flux || a.leaves.filter != nil
		if a.applies(at) {
			add(a.leaves)
		}
	}
	for i := range appliers {
		// Whatever applies the whole of a repository may mean another one.
		if a := &appliers[i]; len(all) == 0 && a.path == "." && a.leaves.filter != nil {
			add(withheld{a.leaves.filter, true})
		}
	}
	switch {
	case len(all) > 0:
	case flux || b.ignores().files.Len() > 0:
		add(withheld{b.filter(specIgnore{}), true})
	default:
		add(withheld{})
	}
	return all
}

// leavesBy is what does not come to an applier of a path; nil: to whoever applies it.
func (b *builder) leavesBy(appliers []applier, at string, of *applier) withheld {
	if of != nil && of.applies(at) {
		return of.leaves
	}
	return b.leavesOf(appliers, at)[0]
}

// without is a root of which something does not come to who applies it. A file that was
// asked for is read.
func (b *builder) without(at root, l withheld) root {
	if info, err := b.root.Stat(at.path); err != nil || !info.IsDir() {
		return at
	}
	at.leaves = l
	gate := b.under(l).gate
	if at.applied && at.kustomization == "" {
		// Who else applies it may find one.
		at.kustomization, _ = gate.kustomizationIn(at.path)
	}
	if l.surely() == nil || at.kustomization == "" {
		return at
	}
	// Flux may find none, or another one.
	if gate.leftOut(at.kustomization, false) != nil {
		if at.kustomization, _ = gate.kustomizationIn(at.path); at.kustomization == "" {
			at.applied = true
		}
	}
	return at
}

// leavesOut says whether a file of a plain root is left out.
func (b *builder) leavesOut(at root, file string) bool {
	if at.leaves.filter == nil || file == at.path || at.leaves.filter.Leaves(file, false) == nil {
		return false
	}
	if !at.leaves.maybe {
		return true
	}
	data, err := b.gate.read(file)
	return err == nil && !isOurs(data)
}

// leavesAll says whether nothing in a directory can be taken in, so that it need not be
// looked through.
func (at *root) leavesAll(dir string) bool {
	filter := at.leaves.surely()
	return filter != nil && !filter.TakesIn() && filter.Leaves(dir, true) != nil
}

// reads says whether all files that something was rendered from are there.
func (g *gate) reads(met map[string]bool) bool {
	if g.leaves == nil {
		return true
	}
	for name := range met {
		if g.leaves.Leaves(name, false) != nil {
			return false
		}
	}
	return true
}

// meeting notes the files that are read until met is called.
func (g *gate) meeting() (met func() map[string]bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.met = map[string]bool{}
	return func() map[string]bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		all := g.met
		g.met = nil
		return all
	}
}

// withoutLeft are the roots but the kustomizations that Flux may leave out, and that have
// nothing of cloop.dev.
func (b *builder) withoutLeft(roots []root, appliers []applier) []root {
	return slices.DeleteFunc(slices.Clone(roots), func(r root) bool {
		if r.kustomization == "" || r.path == "." {
			return false
		}
		l := b.leavesOf(appliers, r.path)[0]
		return l.maybe && l.filter.Leaves(r.kustomization, false) != nil && !b.mayBeOurs(r)
	})
}

// absentArtifacts finds the paths of which Flux fetches nothing, though they are in the
// repository.
func (c *checker) absentArtifacts(b *builder) {
	if c.appliers == nil {
		return
	}
	told := map[placed]bool{}
	for i := range *c.appliers {
		a := &(*c.appliers)[i]
		filter := a.leaves.surely()
		if filter == nil || a.path == "." || told[a.place] {
			continue
		}
		left := b.nothingLeft(a.path, filter)
		if left == nil {
			continue
		}
		told[a.place] = true
		message := fmt.Sprintf("%s: %v", a.path, left)
		if left.name != a.path {
			message = fmt.Sprintf("%s: no YAML of it is left: of %s, for one: %v", a.path, left.name, left)
		}
		problem := a.object.locate(a.object.about(RulePathNotFound, "spec.path", message))
		problem.Hint = left.remedy()
		c.find(c.fileSubject(noRoot, problem.File), problem)
	}
}

// nothingLeft is why a directory comes without any YAML, though the repository has some
// there; nil: it does not, or it is not there.
func (b *builder) nothingLeft(dir string, filter *ignored.Filter) (left *leftOutError) {
	if info, err := b.root.Stat(dir); err != nil || !info.IsDir() {
		return nil
	}
	if by := filter.Leaves(dir, true); by != nil && !filter.TakesIn() {
		return &leftOutError{dir, by}
	}
	_ = fs.WalkDir(b.root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !isYAML(name) && !slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(name)) {
			return nil //nolint:nilerr // what cannot be read is told elsewhere
		}
		by := filter.Leaves(name, false)
		if by == nil {
			left = nil
			return fs.SkipAll
		}
		if left == nil {
			left = &leftOutError{name, by}
		}
		return nil
	})
	if left != nil {
		if by := filter.Leaves(dir, true); by != nil {
			return &leftOutError{dir, by}
		}
	}
	return left
}

// meet notes a file that is read.
func (g *gate) meet(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.met != nil {
		g.met[name] = true
	}
}

// setAside says whether a file need not be listed by a kustomization: somebody has written
// that Flux is not to have the file, where Flux may be who applies the repository, or Flux
// does not have the kustomization, and applies all that lies there.
func (b *builder) setAside(file, kustomization string) bool {
	if b.applied != nil && slices.ContainsFunc(*b.applied, func(a applier) bool { return a.leaves.leave(kustomization) && a.applies(file) }) {
		return true
	}
	if b.applied == nil || len(*b.applied) > 0 && !slices.ContainsFunc(*b.applied, func(a applier) bool { return a.leaves.filter != nil }) {
		return false
	}
	by := b.filter(specIgnore{}).Leaves(file, false)
	return by != nil && by.File != ""
}
