package cli_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
)

// createdText is what `pool create gpu` prints, up to the helm command.
const createdText = `Created pool gpu.

Run these where kubectl and helm reach the cluster. The first two may be repeated; helm install
refuses to overwrite a release.
The credential in the second command is shown once and cannot be recovered.

kubectl apply --server-side -f - <<'EOF'
apiVersion: v1
kind: Namespace
metadata:
  name: cloop-gpu
  labels:
    pod-security.kubernetes.io/enforce: restricted
EOF

kubectl apply --server-side --force-conflicts -f - <<'EOF'
apiVersion: v1
kind: Secret
metadata:
  name: gpu-pool-credential
  namespace: cloop-gpu
stringData:
  credential: cloop_pool1_secret
EOF

helm install gpu $HUB/charts/cloop-executor-controller.tgz \
  -n cloop-gpu \
  --set pool.create=true \
  --set-string pool.name=gpu \
  --set-string pool.hubURL=$HUB \
  --set-string pool.hubCAPin=$PIN \
  --set-string pool.credential.existingSecret=gpu-pool-credential \
  --set pool.maxRunners=4 \
  --set pool.minRunners=1 \
  --set pool.persistence.enabled=true \
  --set-string pool.persistence.size=50Gi \
  --set-string pool.persistence.storageClassName=fast-ssd \
  --set-string pool.persistence.reclaimPolicy=Retain \
  --set-string image.tag=0.0.8

Helm knows no pins: where it does not trust the hub's certificate, add --ca-file with the certificate's file.
`

// inHub fills the stub hub's address and pin in.
func inHub(text string) string {
	return strings.NewReplacer("$HUB", os.Getenv("CLOOP_HUB"), "$PIN", os.Getenv("CLOOP_HUB_PIN")).Replace(text)
}

func TestPoolCreateShowsTheCredentialOnceAndOffCommandLines(t *testing.T) {
	chart := "/charts/cloop-executor-controller.tgz"
	seen := stubHub(t, map[string]any{
		"POST /api/v1/pools": hubv1.CreatePoolResponse{Pool: gpu(), Credential: hubv1.Credential{ID: "c1", Secret: "cloop_pool1_secret"}},
		"GET /api/v1/hub": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			send(w, hubv1.HubInfo{Build: "0.0.8", Chart: chart})
		}),
	})
	args := []string{
		"executor", "pool", "create", "gpu", "--max-runners", "4", "--min-runners", "1", "--label", "gpu=true", "--audience", "group:ml",
		"--owner", "group:ml", "--harness", "claude", "--capability", "kernelIsolated", "--capability", "gpu=false",
		"--persistence", "--size", "50Gi", "--storage-class", "fast-ssd", "--reclaim-policy", "Retain",
	}
	cloop(t, args...).want(t, 0, inHub(createdText)+"\nBind projects to pool:p1\n", "")
	want := `POST /api/v1/pools {"name":"gpu","maxRunners":4,"labels":{"gpu":"true"},"audience":["group:ml"],"owner":"group:ml","harness":"claude",` +
		`"capabilities":{"gpu":false,"kernelIsolated":true},"install":{"minRunners":1,"persistence":{"size":"50Gi","storageClassName":"fast-ssd","reclaimPolicy":"Retain"}}}`
	if len(*seen) != 2 || (*seen)[1] != want {
		t.Errorf("the hub got %q, want %q", *seen, want)
	}

	// As long as the hub serves no chart, something else takes Helm's place.
	chart = ""
	got := cloop(t, args...)
	_, checkout, said := strings.Cut(got.stdout, "\n\nThis hub serves no chart yet, and no image is published: in place of helm, run this in a checkout of\n")
	checkout, helm, later := strings.Cut(checkout, "\n\nOnce the hub serves its chart, helm does that:\n\n")
	if _, want, _ := strings.Cut(inHub(createdText), "\n\nhelm install"); !said || !later || !strings.Contains(checkout, "kubectl apply --server-side -k install-gpu") ||
		helm != "helm install"+want+"\nBind projects to pool:p1\n" {
		t.Errorf("without a chart it prints\n%s", got.stdout)
	}
}

func TestPoolCreateTrustsByTheFileThatItIsGiven(t *testing.T) {
	answers := map[string]any{
		"POST /api/v1/pools": hubv1.CreatePoolResponse{Pool: gpu(), Credential: hubv1.Credential{ID: "c1", Secret: "cloop_pool1_secret"}},
		"GET /api/v1/hub":    hubv1.HubInfo{Build: "edge", Chart: "/charts/cloop-executor-controller.tgz"},
	}
	_, certificate := stubHubShowing(t, answers)
	file := writeFile(t, certificate)
	got := cloop(t, "executor", "pool", "create", "gpu", "--max-runners", "4", "--hub-pin=", "--hub-ca-file", file)
	for _, want := range []string{"  --ca-file " + file + " \\\n", "  --set-file pool.hubCABundle=" + file + " \\\n", "  --set-string image.tag=edge\n"} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("it prints no %q:\n%s%s", want, got.stdout, got.stderr)
		}
	}
	if strings.Contains(got.stdout, "hubCAPin") || strings.Contains(got.stdout, "Helm knows no pins") {
		t.Errorf("it prints a pin:\n%s", got.stdout)
	}
}

