package install_test

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/install"
)

// example is the hub of the examples.
func example() install.Hub {
	return install.Hub{
		URL: "https://cloop.example.com", Pin: "sha256:Vb9mR0E2Xj3LwJ8kq1yZ5nH7tC4uA6dF0gS2pQ9rT3w=",
		Info: hubv1.HubInfo{Build: "edge-0123456789ab", Chart: "/charts/cloop-executor-controller.tgz"},
	}
}

func fast() install.Pool {
	return install.Pool{MaxRunners: 4, Hints: hubv1.InstallHints{Persistence: &hubv1.PersistenceHints{Size: "50Gi", StorageClassName: "fast-ssd"}}}
}

func TestTheControllerIsInstalledWithTheHubsChart(t *testing.T) {
	place := install.At("gpu", install.Place{}, nil)
	if got, want := place.InstallCommand(example(), fast()), `helm install gpu https://cloop.example.com/charts/cloop-executor-controller.tgz \
  -n cloop-gpu \
  --set pool.create=true \
  --set-string pool.name=gpu \
  --set-string pool.hubURL=https://cloop.example.com \
  --set-string pool.hubCAPin=sha256:Vb9mR0E2Xj3LwJ8kq1yZ5nH7tC4uA6dF0gS2pQ9rT3w= \
  --set-string pool.credential.existingSecret=gpu-pool-credential \
  --set pool.maxRunners=4 \
  --set pool.persistence.enabled=true \
  --set-string pool.persistence.size=50Gi \
  --set-string pool.persistence.storageClassName=fast-ssd \
  --set-string image.tag=edge`; got != want {
		t.Errorf("installed with\n%s\nwant\n%s", got, want)
	}
	hub, pool := example(), fast()
	hub.Pin, hub.CAFile, hub.Info.Build = "", "/etc/it's/ca,1.pem", "0.0.8"
	pool.Hints.MinRunners, pool.Hints.Persistence.ReclaimPolicy = 1, "Retain"
	place = install.At("gpu", install.Place{Namespace: "ml", Release: "runners", Secret: "hub"}, nil)
	if got, want := place.InstallCommand(hub, pool), `helm install runners https://cloop.example.com/charts/cloop-executor-controller.tgz \
  -n ml \
  --ca-file '/etc/it'\''s/ca,1.pem' \
  --set pool.create=true \
  --set-string pool.name=gpu \
  --set-string pool.hubURL=https://cloop.example.com \
  --set-file 'pool.hubCABundle=/etc/it'\''s/ca\,1.pem' \
  --set-string pool.credential.existingSecret=hub \
  --set pool.maxRunners=4 \
  --set pool.minRunners=1 \
  --set pool.persistence.enabled=true \
  --set-string pool.persistence.size=50Gi \
  --set-string pool.persistence.storageClassName=fast-ssd \
  --set-string pool.persistence.reclaimPolicy=Retain \
  --set-string image.tag=0.0.8`; got != want {
		t.Errorf("installed with\n%s\nwant\n%s", got, want)
	}
	if got, want := place.MaximumCommand(hub, 8), `helm upgrade runners https://cloop.example.com/charts/cloop-executor-controller.tgz \
  -n ml --reuse-values \
  --ca-file '/etc/it'\''s/ca,1.pem' \
  --set pool.maxRunners=8`; got != want {
		t.Errorf("the maximum is changed with\n%s\nwant\n%s", got, want)
	}
}

func TestAnUpgradeNamesTheReleaseOrADigest(t *testing.T) {
	place := install.At("gpu", install.Place{}, nil)
	const begin = "helm upgrade gpu https://cloop.example.com/charts/cloop-executor-controller.tgz \\\n  -n cloop-gpu --reuse-values \\\n  "
	for build, want := range map[string]string{
		"0.0.8":             "--set-string image.tag=0.0.8",
		"v0.0.8":            "--set-string image.tag=0.0.8",
		"edge":              "--set 'image.digest=sha256:…'",
		"edge-0123456789ab": "--set 'image.digest=sha256:…'",
		"":                  "--set 'image.digest=sha256:…'",
		"0.0.8; rm -rf /":   "--set 'image.digest=sha256:…'",
	} {
		hub := example()
		hub.Info.Build = build
		if got := place.UpgradeCommand(hub); got != begin+want {
			t.Errorf("to %q:\n%s", build, got)
		}
	}
}

