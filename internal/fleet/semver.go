package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/Masterminds/semver/v3"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

const tagPrefix = "refs/tags/"

// CheckRange says what is wrong with a range of versions.
func CheckRange(text string) error {
	_, err := parseRange(text)
	return err
}

func parseRange(text string) (*semver.Constraints, error) {
	within, err := semver.NewConstraint(text)
	if err != nil {
		return nil, fmt.Errorf("%q is no range of versions", text)
	}
	return within, nil
}

// errNoVersion is a repository without a tag in a range.
var errNoVersion = errors.New("no tag is a version")

// highest is the tag with the highest version of a range. Pre-releases count only
// where the range names one. A tag is a version with or without a v before it, and
// with all three numbers: what is shorter, such as v1, is mostly a tag that moves.
func highest(refs *packp.AdvRefs, text string) (string, error) {
	within, err := parseRange(text)
	if err != nil {
		return "", err
	}
	found, version := "", (*semver.Version)(nil)
	for name := range refs.References {
		tag, ok := strings.CutPrefix(name, tagPrefix)
		if !ok {
			continue
		}
		candidate, err := semver.StrictNewVersion(strings.TrimPrefix(tag, "v"))
		if err != nil || !within.Check(candidate) {
			continue
		}
		// Versions that differ only in what follows a plus are of one rank, and so
		// are v1.0.0 and 1.0.0: whoever looks must see the same.
		if version == nil || cmp.Or(candidate.Compare(version), cmp.Compare(tag, found)) > 0 {
			found, version = tag, candidate
		}
	}
	if found == "" {
		return "", fmt.Errorf("%w within %q", errNoVersion, text)
	}
	return found, nil
}
