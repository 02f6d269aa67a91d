package fleet_test

import (
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// A commit that changes nothing of a path need not be built; every other has to be.
func TestClosureTellsWhatACommitIsAbout(t *testing.T) {
	server := serve(t)
	server.Commit(repository, with(sound(), map[string]string{
		"README.md": "x", "other.yaml": basePool, "notes/link": fleettest.Symlink("../README.md"),
	}))
	git := open(t, server, t.TempDir(), fleet.Auth{})
	digest := func(path string) string {
		t.Helper()
		digest, err := git.Closure(t.Context(), fleet.Ref{}, path)
		if err != nil || digest == "" {
			t.Fatalf("digest %q, %v", digest, err)
		}
		return digest
	}
	const overlay = "./clusters/eu"
	before, hub := digest(overlay), digest("hub")
	for _, commit := range []struct {
		name  string
		files map[string]string
		same  bool
	}{
		{"nothing", nil, true},
		{"another file", map[string]string{"README.md": "y"}, true},
		{"another overlay", map[string]string{"clusters/us/kustomization.yaml": "resources: [../../pools/base]\n"}, true},
		{"a file beside the pools that none lists", map[string]string{"pools/base/more.txt": "x"}, true},
		{"a pool of its base", map[string]string{"pools/base/gpu.yaml": basePool + "# more\n"}, false},
		{"its kustomization", map[string]string{"clusters/eu/kustomization.yaml": sound()["clusters/eu/kustomization.yaml"] + "# more\n"}, false},
		{"a second kustomization", map[string]string{"clusters/eu/Kustomization": "resources: []\n"}, false},
		{"without that", map[string]string{"clusters/eu/Kustomization": fleettest.Removed}, false},
		{"its patch, by a link", map[string]string{"clusters/eu/larger.yaml": fleettest.Removed}, false},
		{"which leads to another file", map[string]string{"clusters/eu/larger.yaml": fleettest.Symlink("../../other.yaml")}, false},
		{"that has changed", map[string]string{"other.yaml": basePool + "# more\n"}, false},
		{"rules of the repository", map[string]string{".cloop/rules.cue": "rules: {}\n"}, false},
		{"its configuration", map[string]string{".cloop/config.yaml": "severities: {}\n"}, false},
		{"a file there without an effect", map[string]string{".cloop/rules.yaml": "x"}, false},
		{"other repositories", map[string]string{".gitmodules": "[submodule \"x\"]\n\tpath = pools\n"}, false},
		{"a link somewhere", map[string]string{"notes/more": fleettest.Symlink("../README.md")}, false},
		{"the end of one", map[string]string{"README.md": fleettest.Removed, "README.md/x": "x"}, false},
	} {
		server.Commit(repository, commit.files)
		after := digest(overlay)
		if (after == before) != commit.same {
			t.Errorf("%s: the digest stays is %t, want %t", commit.name, after == before, commit.same)
		}
		before = after
	}
	if digest("hub") == hub {
		t.Error("rules came, and the digest of another path stays")
	}
	// What is not known has to be built.
	server.Commit(repository, map[string]string{"clusters/eu/kustomization.yaml": "generators: [*a]\nresources: [&a ../../pools/base]\n"})
	if fetched := server.Fetches(); digest("hub") == "" || server.Fetches() != fetched+1 {
		t.Error("a commit is fetched once")
	}
	tree := checkout(t, git, fleet.Ref{})
	if fetched := server.Fetches(); tree.Revision == "" || fetched != server.Fetches() {
		t.Error("what was fetched is fetched again")
	}
}
