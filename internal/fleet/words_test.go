package fleet_test

import (
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
	"cloop.dev/cloop/internal/secret"
)

// Only a commit can be followed, and who names something else is told what it is.
func TestARefThatIsNoCommit(t *testing.T) {
	s := serve(t)
	s.Commit(repository, map[string]string{"a": "a"})
	git := func(args ...string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "git", append([]string{"-C", s.Path(repository), "-c", "user.name=a", "-c", "user.email=a@example.com"}, args...)...)
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git("tag", "-a", "-m", "x", "v1", "main")
	git("tag", "tree", "main^{tree}")
	git("tag", "blob", "main:a")
	for ref, kind := range map[fleet.Ref]string{
		{Commit: git("rev-parse", "v1")}: "tag",
		{Tag: "tree"}:                    "tree",
		{Tag: "blob"}:                    "blob",
	} {
		_, err := open(t, s, t.TempDir(), fleet.Auth{}).Checkout(t.Context(), ref)
		wantSource(t, err, "it is a "+kind+" and no commit", "^{commit}")
	}
}

func TestAnswersThatAreNotWhole(t *testing.T) {
	for name, c := range map[string]struct {
		handle http.HandlerFunc
		says   []string
	}{
		"a repository of static files": {func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/info/refs") {
				_, _ = fmt.Fprintf(w, "%s\trefs/heads/main\n", strings.Repeat("9", 40))
				return
			}
			http.NotFound(w, r)
		}, []string{"static files", "git http-backend"}},
		"cut in a pack": {func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				advertise(w)
				return
			}
			_, _ = io.WriteString(w, "0008NAK\n2000\x01PACK")
		}, []string{"ended its answer before it was whole: try again"}},
	} {
		t.Run(name, func(t *testing.T) {
			server := serveHostile(t, c.handle)
			git, err := fleet.OpenGit(t.TempDir(), server.URL+"/fleet.git", fleet.Auth{CABundle: bundle(server)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = git.Checkout(t.Context(), fleet.Ref{Branch: "main"})
			wantSource(t, err, c.says...)
		})
	}
}

// A proxy that is not what its address says is not the server's certificate.
func TestAProxyThatSpeaksNoTLS(t *testing.T) {
	s := serve(t)
	p := s.ServeProxy("robot", "hunter2")
	git, err := fleet.OpenGit(t.TempDir(), "https://example.com/fleet.git", fleet.Auth{Proxy: &fleet.Proxy{Address: strings.Replace(p.URL, "http://", "https://", 1)}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = git.Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err, "proxyconnect", "proxySecretRef")
}

// A server that gives out what branches and tags are at alone has all of its history
// fetched for another commit.
func TestACommitOfALargeHistoryOverSSH(t *testing.T) {
	s := serveSSH(t)
	const hidden = "abababababababababababababababababababab"
	s.server.Commit(repository, map[string]string{"a": noise(4 << 10)})
	t.Cleanup(fleet.SetMaxPack(2 << 10)) // a refusal is shorter
	_, err := s.open(t, s.auth).Checkout(t.Context(), fleet.Ref{Commit: hidden})
	wantSource(t, err, "does not give out "+hidden+" by its hash", "uploadpack.allowReachableSHA1InWant")
}

func TestPathsBelowAHome(t *testing.T) {
	s := serveSSH(t)
	var got string
	s.Before(func(command string, _ io.Writer) (uint32, bool) { got = command; return 1, true })
	for path, want := range map[string]string{"/~/fleet.git": "~/fleet.git", "/~ann/fleet.git": "~ann/fleet.git", "/a~/~b": "/a~/~b"} {
		git, err := fleet.OpenGit(t.TempDir(), "ssh://git@"+s.Address()+path, s.auth)
		if err != nil {
			t.Fatal(err)
		}
		_, err = git.Resolve(t.Context(), fleet.Ref{})
		wantSource(t, err)
		if got != "git-upload-pack '"+want+"'" {
			t.Errorf("%s is %s", path, got)
		}
	}
}

// It may not keep anybody busy who only waits for its answer.
func TestAServerThatTalksWithoutEndOverSSH(t *testing.T) {
	s := serveSSH(t)
	s.Before(func(_ string, stderr io.Writer) (uint32, bool) {
		for {
			if _, err := stderr.Write(make([]byte, 32<<10)); err != nil {
				return 1, true
			}
		}
	})
	_, err := s.open(t, s.auth).Resolve(t.Context(), fleet.Ref{})
	wantSource(t, err, "says too much beside its answer: more than 4 MiB", "what the server's ssh runs")
}

func TestKnownHostsThatCannotBeRead(t *testing.T) {
	identity, _ := fleettest.Identity(t, "")
	_, err := fleet.OpenGit(t.TempDir(), "ssh://git@example.com/x", fleet.Auth{Identity: secret.New(identity), KnownHosts: []byte("# one\nexample.com ssh-ed25519 AAAA\n")})
	wantSource(t, err, "cannot be read: line 2: ")
}
