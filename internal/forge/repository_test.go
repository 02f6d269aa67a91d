package forge_test

import (
	"errors"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/forge"
)

func TestLocate(t *testing.T) {
	for _, c := range []struct {
		remote, kind, api string
		want              forge.Repository
	}{
		{"https://github.com/acme/fleet.git", "", "", forge.Repository{Kind: forge.GitHub, API: "https://api.github.com", Web: "https://github.com/acme/fleet", Path: "acme/fleet"}},
		{"git@github.com:acme/fleet.git", "", "", forge.Repository{Kind: forge.GitHub, API: "https://api.github.com", Web: "https://github.com/acme/fleet", Path: "acme/fleet"}},
		{"https://acme.ghe.com/acme/fleet", "", "", forge.Repository{Kind: forge.GitHub, API: "https://api.acme.ghe.com", Web: "https://acme.ghe.com/acme/fleet", Path: "acme/fleet"}},
		{"https://github.example.com/acme/fleet", "", "", forge.Repository{Kind: forge.GitHub, API: "https://github.example.com/api/v3", Web: "https://github.example.com/acme/fleet", Path: "acme/fleet"}},
		{"https://user:pass@gitlab.com/a/b/c.git/", "", "", forge.Repository{Kind: forge.GitLab, API: "https://gitlab.com/api/v4", Web: "https://gitlab.com/a/b/c", Path: "a/b/c"}},
		{"ssh://git@git.example.com:2222/a/b.git", "gitlab", "", forge.Repository{Kind: forge.GitLab, API: "https://git.example.com/api/v4", Web: "https://git.example.com/a/b", Path: "a/b"}},
		{"https://codeberg.org/a/b", "", "", forge.Repository{Kind: forge.Gitea, API: "https://codeberg.org/api/v1", Web: "https://codeberg.org/a/b", Path: "a/b"}},
		{"https://git.example.com:3000/a/b", "gitea", "https://api.example.com/gitea/api/v1/", forge.Repository{Kind: forge.Gitea, API: "https://api.example.com/gitea/api/v1", Web: "https://git.example.com:3000/a/b", Path: "a/b"}},
	} {
		got, err := forge.Locate(c.remote, forge.Kind(c.kind), c.api)
		if err != nil || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.remote, got, err, c.want)
		}
	}
	for _, bad := range []struct{ remote, kind, api string }{
		{"https://git.example.com/a/b", "", ""},
		{"https://github.com/acme", "", ""},
		{"https://github.com/a/b/c", "", ""},
		{"https://github.com/a/../b", "", ""},
		{"https://gitlab.com/a//b", "", ""},
		{"/srv/git/fleet.git", "github", ""},
		{"file:///srv/git/fleet.git", "github", ""},
		{"https://user:pass@", "github", ""},
		{"https://git.example.com/a/b", "sourcehut", ""},
		{"https://github.com/a/b", "", "http://api.example.com"},
		{"https://github.com/a/b", "", "https://user:pass@api.example.com"},
	} {
		_, err := forge.Locate(bad.remote, forge.Kind(bad.kind), bad.api)
		if err == nil {
			t.Errorf("%v is located", bad)
		} else if strings.Contains(err.Error(), "pass@") {
			t.Errorf("a password is shown: %v", err)
		}
	}
	if _, err := forge.Locate("https://git.example.com/a/b", "", ""); !errors.Is(err, forge.ErrUnknownForge) {
		t.Errorf("an unknown host: %v", err)
	}
}

func TestSame(t *testing.T) {
	for _, c := range []struct {
		one, other string
		same       bool
	}{
		{"https://git.example.com/a/b.git", "git@git.example.com:A/b", true},
		{"https://git.example.com:8443/a/b", "ssh://git@git.example.com:22/a/b.git", true},
		{"https://git.example.com:8443/a/b", "https://git.example.com:9443/a/b", false},
		{"https://user:pass@git.example.com/a/b", "https://GIT.example.com/a/b/", true},
		{"https://git.example.com/a/b", "https://git.example.com/a/c", false},
		{"/srv/fleet.git", "/srv/fleet.git", false},
		{"", "", false},
	} {
		if got := forge.Same(c.one, c.other); got != c.same {
			t.Errorf("%s and %s: %t", c.one, c.other, got)
		}
	}
}

func TestTree(t *testing.T) {
	for kind, want := range map[forge.Kind]string{
		forge.GitHub: "https://git.example.com/a/b/tree/abc/clusters/eu%20west",
		forge.GitLab: "https://git.example.com/a/b/-/tree/abc/clusters/eu%20west",
		forge.Gitea:  "https://git.example.com/a/b/src/commit/abc/clusters/eu%20west",
	} {
		r, err := forge.Locate("https://git.example.com/a/b.git", kind, "")
		if err != nil {
			t.Fatal(err)
		}
		if got := r.Tree("abc", "./clusters/eu west"); got != want {
			t.Errorf("%s: %s", kind, got)
		}
	}
}

func FuzzLocate(f *testing.F) {
	for _, remote := range []string{"https://github.com/a/b", "git@gitlab.com:a/b.git", "ssh://git@codeberg.org:22/a/b", "https://u:p@github.com/a/b?x#y"} {
		f.Add(remote, "")
	}
	f.Fuzz(func(t *testing.T, remote, kind string) {
		r, err := forge.Locate(remote, forge.Kind(kind), "")
		if err != nil {
			return
		}
		if !strings.HasPrefix(r.API, "https://") || strings.Contains(r.API, "@") || strings.Contains("/"+r.Path+"/", "/../") || !strings.Contains(r.Path, "/") {
			t.Errorf("%q is at %+v", remote, r)
		}
	})
}
