package cli_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/cli"
)

// evil is what whoever can write to a hub, a cluster or a repository may put
// into a text: a title, a forged line, the other reading direction.
const evil = "x\x1b]0;owned\a\u009b2J\nforged: yes\r\u202e\u2028y"

func evilPool() hubv1.Pool {
	p := agents()
	p.ID, p.Name, p.Owner, p.Harness = evil, evil, evil, evil
	p.Labels, p.Audience = map[string]string{evil: evil}, []string{evil}
	p.Cordon.Reason, p.Cordon.By = evil, evil
	p.Source.Repository, p.Source.Path, p.Source.Revision = evil, evil, evil
	p.Controllers[0].Instance, p.Controllers[0].Build = evil, evil
	return p
}

func evilRun() hubv1.Run {
	return settledRun(hubv1.RunState(evil), func(r *hubv1.Run) {
		r.ID, r.Project, r.Reason, r.Signal, r.Commit, r.Runner, r.StartedBy, r.PoolID = evil, evil, evil, evil, evil, evil, evil, evil
		r.Command = []string{evil, evil}
	})
}

func evilCredential() hubv1.Credential {
	return hubv1.Credential{ID: evil, Controllers: []hubv1.ControllerContact{{Instance: evil, Build: evil, CredentialID: evil}}}
}

// evilHub answers everything that a command asks for with evil texts.
func evilHub(t *testing.T) {
	t.Helper()
	project := hubv1.Project{ID: evil, Name: evil, Remote: evil, DefaultRef: evil, ExecutorID: evil}
	sync := hubSync(hubv1.SyncReady)
	sync.Name, sync.Message, sync.LastAppliedRevision, sync.Path = evil, evil, evil, "hub"
	terminal := evilRun()
	terminal.State = hubv1.RunFailed
	stubHub(t, map[string]any{
		"GET /api/v1/pools":                          hubv1.PoolList{Items: []hubv1.Pool{evilPool()}},
		"POST /api/v1/pools":                         hubv1.CreatePoolResponse{Pool: evilPool(), Credential: hubv1.Credential{ID: evil, Secret: "cloop_pool1_ok"}},
		"GET /api/v1/pools/p":                        evilPool(),
		"PATCH /api/v1/pools/p":                      evilPool(),
		"POST /api/v1/pools/p/cordon":                evilPool(),
		"POST /api/v1/pools/p/revoke":                evilPool(),
		"POST /api/v1/pools/p/release":               evilPool(),
		"POST /api/v1/pools/p/credentials":           hubv1.Credential{ID: evil, Secret: "cloop_pool1_ok"},
		"GET /api/v1/pools/" + evil:                  evilPool(),
		"GET /api/v1/pools/" + evil + "/runners":     map[string]any{"items": []hubv1.PoolRunner{{ID: evil, State: hubv1.RunnerState(evil), RunID: evil}}},
		"GET /api/v1/hub":                            hubv1.HubInfo{Build: evil},
		"GET /api/v1/pools/p/credentials":            hubv1.CredentialList{Items: []hubv1.Credential{evilCredential()}},
		"POST /api/v1/pools/p/credentials/finish":    hubv1.FinishRotationResponse{Kept: evilCredential(), Revoked: []hubv1.Credential{evilCredential()}},
		"POST /api/v1/pools/p/credentials/c/revoke":  evilCredential(),
		"GET /api/v1/pools/" + evil + "/credentials": hubv1.CredentialList{Items: []hubv1.Credential{evilCredential()}},
		"PATCH /api/v1/pools/" + evil:                evilPool(),
		"GET /api/v1/projects":                       hubv1.ProjectList{Items: []hubv1.Project{project}},
		"GET /api/v1/projects/p":                     project,
		"POST /api/v1/projects":                      project,
		"POST /api/v1/projects/p/executor":           project,
		"GET /api/v1/runs":                           hubv1.RunList{Items: []hubv1.Run{evilRun()}},
		"GET /api/v1/runs/r":                         evilRun(),
		"POST /api/v1/runs":                          evilRun(),
		"POST /api/v1/runs/r/cancel":                 evilRun(),
		"GET /api/v1/runs/r/watch":                   events(terminal),
		"GET /api/v1/runs/" + evil + "/watch":        events(terminal),
		"GET /api/v1/runs/r/logs":                    http.HandlerFunc(writeEvil),
		"GET /api/v1/runs/" + evil + "/logs":         http.HandlerFunc(writeEvil),
		"GET /api/v1/syncs":                          hubv1.SyncList{Items: []hubv1.Sync{sync}},
		"POST /api/v1/syncs/" + evil + "/reconcile":  sync,
		"GET /api/v1/runs/refused":                   &hubv1.Problem{Status: http.StatusConflict, Code: hubv1.CodeConflict, Detail: evil, Remedy: evil},
	})
}