func TestBehind(t *testing.T) {
	for _, c := range []struct {
		controller, hub string
		want            bool
	}{
		{"0.0.7", "0.0.8", true}, {"0.0.8", "0.0.8", false}, {"0.0.9", "0.0.8", false}, {"v0.0.7", "0.0.8", true},
		{"0.0.8-rc.1", "0.0.8", true}, {"0.9.0", "0.10.0", true},
		{"edge-1", "0.0.8", false}, {"", "0.0.8", false}, {"0.0.8", "edge-1", false},
		{"edge-1", "edge-2", true}, {"edge-1", "edge-1", false}, {"edge", "edge-2", true}, {"edge-1", "edge", false}, {"edge-1", "", false},
	} {
		if got := install.Behind(c.controller, c.hub); got != c.want {
			t.Errorf("controller %q of hub %q: behind is %v", c.controller, c.hub, got)
		}
	}
}

func TestPlaces(t *testing.T) {
	hints := &hubv1.InstallHints{Namespace: "ml", Release: "runners"}
	for name, c := range map[string]struct {
		place install.Place
		want  string // in the error; empty: the names are good
	}{
		"default":                  {install.At("gpu", install.Place{}, nil), ""},
		"kept":                     {install.At("gpu", install.Place{}, hints), ""},
		"a pool's longest name":    {install.At(strings.Repeat("a", 63), install.Place{}, nil), "--namespace"},
		"which has a short place":  {install.At(strings.Repeat("a", 63), install.Place{Namespace: "a", Release: "a"}, nil), ""},
		"a release's longest name": {install.At(strings.Repeat("a", 53), install.Place{}, nil), ""},
		"a longer one":             {install.At(strings.Repeat("a", 54), install.Place{}, nil), "--release"},
		"a namespace with a line":  {install.At("gpu", install.Place{Namespace: "a\nEOF\nrm -rf /"}, nil), "--namespace"},
		"a kept one":               {install.At("gpu", install.Place{}, &hubv1.InstallHints{Namespace: "$(id)"}), "--namespace"},
		"a Secret with a quote":    {install.At("gpu", install.Place{Secret: "a'b"}, nil), "--secret"},
		"a pool with a space":      {install.At("g pu", install.Place{}, nil), "pool's name"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.place.Check()
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%+v: %v", c.place, err)
			}
		})
	}
	given := install.At("gpu", install.Place{Namespace: "other"}, hints)
	if given.Namespace != "other" || given.Release != "runners" || given.Secret != "gpu-pool-credential" {
		t.Errorf("what is given does not go first: %+v", given)
	}
}

func TestAHubOverPlainHTTPGetsNoCommands(t *testing.T) {
	for url, refused := range map[string]bool{
		"https://cloop.example.com": false, "https://cloop.example.com:8443/cloop": false,
		"http://cloop.example.com": true, "HTTP://cloop.example.com": true, "cloop.example.com": true, "": true,
	} {
		hub := example()
		hub.URL = url
		err := hub.Check("gpu")
		if refused != errors.Is(err, install.ErrPlainHTTP) {
			t.Errorf("%q: %v", url, err)
		}
		if refused {
			for _, way := range []string{"rotate-credential gpu", "helm install", "cloop hub pin"} {
				if !strings.Contains(err.Error(), way) {
					t.Errorf("%q does not say %q", err, way)
				}
			}
		}
	}
}

// A shell sees the words that were meant, whatever they hold.
func TestQuotedWordsAreOneWord(t *testing.T) {
	for _, word := range []string{"plain", "", "a b", "it's", `"$(id)"`, "`id`", "a\nb", "*", "~", "-n", `\`, "é", "a;b|c&d"} {
		out, err := exec.Command("sh", "-c", "printf '%s.' "+install.Quote(word)).Output()
		if err != nil || string(out) != word+"." {
			t.Errorf("%q quoted as %s is %q: %v", word, install.Quote(word), out, err)
		}
	}
}

func TestACredentialIsInNoArgument(t *testing.T) {
	place := install.At("gpu", install.Place{}, nil)
	dir := t.TempDir()
	// A kubectl that tells its arguments and keeps its input.
	script := "#!/bin/sh\nprintf '%s\\n' \"$@\" >>" + dir + "/arguments\ncat >>" + dir + "/input\n"
	if err := os.WriteFile(dir+"/kubectl", []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", place.NamespaceCommand()+"\n"+place.SecretCommand(install.Credential{Text: "cloop_pool1_canary"}))
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	arguments, err := os.ReadFile(dir + "/arguments")
	if err != nil || strings.Contains(string(arguments), "canary") {
		t.Errorf("the arguments are %s: %v", arguments, err)
	}
	if input, err := os.ReadFile(dir + "/input"); err != nil || !strings.Contains(string(input), "credential: cloop_pool1_canary\n") {
		t.Errorf("the input is %s: %v", input, err)
	}
	if strings.Contains(place.InstallCommand(example(), fast()), "canary") {
		t.Error("helm is given the credential")
	}
}
