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
	// here: source → it has a path that is in this repository.
	here, any := map[string]bool{}, false
	absent := map[*facts]error{}
	for _, f := range syncs {
		_, err := b.root.Stat(f.sync.path)
		if err == nil {
			here[f.sync.source], any = true, true
			continue
		}
		absent[f] = err
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
			c.find(f.subject, f.problem(RulePathNotFound, "spec.path", fmt.Sprintf("%s: %s", f.sync.path, pathReason(err))))
		}
	}
}

// remotes are the repositories that this one is a clone of, as far as its own
// directory tells.
func (b *builder) remotes() map[string]bool {
	if b.cloneOf != nil {
		return b.cloneOf.remotes()
	}
	data, err := readBounded(b.root, ".git/config")
	if err != nil {
		return nil
	}
	config := gitconfig.New()
	// What cannot be read of it says nothing.
	_ = gitconfig.NewDecoder(strings.NewReader(string(data))).Decode(config)
	return RemotesOf(config)
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
	}
	return strings.ToLower(host + path.Clean("/"+strings.TrimSuffix(strings.TrimRight(name, "/"), ".git")))
}
