package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/cli"
	"cloop.dev/cloop/internal/hubclient"
)

// token is what the stub hub lets in.
const token = "cloop_adm1_test"

// result is what one command line did.
type result struct {
	code           int
	stdout, stderr string
}

// cloop runs a command line with nothing on standard input.
func cloop(t *testing.T, args ...string) result {
	t.Helper()
	return cloopReading(t, "", args...)
}

func cloopReading(t *testing.T, stdin string, args ...string) result {
	t.Helper()
	if !strings.HasPrefix(os.Getenv("XDG_CONFIG_HOME"), os.TempDir()) {
		t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // not the login of whoever runs the tests
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	code := cli.Main(ctx, args, strings.NewReader(stdin), &stdout, &stderr)
	return result{code, stdout.String(), stderr.String()}
}

// want compares the parts that a test cares for; an empty stderr must be empty.
func (r result) want(t *testing.T, code int, stdout, stderr string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d", r.code, code)
	}
	if r.stdout != stdout {
		t.Errorf("stdout is\n%s\nwant\n%s", r.stdout, stdout)
	}
	if r.stderr != stderr {
		t.Errorf("stderr is\n%s\nwant\n%s", r.stderr, stderr)
	}
	if t.Failed() {
		t.Logf("stdout:\n%s\nstderr:\n%s", r.stdout, r.stderr)
	}
}

// calls records what reached the stub hub: "METHOD /path body".
type calls []string

// stubHub serves fixed answers on HTTPS: "METHOD /path" → a value sent as JSON
// with 200, a *hubv1.Problem with its own status, or a handler. The
// environment points at it.
func stubHub(t *testing.T, answers map[string]any) *calls {
	t.Helper()
	seen, _ := stubHubShowing(t, answers)
	return seen
}

// stubHubShowing is stubHub with the certificate that the hub shows.
func stubHubShowing(t *testing.T, answers map[string]any) (seen *calls, certificate string) {
	t.Helper()
	seen = &calls{}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer "+token {
			send(w, &hubv1.Problem{Status: http.StatusUnauthorized, Code: hubv1.CodeUnauthenticated, Detail: "the token is not known"})
			return
		}
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		*seen = append(*seen, strings.TrimSpace(fmt.Sprintf("%s %s %s", r.Method, r.URL.RequestURI(), body.String())))
		switch answer := answers[r.Method+" "+r.URL.Path].(type) {
		case nil:
			send(w, &hubv1.Problem{Status: http.StatusNotFound, Code: hubv1.CodeNotFound, Detail: "there is no " + r.URL.Path})
		case http.HandlerFunc:
			answer(w, r)
		default:
			send(w, answer)
		}
	}))
	// A connection that a test breaks is no news.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	t.Setenv("CLOOP_HUB", server.URL)
	t.Setenv("CLOOP_HUB_PIN", hubclient.Pin(server.Certificate()))
	t.Setenv("CLOOP_HUB_CA_FILE", "")
	t.Setenv("CLOOP_TOKEN", token)
	t.Setenv("CLOOP_TOKEN_FILE", "")
	return seen, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
}

func send(w http.ResponseWriter, value any) {
	status, kind := http.StatusOK, "application/json"
	if problem, ok := value.(*hubv1.Problem); ok {
		status, kind = problem.Status, "application/problem+json"
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

// events answers with one Server-Sent Event per value, then ends.
func events[T any](values ...T) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for i, value := range values {
			encoded, _ := json.Marshal(value)
			_, _ = fmt.Fprintf(w, "id: %d\ndata: %s\n\n", i+1, encoded)
		}
	}
}

// unasked is what commands of cloop fleet say where no hub is named.
const unasked = "note: no hub was asked: name one with --hub or CLOOP_HUB, or log in with `cloop login`; --hub= says that there is none\n"

