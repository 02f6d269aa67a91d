package agent

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
)

// source is what to check out, checked: nothing in it can be taken for an
// option, another protocol or a refspec of somebody's making.
type source struct {
	// remote is an https URL without user information.
	remote string
	// refs are full names to try in this order; empty where commit is set.
	refs []string
	// commit is a full object id, or empty where the refs decide.
	commit string
	// ref is what the assignment said, for messages.
	ref string
}

func newSource(a hubv1.Assignment) (source, error) {
	s := source{remote: a.Remote, commit: a.Commit, ref: a.Ref}
	remote, err := url.Parse(a.Remote)
	if err != nil || remote.Scheme != "https" || remote.Host == "" || remote.User != nil || strings.ContainsAny(a.Remote, " \t\r\n\"\\") {
		// Not quoted: it may hold a password.
		return source{}, errors.New("the project's remote is not an https URL without user information: change the project")
	}
	switch {
	case s.commit != "":
		if !isObjectID(s.commit) {
			return source{}, fmt.Errorf("the commit %q is not a full object id", s.commit)
		}
		return s, nil
	case isObjectID(a.Ref):
		s.commit = a.Ref
		return s, nil
	case a.Ref == "":
		s.refs, s.ref = []string{"HEAD"}, "HEAD"
	case !validRef(a.Ref):
		return source{}, fmt.Errorf("the ref %q is no legal name of a branch or tag", a.Ref)
	case strings.HasPrefix(a.Ref, "refs/"):
		s.refs = []string{a.Ref}
	default:
		// A branch first: who may push a tag must not be able to stand in for it.
		s.refs = []string{"refs/heads/" + a.Ref, "refs/tags/" + a.Ref}
	}
	return s, nil
}

// isObjectID says whether text is a full SHA-1 in lower case.
func isObjectID(text string) bool {
	return len(text) == 40 && strings.Trim(text, "0123456789abcdef") == ""
}

// validRef follows git-check-ref-format.
func validRef(name string) bool {
	if name == "" || len(name) > 255 || strings.ContainsAny(name, " ~^:?*[\\\x7f") ||
		strings.Contains(name, "..") || strings.Contains(name, "@{") || name == "@" || strings.HasSuffix(name, ".") {
		return false
	}
	for _, r := range name {
		if r < 0x20 {
			return false
		}
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == "" || strings.HasPrefix(part, ".") || strings.HasPrefix(part, "-") || strings.HasSuffix(part, ".lock") {
			return false
		}
	}
	return true
}