func writeEvil(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/octet-stream")
	_, _ = fmt.Fprint(w, "\x1b[32mgreen\x1b[0m \x1b[2J\x1b]52;c;AAAA\a\n")
}

func evilCluster(t *testing.T) {
	t.Helper()
	sync := poolSync(metav1.ConditionTrue, evil)
	sync.Name, sync.Namespace, sync.Status.LastAppliedRevision = evil, evil, evil
	sync.Status.Conditions[0].Reason = evil
	pool := liveGPU(3)
	pool.Name, pool.Namespace, pool.Spec.HubURL, pool.Spec.HubPool = evil, evil, evil, evil
	pool.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: evil, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:maxRunners":{}}}`)}}
	(&stubCluster{syncs: []v1alpha1.PoolSync{sync}, pools: []v1alpha1.ExecutorPool{pool}}).serve(t)
}

// Nothing that others wrote moves the cursor, forges a line or turns a text
// round, whatever command shows it and in whatever format.
func TestTextsOfOthersAreOnlyShown(t *testing.T) {
	undo := cli.SetTerminal(func(io.Writer) bool { return true })
	t.Cleanup(undo)
	commands := [][]string{
		{"executor", "pool", "list"},
		{"executor", "pool", "show", "p"},
		{"executor", "pool", "create", "p", "--max-runners", "1"},
		{"executor", "pool", "update", "p", "--max-runners", "1"},
		{"executor", "pool", "cordon", "p", "--reason", "r"},
		{"executor", "pool", "revoke", "p"},
		{"executor", "pool", "release", "p"},
		{"executor", "pool", "rotate-credential", "p"},
		{"executor", "pool", "rotate-credential", "p", "--finish"},
		{"executor", "pool", "credentials", "p"},
		{"executor", "pool", "revoke-credential", "p", "c"},
		{"project", "list"},
		{"project", "show", "p"},
		{"project", "create", "p", "--remote", "https://git.example.com/p.git"},
		{"project", "bind", "p", "p"},
		{"run", "list"},
		{"run", "show", "r"},
		{"run", "show", "refused"},
		{"run", "show", "refused", "--verbose"},
		{"run", "cancel", "r"},
		{"run", "wait", "r"},
		{"run", "start", "--project", "p", "--", "true"},
		{"run", "start", "--project", "p", "--wait", "--", "true"},
		{"run", "logs", "r"},
		{"run", "logs", "r", "--follow"},
		{"fleet", "status", "--cluster", "eu"},
		{"fleet", "reconcile", "--cluster", "eu"},
		{"fleet", "drift", "--cluster", "eu"},
		{"fleet", "check"},
		{evil},
		{"run", evil},
		{"run", "list", "--" + evil},
		{"run", "list", "-o", evil},
		{"fleet", "check", evil},
	}
	dir := fleetRepository(t)
	edit(t, filepath.Join(dir, "pools/gpu.yaml"), strings.Replace(executorPoolYAML, "minRunners: 0", "minRunners: \"x\\e[31m\\u202e\"", 1))
	evilHub(t)
	evilCluster(t)
	for _, command := range commands {
		for _, format := range []string{"text", "json", "yaml"} {
			t.Run(strings.ToValidUTF8(strings.Join(command, " "), "?")+" "+format, func(t *testing.T) {
				args := append([]string{"-o", format}, command...)
				got := cloop(t, args...)
				if got.stdout+got.stderr == "" {
					t.Fatal("it printed nothing")
				}
				if strings.Contains(got.stderr, "write the result") {
					t.Errorf("it could not be shown: %s", got.stderr)
				}
				log := strings.Contains(strings.Join(command, " "), "logs") || strings.Contains(strings.Join(command, " "), "--wait")
				checkShown(t, "stdout", got.stdout, log)
				checkShown(t, "stderr", got.stderr, log)
				if format != "text" && !log && got.stdout != "" {
					var value any
					if err := yaml.Unmarshal([]byte(got.stdout), &value); err != nil {
						t.Errorf("stdout is no %s: %v\n%s", format, err, got.stdout)
					}
				}
			})
		}
	}
}