func noHub(t *testing.T) {
	t.Helper()
	for _, name := range []string{"CLOOP_HUB", "CLOOP_HUB_PIN", "CLOOP_HUB_CA_FILE", "CLOOP_TOKEN", "CLOOP_TOKEN_FILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
}

func writeFile(t *testing.T, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestErrorsSayWhatToDo(t *testing.T) {
	for name, test := range map[string]struct {
		args   []string
		stderr string
	}{
		"unknown verb": {
			[]string{"run", "lst"},
			"cloop: unknown command \"lst\" for \"cloop run\": did you mean \"list\" (see `cloop run --help`)\n",
		},
		"unknown flag": {
			[]string{"run", "list", "--pool", "x"},
			"cloop: unknown flag: --pool (see `cloop run list --help`)\n",
		},
		"missing argument": {
			[]string{"run", "show"},
			"cloop: RUN is missing (see `cloop run show --help`)\n",
		},
		"unknown format": {
			[]string{"run", "list", "-o", "xml"},
			"cloop: -o xml: no such format: use text, json or yaml\n",
		},
		"two formats on one stream": {
			[]string{"run", "list", "-o", "json,text"},
			"cloop: -o json,text: only one format can go to standard output: write the others to a file with -o text=FILE\n",
		},
		"no hub": {
			[]string{"run", "list"},
			"cloop: no hub: name one with --hub URL or CLOOP_HUB, or log in with `cloop login`\n",
		},
		"no token": {
			[]string{"--hub", "https://hub.example.com", "run", "list"},
			"cloop: no token for the hub: name a file with --token-file, or set CLOOP_TOKEN or CLOOP_TOKEN_FILE\n",
		},
		"no surface": {
			[]string{"fleet", "status"},
			"cloop: nothing to look at: name a hub with --hub, or log in at one with `cloop login`, a cluster with --cluster, or both\n",
		},
		"no maximum": {
			[]string{"executor", "pool", "create", "gpu"},
			"cloop: --max-runners is missing (see `cloop executor pool create --help`)\n",
		},
		"no command": {
			[]string{"run", "start", "--project", "app"},
			"cloop: no command: write one after -- (see `cloop run start --help`)\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			noHub(t)
			cloop(t, test.args...).want(t, 2, "", test.stderr)
		})
	}
}

// A database's URL may hold a password, which no command line and no message may.
func TestTheDatabasesPasswordIsOnNoCommandLine(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "url")
	if err := os.WriteFile(file, []byte("postgres://u:hunter2@127.0.0.1:1/x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		env  string
		args []string
		code int
		says string
	}{
		"a password":   {"", []string{"--database-url", "postgres://u:hunter2@127.0.0.1:1/x"}, 2, "--database-url-file"},
		"two":          {"", []string{"--database-url", "postgres://u@127.0.0.1:1/x", "--database-url-file", file}, 2, "two databases"},
		"none":         {"", []string{"--database-url", "mysql://u@h/x"}, 2, "the database URL is not valid"},
		"a file":       {"", []string{"--database-url-file", file}, 2, "is the server up"},
		"no file":      {"", []string{"--database-url-file", file + "x"}, 2, "read the database URL"},
		"environment":  {"postgres://u:hunter2@127.0.0.1:1/x", nil, 2, "is the server up"},
		"flag and env": {"mysql://u:hunter2@h/x", []string{"--database-url", "postgres://u@127.0.0.1:1/x"}, 2, "is the server up"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("CLOOP_DATABASE_URL", test.env)
			got := cloop(t, append([]string{"hub", "serve", "--addr", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "hub")}, test.args...)...)
			if got.code != test.code || !strings.Contains(got.stderr, test.says) || strings.Contains(got.stderr, "hunter2") {
				t.Errorf("exit code %d, %q does not say %q, or says too much", got.code, got.stderr, test.says)
			}
		})
	}
}

