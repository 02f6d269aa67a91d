package fleet

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"
	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/types"

	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

// Bounds on what is searched for roots.
const (
	maxDirectories = 20_000
	// maxSearched bounds, in bytes, what plain files are searched for documents
	// of cloop.dev.
	maxSearched = 256 << 20
)

// survey is what lies in a directory of a repository that may be a root.
type survey struct {
	b *builder
	// kustomizations: directory → its kustomization's file.
	kustomizations map[string]string
	components     map[string]bool
	// lists are the directories whose kustomization lists others and does nothing else.
	lists map[string]bool
	// refers: directory → the files and directories that its kustomization refers
	// to; referred are those of all.
	refers   map[string][]string
	referred map[string]bool
	// order of the directories of kustomizations, as they were met.
	order []string
	// plain are the YAML files with no kustomization beside or above them.
	plain []string
	// covered are the other YAML files, and plugins those that configure one.
	covered []string
	plugins map[string]bool
	// unread are the kustomizations of which nobody knows what they refer to.
	unread map[string]bool
	// flat are directories that somebody applies without what lies below.
	flat map[string]bool
	// problems with what could not be searched.
	problems []schemas.Problem
	visited  int
}

// root is one path to render by itself.
type root struct {
	path string
	// kustomization is empty for plain files.
	kustomization string
	// flat: of a directory only the files in it, nothing below.
	flat bool
	// searched: it stands for a search that has found nothing, and leaves out what
	// the repository excludes.
	searched bool
	// applied as one, by an object of the repository; with directory as Argo CD does.
	// several: those who apply it read different parts of it.
	applied, several bool
	directory        *argoDirectory
	// leaves is what does not come to whoever applies it.
	leaves withheld
	// except are directories below that are roots of their own, and read the roots of
	// Argo CD that read files of this one.
	except map[string]bool
	read   []root
	// loose: a file of what applies something, which nothing of the repository applies.
	// made: an ApplicationSet may have an Application of it.
	loose, made bool
}

// readBy says whether a file is read by a root of Argo CD's instead.
func (r root) readBy(file string) bool {
	return slices.ContainsFunc(r.read, func(other root) bool { return other.directory.reaches(other.path, file) })
}

// name is what a report calls a root that is applied in some way.
func (r root) name(v variant) string {
	switch {
	case v.by == "":
		return r.path
	case v.namesake:
		return r.path + " (" + v.by + " in " + v.in + ")"
	}
	return r.path + " (" + v.by + ")"
}

// survey looks through a directory. What cannot be looked into is a problem and
// hides nothing else.
func (b *builder) survey(ctx context.Context, dir string) (*survey, error) {
	s := &survey{b: b, kustomizations: map[string]string{}, components: map[string]bool{}, lists: map[string]bool{},
		refers: map[string][]string{}, referred: map[string]bool{}, plugins: map[string]bool{}, unread: map[string]bool{}}
	err := fs.WalkDir(b.root.FS(), dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err != nil && name == dir:
			return err
		case err != nil:
			s.problems = append(s.problems, unsearched(name, err))
			return fs.SkipDir
		case entry.IsDir():
			return s.directory(dir, name, entry)
		case !b.gate.tracked.has(name), !isYAML(name), isHidden(name):
		case s.covering(dir, path.Dir(name)) == "":
			s.plain = append(s.plain, name)
		default:
			s.covered = append(s.covered, name)
		}
		return nil
	})
	if err != nil {
		if errors.Is(err, errBounds) {
			return nil, &fault{kind: ErrBuild, doing: "look through " + dir, cause: err}
		}
		return nil, buildError(dir, pathReason(err))
	}
	return s, nil
}

// surveyAll looks through the whole repository, once.
func (b *builder) surveyAll(ctx context.Context) (*survey, error) {
	if b.surveyed == nil {
		s, err := b.survey(ctx, ".")
		if err != nil {
			return nil, err
		}
		b.surveyed = s
	}
	return b.surveyed, nil
}

// unsearched is a problem with a directory, or a file, that cannot be read.
func unsearched(name string, err error) schemas.Problem {
	if !utf8.ValidString(name) {
		problem := located(broken(RuleBuild, fmt.Sprintf("%q is no UTF-8", name)), strings.ToValidUTF8(name, "\ufffd"))
		problem.Hint = "rename it: no kustomization and no report can name it"
		return problem
	}
	problem := located(broken(RuleBuild, pathReason(err).Error()), name)
	switch {
	case errors.Is(err, fs.ErrPermission):
		problem.Hint = "make it readable for whoever runs the check"
	case errors.Is(err, errNoFile):
		problem.Hint = "remove it: only regular files are committed"
	default:
		problem.Hint = "remove it, or have it lead to a file of the repository"
	}
	return problem
}

