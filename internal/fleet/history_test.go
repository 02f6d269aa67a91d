package fleet_test

import (
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// server is a repository with commits to branch main.
type server struct{ *fleettest.Server }

func (s server) commit(text string) string {
	return s.Commit(repository, map[string]string{"a": text})
}

func overHTTPS(t *testing.T) (server, *fleet.Git) {
	t.Helper()
	s := serve(t)
	return server{s}, open(t, s, t.TempDir(), fleet.Auth{})
}

func overSSHServer(t *testing.T) (server, *fleet.Git) {
	t.Helper()
	s := serveSSH(t)
	return server{s.server}, s.open(t, s.auth)
}

// rewritten looks at a branch again after what was done to it.
func rewritten(t *testing.T, git *fleet.Git, ref fleet.Ref, before string) string {
	t.Helper()
	now, err := git.Follow(t.Context(), ref, before)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := git.Checkout(t.Context(), fleet.Ref{Commit: now.Commit}); err != nil {
		t.Fatal(err)
	}
	said, err := git.Rewritten(t.Context(), before, now)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

func TestRewrittenHistory(t *testing.T) {
	for name, test := range map[string]struct {
		// change takes the branch on from its second commit.
		change func(s server, first, second string)
		said   bool
	}{
		"nothing":       {func(server, string, string) {}, false},
		"a commit":      {func(s server, _, _ string) { s.commit("c") }, false},
		"many commits":  {func(s server, _, _ string) { s.commit("c"); s.commit("d"); s.commit("e"); s.commit("f") }, false},
		"a force-push":  {func(s server, _, _ string) { s.Replace(repository, map[string]string{"a": "x"}) }, true},
		"a commit less": {func(s server, first, _ string) { s.SetBranch(repository, "main", first) }, true},
		"an amended commit": {func(s server, first, _ string) {
			s.SetBranch(repository, "main", first)
			s.commit("amended")
			s.commit("more")
		}, true},
		"what is gone for good": {func(s server, first, second string) {
			s.SetBranch(repository, "main", first)
			s.commit("amended")
			s.Forget(repository)
		}, true},
		"a merge": {func(s server, first, second string) { s.Merge(repository, first) }, false},
	} {
		for transport, over := range map[string]func(t *testing.T) (server, *fleet.Git){"https": overHTTPS, "ssh": overSSHServer} {
			t.Run(name+" over "+transport, func(t *testing.T) {
				s, git := over(t)
				first := s.commit("a")
				second := s.commit("b")
				test.change(s, first, second)
				said := rewritten(t, git, fleet.Ref{}, "main@sha1:"+second)
				if (said != "") != test.said {
					t.Errorf("it says %q", said)
				}
				if test.said && !strings.Contains(said, "the history of branch main was rewritten: "+fleet.Short(second)+" is no ancestor of") {
					t.Errorf("it says %q", said)
				}
			})
		}
	}
}

func TestHistoryOfOtherRefs(t *testing.T) {
	s, git := overHTTPS(t)
	first := s.commit("a")
	s.Tag(repository, "v1", first)
	second := s.commit("b")
	s.Tag(repository, "v2", second)
	for _, test := range []struct {
		ref          fleet.Ref
		before, says string
	}{
		{fleet.Ref{Tag: "v2"}, "v1@sha1:" + first, ""},
		{fleet.Ref{Tag: "v2"}, "v2@sha1:" + first, "tag v2 was moved from " + fleet.Short(first) + " to " + fleet.Short(second)},
		{fleet.Ref{Commit: first}, "sha1:" + second, ""},
		{fleet.Ref{}, "staging@sha1:" + strings.Repeat("ab", 20), ""},
		{fleet.Ref{}, "", ""},
	} {
		if said := rewritten(t, git, test.ref, test.before); said != test.says {
			t.Errorf("%s after %s: %q, want %q", test.ref, test.before, said, test.says)
		}
	}
}

// What was there is told from what never was, and comes back.
func TestWhatIsNotThereAnyMore(t *testing.T) {
	s, git := overHTTPS(t)
	commit := s.commit("a")
	s.CommitTo(repository, "staging", map[string]string{"a": "b"})
	before := "staging@sha1:" + commit
	s.DeleteBranch(repository, "staging")
	_, err := git.Follow(t.Context(), fleet.Ref{Branch: "staging"}, before)
	wantSource(t, err, "there is no branch staging any more", "named "+fleet.Short(commit), "git push origin "+fleet.Short(commit)+":refs/heads/staging")
	_, err = git.Follow(t.Context(), fleet.Ref{Branch: "stagign"}, before)
	wantSource(t, err, "there is no branch stagign: push it, or correct the ref")
	_, err = git.Follow(t.Context(), fleet.Ref{Tag: "v1"}, "v1@sha1:"+commit)
	wantSource(t, err, "there is no tag v1 any more")
	s.CommitTo(repository, "staging", map[string]string{"a": "c"})
	if _, err := git.Follow(t.Context(), fleet.Ref{Branch: "staging"}, before); err != nil {
		t.Error(err)
	}
	s.DeleteBranch(repository, "staging")
	s.DeleteBranch(repository, "main")
	_, err = git.Follow(t.Context(), fleet.Ref{}, "main@sha1:"+commit)
	wantSource(t, err, "it was emptied after main was at "+fleet.Short(commit), "push its commits again")
	_, err = git.Follow(t.Context(), fleet.Ref{}, "")
	wantSource(t, err, "push a first commit")
	s.commit("again")
	checkout(t, git, fleet.Ref{})
}