// A hub behind a plain HTTP address is asked only where that is wanted, and gets
// no commands: no controller would connect to it. The credential is shown.
func TestPoolsAtAPlainHTTPAddress(t *testing.T) {
	pool := gpu()
	pool.Controllers = []hubv1.ControllerContact{{Instance: "c-0", Build: "0.0.1"}}
	var seen []string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.Path)
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Errorf("asked as %q", r.Header.Get("Authorization"))
		}
		switch r.Method + " " + r.URL.Path {
		case "POST /api/v1/pools":
			send(w, hubv1.CreatePoolResponse{Pool: pool, Credential: hubv1.Credential{ID: "c1", Secret: "cloop_pool1_secret"}})
		case "GET /api/v1/hub":
			send(w, hubv1.HubInfo{Build: "0.0.8", Chart: "/charts/cloop-executor-controller.tgz"})
		case "GET /api/v1/pools/p1/runners", "GET /api/v1/pools/p1/credentials":
			send(w, map[string]any{"items": []any{}})
		default:
			send(w, pool)
		}
	}))
	t.Cleanup(server.Close)
	for name, value := range map[string]string{"CLOOP_HUB": server.URL, "CLOOP_HUB_PIN": "", "CLOOP_HUB_CA_FILE": "", "CLOOP_TOKEN": token, "CLOOP_TOKEN_FILE": ""} {
		t.Setenv(name, value)
	}
	create := []string{"executor", "pool", "create", "gpu", "--max-runners", "4"}
	for name, args := range map[string][]string{
		"without being asked to":       create,
		"with a pin":                   append([]string{"--plain-http", "--hub-pin", "sha256:Vb9mR0E2Xj3LwJ8kq1yZ5nH7tC4uA6dF0gS2pQ9rT3w="}, create...),
		"to keep a login":              {"login", "--plain-http"},
		"for what it shows of its key": {"hub", "pin", server.URL, "--plain-http"},
	} {
		if got := cloop(t, args...); got.code != 2 || len(seen) > 0 || got.stdout != "" {
			t.Errorf("%s: exit code %d, the hub got %q, %s%s", name, got.code, seen, got.stdout, got.stderr)
		}
	}
	got := cloop(t, append(create, "--plain-http")...)
	for _, want := range []string{
		"Created pool gpu.\n\nThe credential in the next line is shown once and cannot be recovered.\ncloop_pool1_secret\n",
		"over HTTPS only: serve the hub over HTTPS, mint a credential there with `cloop executor pool rotate-credential gpu`", "`cloop hub pin` prints",
		"\nBind projects to pool:p1\n",
	} {
		if got.code != 0 || !strings.Contains(got.stdout, want) {
			t.Errorf("exit code %d, it prints no %q:\n%s%s", got.code, want, got.stdout, got.stderr)
		}
	}
	var made struct{ Install []string }
	got = cloop(t, append(create, "--plain-http", "-o", "json")...)
	if err := json.Unmarshal([]byte(got.stdout), &made); err != nil || made.Install == nil || len(made.Install) != 0 || strings.Contains(got.stdout, "kubectl") {
		t.Errorf("as JSON it is %s: %v", got.stdout, err)
	}
	for _, args := range [][]string{{"show", "gpu"}, {"update", "gpu", "--max-runners", "4"}} {
		if got := cloop(t, append(append([]string{"executor", "pool"}, args...), "--plain-http")...); got.code != 0 || strings.Contains(got.stdout, "helm ") {
			t.Errorf("%s: exit code %d\n%s%s", args, got.code, got.stdout, got.stderr)
		}
	}
}

func TestPoolCreateRefusesBeforeAnythingIsMade(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		says string
	}{
		"a size without volumes":     {[]string{"--size", "1Gi"}, "--persistence"},
		"volumes without a size":     {[]string{"--persistence"}, "--size is missing"},
		"a capability that is maybe": {[]string{"--capability", "a=maybe"}, "--capability a=maybe"},
		"a namespace that is none":   {[]string{"--namespace", "a b"}, "--namespace"},
		"below nothing":              {[]string{"--min-runners", "-1"}, "--min-runners -1"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := stubHub(t, nil)
			got := cloop(t, append([]string{"executor", "pool", "create", "gpu", "--max-runners", "4"}, test.args...)...)
			if got.code != 2 || !strings.Contains(got.stderr, test.says) || len(*seen) != 0 {
				t.Errorf("exit code %d, %q, and the hub got %q", got.code, got.stderr, *seen)
			}
		})
	}
}

func TestPoolCreateThatGetsNoAnswerSaysHowToGoOn(t *testing.T) {
	stubHub(t, map[string]any{"POST /api/v1/pools": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })})
	got := cloop(t, "executor", "pool", "create", "gpu", "--max-runners", "4")
	if got.code != 2 || !strings.Contains(got.stderr, "`cloop executor pool rotate-credential gpu` mints another") {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
}
