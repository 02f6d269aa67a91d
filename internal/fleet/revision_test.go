package fleet_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
)

func TestRevisionInFluxForm(t *testing.T) {
	for want, revision := range map[string]fleet.Revision{
		"main@sha1:abc": {Commit: "abc", Branch: "main"}, "v1@sha1:abc": {Commit: "abc", Tag: "v1"}, "sha1:abc": {Commit: "abc"},
	} {
		if got := revision.String(); got != want {
			t.Errorf("%+v is %s, not %s", revision, got, want)
		}
		if name, commit := fleet.Of(want); commit != "abc" || name != revision.Branch+revision.Tag {
			t.Errorf("%s is %s of %s", want, commit, name)
		}
	}
	if name, commit := fleet.Of("sha256:abc"); name+commit != "" {
		t.Errorf("what is no revision is %s of %s", commit, name)
	}
}

// The highest version of a range is followed, whatever else is a tag.
func TestRangesOfVersions(t *testing.T) {
	odd := []string{
		"v1.0.0", "v1.2.0", "1.10.0", "v1.9.9", "v2.0.0-rc.1", "v2.0.0-rc.10", "v2.0.0-rc.2", "v1.11.0-beta.1",
		// None of these is a version.
		"v1", "v1.99", "V1.50.0", "release-1.60.0", "v1.70.0.0", "01.80.0", "v1.090.0", "eu/v1.95.0", "latest", "v", "vv1.96.0",
		// What follows a plus is of no rank; the same twice is told apart by its name.
		"v3.0.0", "v3.0.0+b", "v3.0.0+a", "4.0.0", "v4.0.0", "v99999999999999999999.0.0",
	}
	server := serve(t)
	commit := server.Commit(repository, map[string]string{"a": "a"})
	for _, tag := range odd {
		server.Tag(repository, tag, commit)
	}
	git := open(t, server, t.TempDir(), fleet.Auth{})
	for within, want := range map[string]string{
		">=1.0.0 <2.0.0": "1.10.0", "1.x": "1.10.0", "~1.2": "v1.2.0", "^1.9": "1.10.0", "<1.10.0": "v1.9.9", "=1.0.0": "v1.0.0", "1.0.0 || 1.2.0": "v1.2.0",
		">=2.0.0-0 <2.0.0": "v2.0.0-rc.10", ">=1.0.0-0 <2.0.0-0": "v1.11.0-beta.1", "2.0.0-rc.1": "v2.0.0-rc.1", "~3": "v3.0.0+b", "4.0.0": "v4.0.0", "*": "v4.0.0",
		"2.x": "", ">=5": "", "1.99.0": "", "not a range": "", ">=": "",
	} {
		revision, err := git.Resolve(t.Context(), fleet.Ref{Semver: within, Branch: "main"})
		if want == "" {
			wantSource(t, err, within, "correct the range")
			continue
		}
		if err != nil || revision.Tag != want || revision.Commit != commit || !strings.HasPrefix(revision.String(), want+"@sha1:") {
			t.Errorf("%s is %s (%v), want %s", within, revision, err, want)
		}
	}
	later := server.Commit(repository, map[string]string{"a": "b"})
	server.Tag(repository, "v1.12.0", later)
	if tree := checkout(t, git, fleet.Ref{Semver: "1.x"}); tree.Revision != later {
		t.Errorf("a higher tag is not followed")
	}
}
