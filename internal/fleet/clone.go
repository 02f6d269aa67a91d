package fleet

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
)

// Clone is a repository on a disk, to tell what follows it from what follows another
// one that has the same paths.
type Clone struct {
	// Remotes: see RemotesOf.
	Remotes map[string]bool
	// Has says whether a commit, by its whole name, is in it or what a remote's branch is
	// at; nil: not known.
	Has func(commit string) bool
}

// Whose repository something follows.
type Whose int

// What a Clone says of an address.
const (
	// UnknownRepository: nothing tells.
	UnknownRepository Whose = iota
	// SameRepository is the one that this is a clone of.
	SameRepository
	// OtherRepository is none of those that this is a clone of.
	OtherRepository
)

// Whose says whose repository is read by an address, empty where it is not known, of
// which some revisions were seen: a commit that is here too is of this one, whatever the
// address, as that of a mirror.
func (c *Clone) Whose(address string, revisions ...string) Whose {
	if c == nil {
		return UnknownRepository
	}
	for _, revision := range revisions {
		if c.has(revision) {
			return SameRepository
		}
	}
	switch {
	case address == "":
		return UnknownRepository
	case c.Remotes[RepositoryOf(address)]:
		return SameRepository
	case !c.served() && !strings.HasPrefix(RepositoryOf(address), "/"):
		return UnknownRepository
	}
	return OtherRepository
}

// Learn takes the address of something of which a revision is here for one of the
// clone's own, for whatever else reads it.
func (c *Clone) Learn(address string, revisions ...string) {
	for _, revision := range revisions {
		if c != nil && address != "" && c.has(revision) {
			if c.Remotes == nil {
				c.Remotes = map[string]bool{}
			}
			c.Remotes[RepositoryOf(address)] = true
		}
	}
}

// wholeCommit is a commit's name in full, in either of Git's formats.
var wholeCommit = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

// has says whether a revision, as a sync notes it, is a commit that is here.
func (c *Clone) has(revision string) bool {
	commit := revision[strings.LastIndexAny(revision, ":/")+1:]
	return c.Has != nil && wholeCommit.MatchString(commit) && c.Has(commit)
}

// served says whether a remote is at a server. One that is a directory is called as
// somebody liked, and says nothing of addresses.
func (c *Clone) served() bool {
	for remote := range c.Remotes {
		if !strings.HasPrefix(remote, "/") {
			return true
		}
	}
	return false
}

// SourceAddress is the URL of the repository that a source of Flux fetches; empty where
// it fetches no repository.
func SourceAddress(source *unstructured.Unstructured) string {
	if source.GetKind() != v1alpha1.SourceGitRepository {
		return ""
	}
	return textAt(source, "spec", "url")
}
