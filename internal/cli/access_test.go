package cli_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

func TestUsersGroupsAndRoles(t *testing.T) {
	eve := hubv1.User{Name: "eve", CreatedAt: time.Now(), Groups: []string{"ml"}, Roles: []hubv1.RoleBinding{
		{Role: "developer", Subject: "group:ml", Project: "app"}, {Role: "viewer", Subject: "user:eve"},
	}}
	ml := hubv1.Group{Name: "ml", CreatedAt: time.Now(), Members: []string{"eve"}, Roles: eve.Roles[:1]}
	role := hubv1.Role{Name: "cordoner", Permissions: []hubv1.Permission{"executor.manage", "executor.read"}}
	calls := stubHub(t, map[string]any{
		"POST /api/v1/users": hubv1.User{Name: "eve"}, "GET /api/v1/users": hubv1.UserList{Items: []hubv1.User{eve}}, "GET /api/v1/users/eve": eve,
		"DELETE /api/v1/users/eve": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }),
		"GET /api/v1/pools": hubv1.PoolList{Items: []hubv1.Pool{
			{Name: "gpu", PoolDefinition: hubv1.PoolDefinition{Audience: []string{"group:ml", "user:eve"}}},
			{Name: "ml", PoolDefinition: hubv1.PoolDefinition{Owner: "user:eve"}}, {Name: "other", PoolDefinition: hubv1.PoolDefinition{Audience: []string{"user:steve"}}},
		}},
		"POST /api/v1/groups": ml, "PUT /api/v1/groups/ml/members/eve": ml,
		"PUT /api/v1/roles/cordoner": role, "POST /api/v1/roles/developer/bindings": role, "DELETE /api/v1/roles/developer/bindings": role,
	})
	if got := cloop(t, "hub", "user", "create", "eve"); got.code != 0 || !strings.Contains(got.stdout, "cloop hub role give ROLE user:eve") {
		t.Errorf("created as %+v", got)
	}
	cloop(t, "hub", "user", "list").want(t, 0, ""+
		"NAME   GROUPS   ROLES                  AGE\n"+
		"eve    ml       developer@app,viewer   0s\n", "")
	if got := cloop(t, "hub", "user", "show", "eve"); !strings.Contains(got.stdout, "developer of group:ml, for project app") {
		t.Errorf("shown as\n%s", got.stdout)
	}
	cloop(t, "hub", "user", "remove", "eve").want(t, 0, "Removed user eve and its tokens.\n"+
		"Audience or owner of gpu, ml still list user:eve, which counts for whoever is made under that name: take it out with `cloop executor pool update`, or in Git.\n", "")
	for _, args := range [][]string{
		{"hub", "group", "create", "ml"}, {"hub", "group", "add", "ml", "eve"},
		{"hub", "role", "define", "cordoner", "--permission", "executor.read,executor.manage"},
		{"hub", "role", "give", "developer", "group:ml", "--project", "app"}, {"hub", "role", "take", "developer", "group:ml", "--project", "app"},
	} {
		if got := cloop(t, args...); got.code != 0 {
			t.Errorf("%v: %+v", args, got)
		}
	}
	want := []string{
		`POST /api/v1/groups {"name":"ml"}`, "PUT /api/v1/groups/ml/members/eve",
		`PUT /api/v1/roles/cordoner {"permissions":["executor.read","executor.manage"]}`,
		`POST /api/v1/roles/developer/bindings {"subject":"group:ml","project":"app"}`,
		"DELETE /api/v1/roles/developer/bindings?project=app&subject=group%3Aml",
	}
	if got := (*calls)[len(*calls)-len(want):]; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s", strings.Join(got, "\n"))
	}
	for _, args := range [][]string{{"hub", "role", "give", "viewer", "eve"}, {"hub", "role", "define", "x"}, {"hub", "user", "frob"}} {
		if got := cloop(t, args...); got.code != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

const made = "cloop_usr1_made"

func TestATokenIsShownOnceOrWritten(t *testing.T) {
	calls := stubHub(t, map[string]any{"POST /api/v1/tokens": hubv1.Token{ID: "token_1", Name: "ci", User: "eve", Secret: made}})
	if got := cloop(t, "hub", "token", "create", "ci", "--user", "eve", "--scope", "executor.read,executor.manage", "--pool", "eu-*", "--max-runners", "3"); got.code != 0 ||
		strings.Count(got.stdout, made) != 1 {
		t.Errorf("made %+v", got)
	}
	want := `POST /api/v1/tokens {"name":"ci","user":"eve","scopes":["executor.read","executor.manage"],"ceiling":{"names":["eu-*"],"maxRunners":3}}`
	if got := (*calls)[0]; got != want {
		t.Errorf("asked %s", got)
	}
	file := filepath.Join(t.TempDir(), "token")
	got := cloop(t, "hub", "token", "create", "ci", "--secret-file", file, "-o", "json")
	text, err := os.ReadFile(file)
	if err != nil || string(text) != made+"\n" || strings.Contains(got.stdout+got.stderr, made) {
		t.Errorf("wrote %q (%v) and said %+v", text, err, got)
	}
	if again := cloop(t, "hub", "token", "create", "ci", "--secret-file", file); again.code != 2 || len(*calls) != 2 {
		t.Errorf("a file that is there: %+v", again)
	}
}

func TestTokenListSaysWhatEachGives(t *testing.T) {
	past := time.Now().Add(-time.Hour)
	stubHub(t, map[string]any{"GET /api/v1/tokens": hubv1.TokenList{Items: []hubv1.Token{
		{ID: "token_1", User: "eve", Name: "ci", CreatedAt: past, Scopes: []hubv1.Permission{"executor.read"}, Ceiling: &hubv1.Ceiling{Names: []string{"eu-*"}, MaxRunners: 3}},
		{ID: "token_2", User: "eve", Name: "old", CreatedAt: past, RevokedAt: &past, LastUsedAt: &past},
	}}})
	cloop(t, "hub", "token", "list", "--user", "eve", "--over").want(t, 0, ""+
		"ID        USER   NAME   STATE     SCOPES          CEILING                 USED    AGE\n"+
		"token_1   eve    ci     live      executor.read   pools eu-*; at most 3   never   1h\n"+
		"token_2   eve    old    revoked   all             -                       1h      1h\n", "")
}

func TestLoginKeepsHubAndTokenForWhatFollows(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	calls := stubHub(t, map[string]any{
		"GET /api/v1/self":  hubv1.Identity{User: "eve", Permissions: []hubv1.Permission{"run.start"}, Token: hubv1.Token{ID: "token_1", Name: "laptop"}},
		"GET /api/v1/pools": hubv1.PoolList{},
	})
	hub, pin := os.Getenv("CLOOP_HUB"), os.Getenv("CLOOP_HUB_PIN")
	for _, name := range []string{"CLOOP_HUB", "CLOOP_HUB_PIN", "CLOOP_TOKEN"} {
		t.Setenv(name, "")
	}
	if got := cloop(t, "executor", "pool", "list"); got.code != 2 || !strings.Contains(got.stderr, "cloop login") {
		t.Errorf("before the login: %+v", got)
	}
	if got := cloopReading(t, "wrong\n", "login", "--hub", hub, "--hub-pin", pin); got.code != 2 || len(*calls) != 0 {
		t.Errorf("a wrong token: %+v", got)
	}
	got := cloopReading(t, token+"\n", "login", "--hub", hub, "--hub-pin", pin)
	if got.code != 0 || !strings.Contains(got.stdout, "as user:eve") || strings.Contains(got.stdout+got.stderr, token) {
		t.Errorf("the login: %+v", got)
	}
	file := filepath.Join(os.Getenv("XDG_CONFIG_HOME"), "cloop", "login.json")
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the login is kept as %v (%v)", info, err)
	}
	if got := cloop(t, "hub", "whoami"); got.code != 0 || !strings.Contains(got.stdout, "run.start") {
		t.Errorf("after the login: %+v", got)
	}
	cloop(t, "executor", "pool", "list", "--hub", hub).wantCode(t, 0)
	// Another hub gets neither token nor pin of this one.
	if got := cloop(t, "executor", "pool", "list", "--hub", "https://127.0.0.1:1"); got.code != 2 || !strings.Contains(got.stderr, "no token") {
		t.Errorf("another hub: %+v", got)
	}
	if err := os.WriteFile(file, []byte(`{"token":"`+token+`"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := cloop(t, "hub", "whoami"); got.code != 2 || !strings.Contains(got.stderr, "login") || strings.Contains(got.stderr, token) {
		t.Errorf("a broken login: %+v", got)
	}
	cloop(t, "logout").wantCode(t, 0)
	if _, err := os.Stat(file); !os.IsNotExist(err) {
		t.Errorf("the login is there: %v", err)
	}
}

// An all-clear that leaves out the hub that somebody is logged in at would be false.
func TestFleetCommandsAskTheHubOfTheLogin(t *testing.T) {
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	calls := stubHub(t, map[string]any{
		"GET /api/v1/self":                   hubv1.Identity{User: "eve"},
		"GET /api/v1/pools":                  hubv1.PoolList{},
		"GET /api/v1/syncs":                  hubv1.SyncList{Items: []hubv1.Sync{hubSync(hubv1.SyncReady)}},
		"POST /api/v1/syncs/fleet/reconcile": hubSync(hubv1.SyncPending),
	})
	hub, pin := os.Getenv("CLOOP_HUB"), os.Getenv("CLOOP_HUB_PIN")
	noHub(t)
	cloopReading(t, token+"\n", "login", "--hub", hub, "--hub-pin", pin).wantCode(t, 0)
	(&stubCluster{syncs: []v1alpha1.PoolSync{poolSync(metav1.ConditionTrue, "applied")}}).serve(t)
	for _, command := range []struct{ name, asks string }{
		{"status", "GET /api/v1/syncs"}, {"reconcile", "POST /api/v1/syncs/fleet/reconcile"}, {"drift", "GET /api/v1/pools"}, {"import", "GET /api/v1/pools"},
	} {
		t.Run(command.name, func(t *testing.T) {
			dir := t.TempDir()
			gitIn(t, dir, "init", "--quiet")
			gitIn(t, dir, "commit", "--quiet", "--allow-empty", "--message", "Begin")
			t.Chdir(dir)
			for _, of := range []struct {
				arguments []string
				asked     bool
			}{
				{nil, true},
				{[]string{"--hub="}, false},
				{[]string{"--hub", "https://127.0.0.1:1"}, false},
			} {
				*calls = nil
				got := cloop(t, append([]string{"fleet", command.name}, of.arguments...)...)
				asked := slices.ContainsFunc(*calls, func(call string) bool { return strings.HasPrefix(call, command.asks) })
				if asked != of.asked || strings.Contains(got.stderr, "no hub was asked") {
					t.Errorf("%v: asked %v: %+v", of.arguments, *calls, got)
				}
			}
			cloop(t, "logout").wantCode(t, 0)
			if got := cloop(t, "fleet", command.name); !strings.HasPrefix(got.stderr, unasked) {
				t.Errorf("without a login: %+v", got)
			}
			cloopReading(t, token+"\n", "login", "--hub", hub, "--hub-pin", pin).wantCode(t, 0)
		})
	}
	t.Chdir(t.TempDir())
	if got := cloop(t, "fleet", "init"); !strings.Contains(got.stdout, "logged in at, "+hub) || !strings.Contains(read(t, "pools/base/agents.yaml"), "hubCAPin: "+pin+"\n") {
		t.Errorf("a new repository: %+v", got)
	}
}

func (r result) wantCode(t *testing.T, code int) {
	t.Helper()
	if r.code != code {
		t.Errorf("%+v", r)
	}
}

func TestAuditIsListedAndExported(t *testing.T) {
	row := hubv1.AuditRecord{ID: 7, At: time.Unix(1_800_000_000, 0), Actor: "user:eve", Action: "executor_pool.cordon", Pool: "gpu", Object: "pool_1", State: "active", Detail: "up\x1b[31mgrade"}
	calls := stubHub(t, map[string]any{
		"GET /api/v1/audit": hubv1.AuditPage{Items: []hubv1.AuditRecord{row}},
		"GET /api/v1/audit/export": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-ndjson")
			_, _ = io.WriteString(w, "{\"id\":7}\n{\"id\":8}\n")
		}),
	})
	got := cloop(t, "hub", "audit", "--action", "executor_pool.", "--cursor", "3", "--limit", "5")
	if got.code != 0 || !strings.Contains(got.stdout, "user:eve   executor_pool.cordon   gpu") || strings.Contains(got.stdout, "\x1b") {
		t.Errorf("listed as %+v", got)
	}
	if want := "GET /api/v1/audit?action=executor_pool.&cursor=3&limit=5"; (*calls)[0] != want {
		t.Errorf("asked %s", (*calls)[0])
	}
	cloop(t, "hub", "audit", "--since", "2026-01-01T00:00:00Z", "-o", "jsonl").want(t, 0, "{\"id\":7}\n{\"id\":8}\n", "")
	if want := "GET /api/v1/audit/export?since=2026-01-01T00%3A00%3A00Z"; (*calls)[1] != want {
		t.Errorf("asked %s", (*calls)[1])
	}
	for _, args := range [][]string{{"hub", "audit", "--since", "soon"}, {"hub", "audit", "-o", "jsonl,json=x"}} {
		if got := cloop(t, args...); got.code != 2 {
			t.Errorf("%v: %+v", args, got)
		}
	}
}
