package fleet_test

import (
	"encoding/base64"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/secret"
)

// A repository's own proxy counts, whatever the environment says.
func TestAProxyOfARepository(t *testing.T) {
	s := serve(t)
	s.Commit(repository, map[string]string{"a": "a"})
	s.RequireAuthorization("Bearer tok3n")
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:hunter2"))
	p := s.ServeProxy("robot", "hunter2")
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	t.Setenv("NO_PROXY", "example.com")
	visit := func(proxy fleet.Proxy) error {
		git, err := fleet.OpenGit(t.TempDir(), "https://example.com/"+repository+".git", fleet.Auth{Bearer: secret.New("tok3n"), CABundle: s.CABundle(), Proxy: &proxy})
		if err != nil {
			return err
		}
		tree, err := git.Checkout(t.Context(), fleet.Ref{})
		if err == nil {
			err = tree.Close()
		}
		return err
	}
	if err := visit(fleet.Proxy{Address: p.URL, Username: "robot", Password: secret.New("hunter2")}); err != nil {
		t.Fatal(err)
	}
	if len(p.Asked()) == 0 || p.Asked()[0] != "CONNECT example.com:443 "+login {
		t.Errorf("the proxy was asked %q", p.Asked())
	}
	for name, c := range map[string]struct {
		proxy fleet.Proxy
		says  string
	}{
		"wrong password": {fleet.Proxy{Address: p.URL, Username: "robot", Password: secret.New("wr0ng")}, "Proxy Authentication Required"},
		"no password":    {fleet.Proxy{Address: p.URL}, "Proxy Authentication Required"},
		"nobody there":   {fleet.Proxy{Address: "http://127.0.0.1:1", Username: "robot", Password: secret.New("wr0ng")}, "proxyconnect"},
	} {
		err := visit(c.proxy)
		wantSource(t, err, c.says, "proxySecretRef")
		if strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), "tok3n") {
			t.Errorf("%s: %v shows a credential", name, err)
		}
	}
	for _, address := range []string{"", "proxy.example.com:3128", "socks5://proxy:1", "http://robot:wr0ng@proxy:1"} {
		err := visit(fleet.Proxy{Address: address})
		wantSource(t, err, "the proxy's address", "http://HOST:PORT")
		if strings.Contains(err.Error(), "wr0ng") {
			t.Errorf("%v shows a credential", err)
		}
	}
}

// Over a proxy the server is still who its certificate says, and gets the credential
// alone; the proxy's own is its alone.
func TestAProxyOfTheEnvironment(t *testing.T) {
	s := serve(t)
	s.Commit(repository, map[string]string{"a": "a"})
	s.RequireAuthorization("Bearer tok3n")
	login := "Basic " + base64.StdEncoding.EncodeToString([]byte("robot:hunter2"))
	p := s.ServeProxy("robot", "hunter2")
	auth := fleet.Auth{Bearer: secret.New("tok3n"), CABundle: s.CABundle()}
	visit := func(user string) error {
		t.Helper()
		t.Setenv("HTTPS_PROXY", strings.Replace(p.URL, "http://", "http://"+user, 1))
		// The name that the server's certificate has, and that nobody answers to.
		git, err := fleet.OpenGit(t.TempDir(), "https://example.com/"+repository+".git", auth)
		if err != nil {
			t.Fatal(err)
		}
		tree, err := git.Checkout(t.Context(), fleet.Ref{})
		if err == nil {
			err = tree.Close()
		}
		return err
	}
	if err := visit("robot:hunter2@"); err != nil {
		t.Fatal(err)
	}
	if len(p.Asked()) == 0 || p.Asked()[0] != "CONNECT example.com:443 "+login {
		t.Errorf("the proxy was asked %q", p.Asked())
	}
	err := visit("robot:wr0ng@")
	wantSource(t, err, "Proxy Authentication Required", "HTTPS_PROXY")
	if strings.Contains(err.Error(), "wr0ng") || strings.Contains(err.Error(), "tok3n") {
		t.Errorf("%v shows a credential", err)
	}
	p.Close()
	err = visit("robot:hunter2@")
	wantSource(t, err, "proxyconnect", "HTTPS_PROXY")
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%v shows a credential", err)
	}
	t.Log(err)

	// Who needs no proxy goes without.
	t.Setenv("NO_PROXY", "127.0.0.1")
	checkout(t, open(t, s, t.TempDir(), auth), fleet.Ref{})
}