// What a newcomer types wrong is answered with what is right.
func TestUsageSaysWhatIsRight(t *testing.T) {
	noHub(t)
	for command, says := range map[string]string{
		"dev up extra":                                         "unexpected argument \"extra\"",
		"executor pool show a b":                               "unexpected argument \"b\"",
		"project bind app":                                     "POOL is missing",
		"project bind":                                         "PROJECT is missing",
		"executor pool create --max-runners 1":                 "NAME is missing",
		"executor pool create gpu --max-runners nine":          "--max-runners \"nine\": it takes a whole number",
		"executor pool create gpu --max-runners 9999999999999": "--max-runners \"9999999999999\": it takes a whole number",
		"executor pool update gpu --label a":                   "--label \"a\": it takes KEY=VALUE",
		"run wait r --timeout soon":                            "--timeout \"soon\": it takes a duration such as 90s, 5m or 2h",
		"run wait r --timeout -5s":                             "--timeout -5s: it takes nothing below 0",
		"run list --limit -3":                                  "--limit -3: it takes nothing below 0",
		"run logs r --offset -1":                               "--offset -1: it takes nothing below 0",
		"fleet reconcile --timeout -1s":                        "--timeout -1s: it takes nothing below 0",
		"run start --wait=maybe":                               "--wait \"maybe\": it takes true or false",
		"run logs r -o json":                                   "-o json: `cloop run logs` has no other output: leave -o away",
		"executor controller crd -o yaml":                      "-o yaml: `cloop executor controller crd` has no other output: leave -o away",
		"dev down -o json":                                     "has no other output",
		"help nope":                                            "unknown command \"nope\" for \"cloop\"",
		"help run lst":                                         "unknown command \"lst\" for \"cloop run\": did you mean \"list\"",
		"completion tcsh":                                      "unknown command \"tcsh\" for \"cloop completion\"",
		"hub pin a b":                                          "unexpected argument \"b\"",
	} {
		t.Run(command, func(t *testing.T) {
			got := cloop(t, strings.Fields(command)...)
			if got.code != 2 || got.stdout != "" || !strings.HasPrefix(got.stderr, "cloop: ") || !strings.Contains(got.stderr, says) || !strings.Contains(got.stderr, "--help`") {
				t.Errorf("exit code %d, stdout %q, stderr %q, want %q", got.code, got.stdout, got.stderr, says)
			}
		})
	}
}

func TestDevDownSaysThatThereWasNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nothing here")
	cloop(t, "dev", "down", "--dir", dir).want(t, 0, "", "there is no system in "+dir+", so nothing was done\n")
	cloop(t, "dev", "status", "--dir", dir).want(t, 1, "", "cloop: no system runs in "+dir+": start one with `cloop dev up --dir '"+dir+"'`\n")
}

func TestGroupWithoutVerbFailsAndListsVerbs(t *testing.T) {
	got := cloop(t, "executor", "pool")
	if got.code != 2 || !strings.Contains(got.stdout, "rotate-credential") {
		t.Errorf("exit code %d, stdout %s", got.code, got.stdout)
	}
}

func TestTokenComesFromFileInputOrEnvironment(t *testing.T) {
	answers := map[string]any{"GET /api/v1/projects": hubv1.ProjectList{}}
	for name, test := range map[string]struct {
		stdin string
		args  func(t *testing.T) []string
	}{
		"environment": {"", func(*testing.T) []string { return nil }},
		"file": {"", func(t *testing.T) []string {
			t.Setenv("CLOOP_TOKEN", "wrong")
			t.Setenv("CLOOP_TOKEN_FILE", writeFile(t, "wrong too"))
			return []string{"--token-file", writeFile(t, token+"\n")}
		}},
		"standard input": {token + "\n", func(t *testing.T) []string {
			t.Setenv("CLOOP_TOKEN", "")
			return []string{"--token-file", "-"}
		}},
		"file in the environment": {"", func(t *testing.T) []string {
			t.Setenv("CLOOP_TOKEN", "")
			t.Setenv("CLOOP_TOKEN_FILE", writeFile(t, token))
			return nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			stubHub(t, answers)
			args := append(test.args(t), "project", "list", "-o", "json")
			cloopReading(t, test.stdin, args...).want(t, 0, "{\n  \"items\": []\n}\n", "")
		})
	}
}

