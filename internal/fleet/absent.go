package fleet

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"

	gitconfig "github.com/go-git/go-git/v5/plumbing/format/config"
)

// absentPaths finds PoolSyncs, and Kustomizations of Flux, of this repository whose path is not in it.
func (c *checker) absentPaths(b *builder) {
	var syncs []*facts
	for at, objects := range c.applied {
		for _, f := range objects {
			if f.sync != nil && at.by == "" && !strings.Contains(f.sync.path, "${") && (f.sync.here || !f.sync.flux) {
				syncs = append(syncs, f)
			}
		}
	}
	if b.whole {
		// Those of a cluster that nothing of the repository applies, too.
		syncs = append(syncs, c.looseSyncs()...)
	}
	c.absentApplications(b)
	// here: source → it has a path that is in this repository.
	here, any := map[string]bool{}, false
	absent := map[*facts]error{}
	var empty []*facts
	for _, f := range syncs {
		err := b.absent(f.sync.path)
		if err == nil {
			here[f.sync.source], any = true, true
			if info, err := b.root.Stat(f.sync.path); b.whole && !f.sync.flux && err == nil && info.IsDir() && !b.hasFiles(root{path: f.sync.path, applied: true}) {
				empty = append(empty, f)
			}
			continue
		}
		absent[f] = err
	}
	tell := func(f *facts, rule, message string) {
		if f.subject == noSubject {
			f.subject = c.objectSubject(noRoot, f)
		}
		c.find(f.subject, f.problem(rule, "spec.path", f.sync.path+": "+message))
	}
	for _, f := range empty {
		tell(f, RuleEmptyRoot, "there is no YAML in it")
	}
	if len(absent) == 0 {
		return
	}
	remotes := b.remotes()
	// A directory that is no clone may be a part of one.
	clone := isRepository(b.root, ".")
	for f, err := range absent {
		// Who can tell of which repository it speaks has the last word.
		ours := f.sync.here || here[f.sync.source] || !any && clone
		if len(remotes) > 0 && f.sync.url != "" {
			ours = remotes[RepositoryOf(f.sync.url)]
		}
		if ours {
			tell(f, RulePathNotFound, pathReason(err).Error())
		}
	}
}

// absent says why a path is not there for hub and clusters; nil: it is.
func (b *builder) absent(name string) error {
	info, err := b.root.Stat(name)
	if err == nil && info.IsDir() && name != "." && !b.gate.holds(name) {
		return errEmptyDirectory
	}
	return err
}

// absentApplications finds the paths of Applications of this repository that are not in
// it: where its remotes tell that it is this one or, without remotes, where others of the
// same URL have a path here, or none of them all in a clone.
func (c *checker) absentApplications(b *builder) {
	if c.appliers == nil {
		return
	}
	remotes, here := b.remotes(), map[string]bool{}
	for i := range *c.appliers {
		if a := &(*c.appliers)[i]; a.argo() && b.absent(a.path) == nil {
			here[RepositoryOf(a.url)] = true
		}
	}
	for i := range *c.appliers {
		a := &(*c.appliers)[i]
		err := b.absent(a.path)
		if !a.argo() || err == nil || a.url == "" || a.elsewhere || strings.ContainsAny(a.path+a.url, "{}") {
			continue
		}
		ours := here[RepositoryOf(a.url)] || len(here) == 0 && isRepository(b.root, ".")
		if len(remotes) > 0 {
			ours = remotes[RepositoryOf(a.url)]
		}
		if !ours {
			continue
		}
		problem := broken(RulePathNotFound, fmt.Sprintf("%s: %s", a.path, pathReason(err)))
		problem.Object, problem.Path = a.name, a.pathField
		problem.File, problem.Line, problem.Column = a.at.file, int(a.at.line), int(a.at.column)
		c.find(c.fileSubject(noRoot, a.at.file), problem)
	}
}

// remotes are the repositories that this one is a clone of, as far as its own
// directory tells.
func (b *builder) remotes() map[string]bool {
	if b.cloneOf != nil {
		return b.cloneOf.remotes()
	}
	if b.knownRemotes != nil {
		return b.knownRemotes
	}
	b.knownRemotes = map[string]bool{}
	if data, err := readBounded(b.root, ".git/config"); err == nil {
		config := gitconfig.New()
		// What cannot be read of it says nothing.
		_ = gitconfig.NewDecoder(strings.NewReader(string(data))).Decode(config)
		b.knownRemotes = RemotesOf(config)
	}
	return b.knownRemotes
}

// RemotesOf are the repositories that Git's settings name as remotes, each as
// RepositoryOf has it.
func RemotesOf(config *gitconfig.Config) map[string]bool {
	found := map[string]bool{}
	for _, remote := range config.Section("remote").Subsections {
		for _, raw := range remote.OptionAll("url") {
			found[RepositoryOf(raw)] = true
		}
	}
	return found
}

// shortAddress is a repository as ssh has it: USER@HOST:PATH.
var shortAddress = regexp.MustCompile(`^(?:[^@/:]+@)?([^/:]+):([^/].*)$`)

// RepositoryOf is equal for addresses of one repository, whoever asks by which
// protocol.
func RepositoryOf(raw string) string {
	host, name := "", raw
	if u, err := url.Parse(raw); err == nil && u.Host != "" {
		host, name = u.Hostname(), u.Path
	} else if match := shortAddress.FindStringSubmatch(raw); match != nil {
		host, name = match[1], match[2]
		if plain, err := url.PathUnescape(name); err == nil {
			name = plain
		}
	}
	return strings.ToLower(host + path.Clean("/"+strings.TrimSuffix(strings.TrimRight(name, "/"), ".git")))
}