// isRepository says whether a directory is the top of a repository of its own: a
// submodule, or a clone that lies here. Hub and clusters do not have its files.
func isRepository(top *os.Root, dir string) bool {
	_, err := top.Lstat(path.Join(dir, ".git"))
	return err == nil
}

// isBare says whether a directory is a repository without a work tree.
func isBare(top *os.Root) bool {
	for _, name := range []string{"HEAD", "config", "objects", "refs"} {
		if _, err := top.Lstat(name); err != nil {
			return false
		}
	}
	return true
}

func (s *survey) directory(top, dir string, entry fs.DirEntry) error {
	if dir != top && (!s.b.gate.tracked.hasIn(dir) || s.passed(dir, entry.Name())) {
		return fs.SkipDir
	}
	if s.visited++; s.visited > maxDirectories {
		return fmt.Errorf("%w: more than %d directories; name those with pools, or have `exclude` in %s leave out those without", errBounds, maxDirectories, policy.ConfigFile)
	}
	kustomization, err := s.b.gate.kustomizationIn(dir)
	if err != nil || kustomization == "" {
		// A directory that cannot be read is met again, with its error.
		return nil //nolint:nilerr // see above
	}
	s.kustomizations[dir] = kustomization
	s.order = append(s.order, dir)
	s.references(dir, kustomization)
	return nil
}

// passed says whether a directory is not looked through: a hidden one, another
// repository, the templates of a Helm chart, which are no YAML, and what the
// repository excludes.
func (s *survey) passed(dir, name string) bool {
	if strings.HasPrefix(name, ".") {
		if name == ".cloop" && path.Dir(dir) != "." {
			if problem := policy.Elsewhere(s.b.root, path.Dir(dir)); problem != nil {
				s.problems = append(s.problems, *problem)
			}
		}
		return true
	}
	if isRepository(s.b.root, dir) || s.b.law().Config.Excluded(dir) {
		return true
	}
	if name != "templates" {
		return false
	}
	_, err := s.b.root.Stat(path.Join(path.Dir(dir), "Chart.yaml"))
	return err == nil
}

// references notes what a kustomization refers to.
func (s *survey) references(dir, file string) {
	data, err := (&scan{root: s.b.root, gate: s.b.gate}).read(file)
	var k kustomizationFile
	if err == nil {
		err = yaml.Unmarshal(data, &k)
	}
	if err != nil && k.Kind == "" && len(k.Resources) == 0 {
		// Nobody knows what it refers to.
		s.unread[dir] = true
		s.b.doubt(located(broken(RuleBuild, err.Error()), file))
		return
	}
	s.components[dir] = k.Kind == types.ComponentKind
	s.lists[dir] = onlyLists(data)
	refer := func(name string) {
		if name = path.Join(dir, name); name != dir {
			s.referred[name], s.referred[s.b.real(name)] = true, true
			s.refers[dir] = append(s.refers[dir], name)
		}
	}
	for _, list := range [][]yaml.Node{k.directories(), k.Generators, k.Transformers, k.Validators, k.PatchesStrategicMerge} {
		for i := range list {
			refer(list[i].Value)
		}
	}
	for _, list := range [][]yaml.Node{k.Generators, k.Transformers, k.Validators} {
		for i := range list {
			s.plugins[path.Join(dir, list[i].Value)] = true
		}
	}
	for _, list := range [][]patchEntry{k.Patches, k.PatchesJSON6902} {
		for i := range list {
			refer(list[i].Path.Value)
		}
	}
	for i := range k.Replacements {
		refer(k.Replacements[i].Path.Value)
	}
}

// loose are the files that no kustomization refers to.
func (s *survey) loose(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(file string) bool { return s.referred[file] })
}

// dissolve takes kustomizations for none that only list what is applied one by one, to
// render all at once: no cluster gets the whole of one. What such a kustomization lists
// besides is what it would be without it. It says whether there was one.
func (s *survey) dissolve(appliers []applier) bool {
	gathers := func(dir string) bool {
		return s.lists[dir] && !s.referred[dir] && !appliesPath(appliers, dir) && s.gathered(dir, appliers) > 1
	}
	all := len(s.order)
	s.order = slices.DeleteFunc(s.order, func(dir string) bool {
		if !gathers(dir) {
			return false
		}
		delete(s.kustomizations, dir)
		delete(s.refers, dir)
		return true
	})
	if len(s.order) == all {
		return false
	}
	s.referred = map[string]bool{}
	for _, names := range s.refers {
		for _, name := range names {
			s.referred[name], s.referred[s.b.real(name)] = true, true
		}
	}
	files := slices.Sorted(slices.Values(slices.Concat(s.plain, s.covered)))
	s.plain, s.covered = nil, nil
	for _, file := range files {
		if s.covering(".", path.Dir(file)) == "" {
			s.plain = append(s.plain, file)
		} else {
			s.covered = append(s.covered, file)
		}
	}
	return true
}