// Whichever of the two won in silence, somebody would act as somebody else.
func TestTwoTokensInTheEnvironmentAreRefused(t *testing.T) {
	seen := stubHub(t, nil)
	t.Setenv("CLOOP_TOKEN_FILE", writeFile(t, token))
	cloop(t, "project", "list").want(t, 2, "",
		"cloop: CLOOP_TOKEN and CLOOP_TOKEN_FILE are both set: unset one of them, or name the file with --token-file\n")
	if len(*seen) > 0 {
		t.Errorf("the hub was asked all the same: %q", *seen)
	}
}

// A flag that is given wins, an empty one too.
func TestFlagsBeatTheEnvironment(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		flag []string
		code int
		says string
	}{
		"pin":             {map[string]string{"CLOOP_HUB_PIN": "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}, []string{"--hub-pin", "$PIN"}, 0, ""},
		"no pin":          {nil, []string{"--hub-pin="}, 2, "hold to the hub's key with --hub-pin"},
		"no certificates": {map[string]string{"CLOOP_HUB_CA_FILE": "/nowhere"}, []string{"--hub-ca-file="}, 0, ""},
		"no hub":          {nil, []string{"--hub="}, 2, "no hub: name one"},
		"no token":        {nil, []string{"--token-file="}, 2, "no token for the hub"},
		"another hub":     {map[string]string{"CLOOP_HUB": "https://127.0.0.1:1"}, []string{"--hub", "$HUB"}, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			stubHub(t, map[string]any{"GET /api/v1/projects": hubv1.ProjectList{}})
			args := []string{"project", "list", "-o", "json"}
			for _, flag := range test.flag {
				args = append(args, strings.NewReplacer("$PIN", os.Getenv("CLOOP_HUB_PIN"), "$HUB", os.Getenv("CLOOP_HUB")).Replace(flag))
			}
			for name, value := range test.env {
				t.Setenv(name, value)
			}
			if got := cloop(t, args...); got.code != test.code || !strings.Contains(got.stderr, test.says) {
				t.Errorf("exit code %d, stderr %q, want %d and %q", got.code, got.stderr, test.code, test.says)
			}
		})
	}
}

func TestHubPinOfTwoHubsIsRefused(t *testing.T) {
	noHub(t)
	cloop(t, "hub", "pin", "https://a.example.com", "--hub", "https://b.example.com").want(t, 2, "",
		"cloop: two hubs: give the URL as the argument or with --hub (see `cloop hub pin --help`)\n")
}

func TestUnknownTokenIsNoAnswer(t *testing.T) {
	stubHub(t, nil)
	t.Setenv("CLOOP_TOKEN", "another")
	cloop(t, "project", "list").want(t, 2, "",
		"cloop: list projects: the token is not known: log in again with `cloop login`, or name another token with --token-file or CLOOP_TOKEN; "+
			"where every admin token is lost, `cloop hub reset-admin` makes one on the hub's machine\n")
}

func TestUnreachableHubIsNoAnswer(t *testing.T) {
	noHub(t)
	t.Setenv("CLOOP_TOKEN", token)
	got := cloop(t, "--hub", "https://127.0.0.1:1", "--verbose", "run", "list")
	if got.code != 2 || !strings.Contains(got.stderr, "check that --hub names the hub") || !strings.Contains(got.stderr, "syscall.Errno: connection refused") {
		t.Errorf("exit code %d, stderr %s", got.code, got.stderr)
	}
}

func TestWrongPinIsNoAnswer(t *testing.T) {
	stubHub(t, nil)
	t.Setenv("CLOOP_HUB_PIN", "sha256:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
	got := cloop(t, "run", "list")
	if got.code != 2 || !strings.Contains(got.stderr, "compare --hub-pin with what the hub logged") {
		t.Errorf("exit code %d, stderr %s", got.code, got.stderr)
	}
}
