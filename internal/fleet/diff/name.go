package diff

import (
	"encoding/hex"
	"errors"
	"regexp"
	"strconv"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"
)

// plainName is a name of a commit with steps back from it, such as main~2^2.
// Other ways to name one are left to the git program.
var (
	plainName = regexp.MustCompile(`^(@|[0-9A-Za-z_][0-9A-Za-z_./+-]*)((?:~[0-9]{0,5}|\^[0-9]{0,3})*)$`)
	step      = regexp.MustCompile(`[~^][0-9]*`)
)

// namespaces are where git looks for a name, in its order.
var namespaces = []string{"%", "refs/%", "refs/tags/%", "refs/heads/%", "refs/remotes/%", "refs/remotes/%/HEAD"}

// named finds the commit that a plain name means.
func named(store *filesystem.Storage, name string) (plumbing.Hash, bool) {
	match := plainName.FindStringSubmatch(name)
	if match == nil {
		return plumbing.ZeroHash, false
	}
	commit, err := start(store, match[1])
	for _, s := range step.FindAllString(match[2], -1) {
		if err == nil {
			commit, err = back(commit, s)
		}
	}
	if err != nil {
		return plumbing.ZeroHash, false
	}
	return commit.Hash, true
}

func start(store *filesystem.Storage, name string) (*object.Commit, error) {
	if name == "@" {
		name = "HEAD"
	}
	if len(name) == shaOneDigits && wholeName.MatchString(name) {
		return peeled(store, plumbing.NewHash(name))
	}
	for _, namespace := range namespaces {
		full := plumbing.ReferenceName(strings.Replace(namespace, "%", name, 1))
		if reference, err := storer.ResolveReference(store, full); err == nil {
			return peeled(store, reference.Hash())
		}
	}
	return abbreviated(store, name)
}

// abbreviated finds a commit by the first digits of its name, if there is one.
func abbreviated(store *filesystem.Storage, name string) (*object.Commit, error) {
	const fewest = 4
	prefix, err := hex.DecodeString(name[:len(name)/2*2])
	if err != nil || len(name) < fewest || len(name) > shaOneDigits || strings.Trim(name, "0123456789abcdef") != "" {
		return nil, plumbing.ErrObjectNotFound
	}
	hashes, err := store.HashesWithPrefix(prefix)
	if err != nil {
		return nil, err
	}
	var found *object.Commit
	for _, hash := range hashes {
		if !strings.HasPrefix(hash.String(), name) {
			continue
		}
		commit, err := peeled(store, hash)
		switch {
		case err != nil:
		case found != nil && found.Hash != commit.Hash:
			return nil, errors.New("the name means several commits")
		default:
			found = commit
		}
	}
	if found == nil {
		return nil, plumbing.ErrObjectNotFound
	}
	return found, nil
}

// maxTags bounds how many tags of tags are followed.
const maxTags = 40

// peeled is the commit that an object is, or a tag of one.
func peeled(store *filesystem.Storage, hash plumbing.Hash) (*object.Commit, error) {
	// Tags may be of tags.
	for range maxTags {
		tag, err := object.GetTag(store, hash)
		if err != nil {
			break
		}
		hash = tag.Target
	}
	return object.GetCommit(store, hash)
}

// back goes one step back, as git's ~N and ^N do.
func back(commit *object.Commit, step string) (*object.Commit, error) {
	n := 1
	if step[1:] != "" {
		// The pattern allows few digits.
		n, _ = strconv.Atoi(step[1:])
	}
	if step[0] == '^' {
		if n == 0 {
			return commit, nil
		}
		return commit.Parent(n - 1)
	}
	for range n {
		var err error
		if commit, err = commit.Parent(0); err != nil {
			return nil, err
		}
	}
	return commit, nil
}