// gathered counts the directories that a kustomization refers to, over others too, and
// that are applied by themselves: those that appliers name, and where there is none the
// clusters'.
func (s *survey) gathered(dir string, appliers []applier) int {
	found, seen := map[string]bool{}, map[string]bool{dir: true}
	var look func(string)
	look = func(dir string) {
		for _, name := range s.refers[dir] {
			switch {
			case appliesPath(appliers, name) || len(appliers) == 0 && path.Dir(name) == "clusters":
				found[name] = true
			case !seen[name]:
				seen[name] = true
				look(name)
			}
		}
	}
	look(dir)
	return len(found)
}

// onlyLists says whether a kustomization has no field but its resources, so that what
// they render is what it renders.
func onlyLists(data []byte) bool {
	var fields map[string]yaml.Node
	if yaml.Unmarshal(data, &fields) != nil {
		return false
	}
	for name := range fields {
		if !slices.Contains([]string{"apiVersion", "kind", "metadata", "resources", "bases"}, name) {
			return false
		}
	}
	return len(fields) > 0
}

// covering is the closest directory at or above dir, down from top, that has a
// kustomization; empty where none has.
func (s *survey) covering(top, dir string) string {
	for {
		if _, ok := s.kustomizations[dir]; ok {
			return dir
		}
		if dir == top || dir == "." {
			return ""
		}
		dir = path.Dir(dir)
	}
}

// roots are what is rendered by itself: every kustomization that no other
// refers to, and beside them the plain directories that have documents of
// cloop.dev. Where there is neither, it is the directory, with nothing of ours.
func (s *survey) roots(ctx context.Context, top string) ([]root, error) {
	var roots []root
	for _, dir := range s.order {
		if !s.components[dir] && !s.referred[dir] {
			roots = append(roots, root{path: dir, kustomization: s.kustomizations[dir]})
		}
	}
	if roots = append(roots, s.circles(roots)...); len(roots) == 0 {
		// They are components, which show what is wrong with them also by themselves.
		for _, dir := range s.order {
			roots = append(roots, root{path: dir, kustomization: s.kustomizations[dir]})
		}
	}
	plain, err := s.plainRoots(ctx, top)
	if err != nil {
		return nil, err
	}
	if roots = slices.Concat(roots, plain); len(roots) == 0 {
		roots = []root{{path: top, searched: true}}
	}
	return roots, nil
}

// circles are kustomizations that refer to each other in a circle, one of each that no
// root has: kustomize says so of them.
func (s *survey) circles(roots []root) (found []root) {
	reached := map[string]bool{}
	var reach func(dir string, reached map[string]bool)
	reach = func(dir string, reached map[string]bool) {
		for _, name := range s.refers[dir] {
			if _, ok := s.kustomizations[name]; ok && !reached[name] {
				reached[name] = true
				reach(name, reached)
			}
		}
	}
	for _, r := range roots {
		reached[r.path] = true
		reach(r.path, reached)
	}
	for _, dir := range s.order {
		if !s.referred[dir] || reached[dir] {
			continue
		}
		own := map[string]bool{}
		if reach(dir, own); own[dir] {
			found = append(found, root{path: dir, kustomization: s.kustomizations[dir]})
			maps.Copy(reached, own)
		}
	}
	return found
}