func checkShown(t *testing.T, stream, text string, colours bool) {
	t.Helper()
	if colours {
		text = strings.NewReplacer("\x1b[32m", "", "\x1b[0m", "").Replace(text)
	}
	for i, r := range text {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028') {
			t.Errorf("%s has %q at %d: %q", stream, r, i, text[max(0, i-40):min(len(text), i+40)])
			return
		}
	}
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "forged: yes") {
			t.Errorf("%s has a forged line:\n%s", stream, text)
		}
	}
}

func TestALogIsRawInAPipeAndTameOnATerminal(t *testing.T) {
	evilHub(t)
	raw := "\x1b[32mgreen\x1b[0m \x1b[2J\x1b]52;c;AAAA\a\n"
	cloop(t, "run", "logs", "r").want(t, 0, raw, "")
	undo := cli.SetTerminal(func(io.Writer) bool { return true })
	t.Cleanup(undo)
	cloop(t, "run", "logs", "r").want(t, 0, "\x1b[32mgreen\x1b[0m \\x1b[2J\\x1b]52;c;AAAA\\x07\n", "")
}

// A credential goes into a command that somebody pastes into a shell.
func TestACredentialThatWouldEndItsCommandIsNotShown(t *testing.T) {
	for _, secret := range []string{"", "a\nEOF\nrm -rf ~", "a b", "$(id)", "a\x1b[31m"} {
		stubHub(t, map[string]any{
			"POST /api/v1/pools":               hubv1.CreatePoolResponse{Pool: gpu(), Credential: hubv1.Credential{ID: "c", Secret: secret}},
			"GET /api/v1/pools/p":              hubv1.Pool{ID: "p", Name: "p"},
			"POST /api/v1/pools/p/credentials": hubv1.Credential{ID: "c", Secret: secret},
		})
		for _, args := range [][]string{{"create", "p", "--max-runners", "1"}, {"rotate-credential", "p"}} {
			file := filepath.Join(t.TempDir(), "credential")
			for _, more := range [][]string{nil, {"--credential-file", file}, {"-o", "json"}} {
				got := cloop(t, append(append([]string{"executor", "pool"}, args...), more...)...)
				if got.code != 2 || got.stdout != "" || !strings.Contains(got.stderr, "is not shown") {
					t.Errorf("%q, %v: exit code %d, stdout %q, stderr %q", secret, more, got.code, got.stdout, got.stderr)
				}
				if _, err := os.Stat(file); err == nil {
					t.Errorf("%q: the file was left", secret)
				}
			}
		}
	}
}

// Whoever adds a command must not have to think of this: everything is printed
// through say, and nothing else of the package writes for people.
func TestEverythingIsPrintedThroughSay(t *testing.T) {
	allowed := map[string]bool{"say.go": true, "reference.go": true}
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || allowed[name] {
			continue
		}
		fileSet := gotoken.NewFileSet()
		file, err := parser.ParseFile(fileSet, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(node ast.Node) bool {
			call, ok := node.(*ast.CallExpr)
			if !ok {
				return true
			}
			function, ok := call.Fun.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			of, _ := function.X.(*ast.Ident)
			switch {
			case of != nil && of.Name == "fmt" && (strings.HasPrefix(function.Sel.Name, "Fprint") || strings.HasPrefix(function.Sel.Name, "Print")),
				of != nil && of.Name == "io" && function.Sel.Name == "WriteString":
				t.Errorf("%s prints through %s.%s: use say", fileSet.Position(call.Pos()), of.Name, function.Sel.Name)
			}
			return true
		})
	}
}