// plainRoots are the directories without a kustomization that have a document of
// cloop.dev directly in them, in files that nothing refers to, each with what
// lies below it. Directories beside each other may be of different clusters, and
// are never one. Above kustomizations, at the top of the repository and in
// clusters, each directory of which is a cluster's, a directory's own files alone
// are a root.
func (s *survey) plainRoots(ctx context.Context, top string) ([]root, error) {
	mixed := map[string]bool{".": true, "clusters": true}
	maps.Copy(mixed, s.flat)
	for _, dir := range s.order {
		for above := dir; above != top && above != "."; {
			above = path.Dir(above)
			mixed[above] = true
		}
	}
	files := map[string][]string{}
	for _, file := range s.plain {
		if !s.referred[file] {
			files[path.Dir(file)] = append(files[path.Dir(file)], file)
		}
	}
	searched := int64(0)
	found := map[string]bool{}
	var roots []root
	// A directory comes before what lies in it.
	for _, dir := range slices.Sorted(maps.Keys(files)) {
		if within(found, dir) {
			continue
		}
		for _, file := range files[dir] {
			if ctx.Err() != nil {
				return nil, buildError(top, ctx.Err())
			}
			size, ours := s.ours(file)
			if searched += size; searched > maxSearched {
				return nil, buildError(top, fmt.Errorf("%w: more than %d MiB of YAML that no kustomization lists; name the paths with pools", errBounds, maxSearched>>20))
			}
			if ours {
				found[dir] = !mixed[dir]
				roots = append(roots, root{path: dir, flat: mixed[dir]})
				break
			}
		}
	}
	return roots, nil
}

// within says whether a path lies in one of the directories.
func within(dirs map[string]bool, name string) bool {
	for name != "." {
		if name = path.Dir(name); dirs[name] {
			return true
		}
	}
	return false
}

// ours says whether a plain file may have a document of cloop.dev, and how much
// was read to tell. One beyond the bounds is nobody's. One that cannot be read is
// ours where there are no overlays: there nothing else says what is fleet.
func (s *survey) ours(file string) (size int64, ours bool) {
	data, err := s.b.gate.read(file)
	if err != nil {
		return 0, len(s.kustomizations) == 0 && !errors.Is(err, errBounds)
	}
	return int64(len(data)), isOurs(data)
}

func isOurs(data []byte) bool { return ourDocument.Match(data) && ourBeginning.Match(data) }

// ourBeginning is found where a document itself, or an entry of a list, has it: not in
// a text within one, such as a script or the values of a chart, which speaks of pools.
var ourBeginning = regexp.MustCompile(`(?im)^(?:---\s+)?(?:[ \t]*(?:- |["'])|[ \t]*\{.*?)?["']?(?:api[-_]?version["']?\s*:\s*["']?cloop\.dev\b|kind["']?\s*:\s*["']?(?:ExecutorPool|HubPool|PoolSync)\b)`)

// ourDocument is found in what is, or is meant to be, a document of cloop.dev: the
// names of the fields may be misspelt. Texts that only speak of cloop.dev, such as
// the label in a chart's values, have none.
var ourDocument = regexp.MustCompile(`(?i)\bapi[-_]?version["']?\s*:\s*["']?cloop\.dev\b|\bkind["']?\s*:\s*["']?(ExecutorPool|HubPool|PoolSync)\b`)

// expand makes roots of the paths that were asked for. A directory with
// kustomizations below it, and none in it, is as many roots; what lies outside
// of it and refers to them does not count.
func (b *builder) expand(ctx context.Context, paths []string) (roots []root, problems []schemas.Problem, err error) {
	if len(paths) == 0 {
		paths = []string{"."}
	}
	seen := map[string]bool{}
	for _, name := range paths {
		// A hook names files: that of a kustomization stands for the kustomization.
		if slices.Contains(konfig.RecognizedKustomizationFileNames(), path.Base(name)) {
			name = path.Dir(name)
		}
		clean, kustomization, err := b.find(name)
		if err != nil {
			return nil, nil, err
		}
		found := []root{{path: clean, kustomization: kustomization}}
		if info, err := b.root.Stat(clean); err == nil && info.IsDir() && kustomization == "" || clean == "." {
			look := func(ctx context.Context) (*survey, error) { return b.survey(ctx, clean) }
			if clean == "." {
				b.whole, look = true, b.surveyAll
			}
			s, err := look(ctx)
			if err != nil {
				return nil, nil, err
			}
			appliers, err := b.appliers(ctx)
			if err != nil {
				return nil, nil, err
			}
			s.dissolve(appliers)
			s.flat = map[string]bool{}
			for i := range appliers {
				directory, _ := directoryOf(appliers, appliers[i].path)
				s.flat[appliers[i].path] = appliers[i].plain && directory.flat()
			}
			if found, err = s.roots(ctx, clean); err != nil {
				return nil, nil, err
			}
			found = b.noteMade(b.withoutLeft(b.appliedRoots(b.together(found, appliers, clean), appliers, clean), appliers), appliers)
			if found = b.applierFiles(found, appliers, clean); len(found) == 0 {
				found = []root{{path: clean, searched: true}}
			}
			problems = append(problems, s.problems...)
		}
		for _, r := range found {
			if !seen[r.path] {
				seen[r.path] = true
				roots = append(roots, r)
			}
		}
	}
	return roots, problems, nil
}
