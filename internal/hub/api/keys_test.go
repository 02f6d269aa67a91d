package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/api"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/postgrestest"
	"cloop.dev/cloop/schemas"
)

func TestMain(m *testing.M) { postgrestest.Main(m) }

// onBoth runs a test with a hub on each database that it can be kept in.
func onBoth(t *testing.T, change func(*api.Options), test func(*testing.T, *hub)) {
	t.Helper()
	validator, err := schemas.NewValidator()
	check(t, err)
	t.Run("sqlite", func(t *testing.T) { test(t, newHubOn(t, "", validator, change)) })
	t.Run("postgres", func(t *testing.T) {
		server := postgrestest.Shared(t)
		name := server.NewDatabase(t, "")
		t.Cleanup(func() { check(t, server.Drop(name)) })
		test(t, newHubOn(t, server.URL(name), validator, change))
	})
}

// as is the hub for another user.
func (h *hub) as(token string) *hub {
	out := *h
	out.tokens = maps.Clone(h.tokens)
	out.tokens["/api/"] = token
	delete(out.tokens, "/api/v1")
	return &out
}

// user makes a user with a role and returns its token.
func (h *hub) user(name, role string) string {
	h.t.Helper()
	var token hubv1.Token
	h.must("POST", "/api/v1/users", hubv1.CreateUserRequest{Name: name}, nil)
	h.must("POST", "/api/v1/roles/"+role+"/bindings", hubv1.BindingRequest{Subject: "user:" + name}, nil)
	h.must("POST", "/api/v1/tokens", hubv1.CreateTokenRequest{Name: "t", User: name}, &token)
	return token.Secret
}

// observed is all that the hub's administrator sees, with what the audit trail says;
// credentials are those of the pools whose names begin with one of prefixes.
func (h *hub) observed(prefixes ...string) string {
	h.t.Helper()
	var out strings.Builder
	read := func(path string) []byte {
		answer := h.send(request{method: http.MethodGet, target: path})
		if answer.Code != http.StatusOK {
			h.t.Fatalf("GET %s is answered %d: %s", path, answer.Code, answer.Body)
		}
		return answer.Body.Bytes()
	}
	pools := read("/api/v1/pools?revoked=true")
	fmt.Fprintf(&out, "%s\n", pools)
	for _, path := range []string{"projects", "runs?limit=1000", "users", "groups", "roles", "tokens?all=true&over=true", "syncs", "audit?limit=100"} {
		fmt.Fprintf(&out, "%s\n", read("/api/v1/"+path))
	}
	var list hubv1.PoolList
	check(h.t, json.Unmarshal(pools, &list))
	for _, pool := range list.Items {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(pool.Name, prefix) }) {
			continue
		}
		fmt.Fprintf(&out, "%s\n", read("/api/v1/pools/"+pool.Name+"/credentials?revoked=true"))
	}
	return out.String()
}

// change is a request that changes something, as it is known by a key.
type change struct {
	method, path string
	body         any
	header       map[string]string
}

// keyed is what the test of one operation needs.
type keyed struct {
	change
	// undo is what somebody else does then; nil: nothing can.
	undo func()
	// other is the operation with another path, query or body.
	other change
	// removed says that what was made is gone after undo, and a repetition says so.
	removed bool
	// unseen says that nobody sees what was done.
	unseen bool
}

func (h *hub) carryOut(c change, key string) *httptest.ResponseRecorder {
	h.t.Helper()
	header := map[string]string{}
	maps.Copy(header, c.header)
	if key != "" {
		header["Idempotency-Key"] = key
	}
	in := request{method: c.method, target: c.path, header: header}
	if c.body != nil {
		in.body, in.contentType = encoded(c.body), "application/json"
	}
	answer := h.send(in)
	h.judge(in, answer)
	return answer
}

// done carries out what must succeed.
func (h *hub) done(method, path string, body any) func() {
	return func() {
		h.t.Helper()
		if answer := h.carryOut(change{method: method, path: path, body: body, header: map[string]string{"If-Match": "*"}}, ""); answer.Code/100 != 2 {
			h.t.Fatalf("%s %s is answered %d: %s", method, path, answer.Code, answer.Body)
		}
	}
}

// keyedOperations: operation → its test, with the name for what it makes.
var keyedOperations = map[string]func(h *hub, name string) keyed{
	"create-user": func(h *hub, name string) keyed {
		return keyed{change: change{method: "POST", path: "/api/v1/users", body: hubv1.CreateUserRequest{Name: name}}, removed: true,
			undo:  h.done("DELETE", "/api/v1/users/"+name, nil),
			other: change{method: "POST", path: "/api/v1/users", body: hubv1.CreateUserRequest{Name: name + "x"}}}
	},
	"remove-user": func(h *hub, name string) keyed {
		h.done("POST", "/api/v1/users", hubv1.CreateUserRequest{Name: name})()
		return keyed{change: change{method: "DELETE", path: "/api/v1/users/" + name},
			undo:  h.done("POST", "/api/v1/users", hubv1.CreateUserRequest{Name: name}),
			other: change{method: "DELETE", path: "/api/v1/users/" + name + "?force=true"}}
	},
	"create-group": func(h *hub, name string) keyed {
		return keyed{change: change{method: "POST", path: "/api/v1/groups", body: hubv1.CreateGroupRequest{Name: name}}, removed: true,
			undo:  h.done("DELETE", "/api/v1/groups/"+name, nil),
			other: change{method: "POST", path: "/api/v1/groups", body: hubv1.CreateGroupRequest{Name: name + "x"}}}
	},
	"remove-group": func(h *hub, name string) keyed {
		h.done("POST", "/api/v1/groups", hubv1.CreateGroupRequest{Name: name})()
		h.done("POST", "/api/v1/groups", hubv1.CreateGroupRequest{Name: name + "x"})()
		return keyed{change: change{method: "DELETE", path: "/api/v1/groups/" + name},
			undo:  h.done("POST", "/api/v1/groups", hubv1.CreateGroupRequest{Name: name}),
			other: change{method: "DELETE", path: "/api/v1/groups/" + name + "x"}}
	},
	"add-member": func(h *hub, name string) keyed {
		path := h.group(name)
		return keyed{change: change{method: "PUT", path: path + "/members/" + name}, undo: h.done("DELETE", path+"/members/"+name, nil),
			other: change{method: "PUT", path: path + "/members/admin"}}
	},
	"remove-member": func(h *hub, name string) keyed {
		path := h.group(name)
		add := h.done("PUT", path+"/members/"+name, nil)
		add()
		return keyed{change: change{method: "DELETE", path: path + "/members/" + name}, undo: add, other: change{method: "DELETE", path: path + "/members/admin"}}
	},
	"put-role": func(h *hub, name string) keyed {
		reads, starts := hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionRunRead}}, hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionRunStart}}
		return keyed{change: change{method: "PUT", path: "/api/v1/roles/" + name, body: reads}, undo: h.done("PUT", "/api/v1/roles/"+name, starts),
			other: change{method: "PUT", path: "/api/v1/roles/" + name, body: starts}}
	},
	"remove-role": func(h *hub, name string) keyed {
		put := h.done("PUT", "/api/v1/roles/"+name, hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionRunRead}})
		put()
		return keyed{change: change{method: "DELETE", path: "/api/v1/roles/" + name}, undo: put, other: change{method: "DELETE", path: "/api/v1/roles/" + name + "x"}}
	},
	"give-role": func(h *hub, name string) keyed {
		h.group(name)
		bindings := "/api/v1/roles/viewer/bindings"
		return keyed{change: change{method: "POST", path: bindings, body: hubv1.BindingRequest{Subject: "user:" + name}},
			undo:  h.done("DELETE", bindings+"?subject=user:"+name, nil),
			other: change{method: "POST", path: bindings, body: hubv1.BindingRequest{Subject: "group:" + name}}}
	},
	"take-role": func(h *hub, name string) keyed {
		h.group(name)
		bindings := "/api/v1/roles/viewer/bindings"
		give := h.done("POST", bindings, hubv1.BindingRequest{Subject: "user:" + name})
		give()
		return keyed{change: change{method: "DELETE", path: bindings + "?subject=user:" + name}, undo: give,
			other: change{method: "DELETE", path: bindings + "?subject=user:" + name + "&project=app"}}
	},
	"create-token": func(h *hub, name string) keyed {
		h.group(name)
		k := keyed{change: change{method: "POST", path: "/api/v1/tokens", body: hubv1.CreateTokenRequest{Name: name, User: name}}, removed: true,
			other: change{method: "POST", path: "/api/v1/tokens", body: hubv1.CreateTokenRequest{Name: name}}}
		k.undo = func() { h.done("DELETE", "/api/v1/tokens/"+h.tokenOf(name), nil)() }
		return k
	},
	"revoke-token": func(h *hub, name string) keyed {
		h.group(name)
		h.done("POST", "/api/v1/tokens", hubv1.CreateTokenRequest{Name: name, User: name})()
		return keyed{change: change{method: "DELETE", path: "/api/v1/tokens/" + h.tokenOf(name)}, other: change{method: "DELETE", path: "/api/v1/tokens/" + h.tokenOf("admin")}}
	},
	"create-pool": func(h *hub, name string) keyed {
		body := hubv1.CreatePoolRequest{Name: name, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}}
		other := body
		other.MaxRunners = 2
		return keyed{change: change{method: "POST", path: "/api/v1/pools", body: body}, undo: h.done("POST", "/api/v1/pools/"+name+"/revoke", nil), removed: true,
			other: change{method: "POST", path: "/api/v1/pools", body: other}}
	},
	"update-pool": func(h *hub, name string) keyed {
		path := h.pool(name)
		patch := func(most int32) hubv1.UpdatePoolRequest { return hubv1.UpdatePoolRequest{MaxRunners: &most} }
		return keyed{change: change{method: "PATCH", path: path, body: patch(2), header: map[string]string{"If-Match": `"1"`}}, undo: h.done("PATCH", path, patch(3)),
			other: change{method: "PATCH", path: path, body: patch(4), header: map[string]string{"If-Match": "*"}}}
	},
	"cordon-pool": func(h *hub, name string) keyed {
		path := h.pool(name) + "/cordon"
		return keyed{change: change{method: "POST", path: path, body: hubv1.CordonRequest{Reason: "upgrade"}}, undo: h.done("DELETE", path, nil),
			other: change{method: "POST", path: path, body: hubv1.CordonRequest{Reason: "downgrade"}}}
	},
	"uncordon-pool": func(h *hub, name string) keyed {
		path := h.pool(name) + "/cordon"
		cordon := h.done("POST", path, hubv1.CordonRequest{Reason: "upgrade"})
		cordon()
		return keyed{change: change{method: "DELETE", path: path}, undo: cordon, other: change{method: "DELETE", path: path + "?override=why"}}
	},
	"revoke-pool": func(h *hub, name string) keyed {
		return keyed{change: change{method: "POST", path: h.pool(name) + "/revoke"},
			undo:  h.done("POST", "/api/v1/pools", hubv1.CreatePoolRequest{Name: name, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}}),
			other: change{method: "POST", path: "/api/v1/pools/gpu/revoke"}}
	},
	"create-credential": func(h *hub, name string) keyed {
		path := h.pool(name) + "/credentials"
		return keyed{change: change{method: "POST", path: path}, removed: true, undo: func() { h.done("POST", path+"/"+h.newest(name)+"/revoke", nil)() },
			other: change{method: "POST", path: "/api/v1/pools/gpu/credentials"}}
	},
	"revoke-credential": func(h *hub, name string) keyed {
		path := h.pool(name) + "/credentials/" + h.newest(name)
		return keyed{change: change{method: "POST", path: path + "/revoke"}, other: change{method: "POST", path: "/api/v1/pools/gpu/credentials/" + h.newest("gpu") + "/revoke"}}
	},
	"finish-rotation": func(h *hub, name string) keyed {
		path := h.pool(name) + "/credentials"
		rotate := h.done("POST", path, nil)
		rotate()
		return keyed{change: change{method: "POST", path: path + "/finish", body: hubv1.FinishRotationRequest{Force: true}}, undo: rotate,
			other: change{method: "POST", path: path + "/finish", body: hubv1.FinishRotationRequest{}}}
	},
	"define-pool": func(h *hub, name string) keyed {
		path := "/api/v1/pools/" + name + "/definition"
		return keyed{change: change{method: "PUT", path: path, body: definition(name, 1)}, undo: h.done("PUT", path, definition(name, 2)),
			other: change{method: "PUT", path: path, body: definition(name, 3)}}
	},
	"undefine-pool": func(h *hub, name string) keyed {
		path := "/api/v1/pools/" + name + "/definition"
		define := h.done("PUT", path, definition(name, 1))
		define()
		return keyed{change: change{method: "DELETE", path: path + "?owner=" + owner(name)}, undo: define, other: change{method: "DELETE", path: path + "?owner=" + owner(name+"x")}}
	},
	"release-pool": func(h *hub, name string) keyed {
		define := h.done("PUT", "/api/v1/pools/"+name+"/definition", definition(name, 1))
		define()
		path := "/api/v1/pools/" + name + "/release"
		return keyed{change: change{method: "POST", path: path}, undo: define, other: change{method: "POST", path: path + "?owner=" + owner(name)}}
	},
	"end-pool-override": func(h *hub, name string) keyed {
		h.done("PUT", "/api/v1/pools/"+name+"/definition", definition(name, 1))()
		most := int32(7)
		override := h.done("PATCH", "/api/v1/pools/"+name+"?override=why", hubv1.UpdatePoolRequest{MaxRunners: &most})
		override()
		return keyed{change: change{method: "DELETE", path: "/api/v1/pools/" + name + "/override"}, undo: override, other: change{method: "DELETE", path: "/api/v1/pools/gpu/override"}}
	},
	"create-project": func(h *hub, name string) keyed {
		body := hubv1.CreateProjectRequest{Name: name, Remote: "https://git.example.com/app.git"}
		other := body
		other.DefaultRef = "dev"
		return keyed{change: change{method: "POST", path: "/api/v1/projects", body: body}, other: change{method: "POST", path: "/api/v1/projects", body: other}}
	},
	"bind-project": func(h *hub, name string) keyed {
		one, two := h.twoPools(name)
		path := "/api/v1/projects/" + name + "/executor"
		return keyed{change: change{method: "POST", path: path, body: hubv1.BindRequest{ExecutorID: one}}, undo: h.done("POST", path, hubv1.BindRequest{ExecutorID: two}),
			other: change{method: "POST", path: path, body: hubv1.BindRequest{ExecutorID: two}}}
	},
	"bind-project-executor": func(h *hub, name string) keyed {
		one, two := h.twoPools(name)
		path := "/api/projects/" + name + "/executor"
		return keyed{change: change{method: "POST", path: path, body: hubv1.ExecutorRequest{ExecutorID: one}},
			undo:  h.done("POST", "/api/v1/projects/"+name+"/executor", hubv1.BindRequest{ExecutorID: two}),
			other: change{method: "POST", path: path, body: hubv1.ExecutorRequest{ExecutorID: two}}}
	},
	"start-run": func(*hub, string) keyed {
		return keyed{change: change{method: "POST", path: "/api/v1/runs", body: hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}},
			other: change{method: "POST", path: "/api/v1/runs", body: hubv1.StartRunRequest{Project: "app", Command: []string{"false"}}}}
	},
	"cancel-run": func(h *hub, _ string) keyed {
		return keyed{change: change{method: "POST", path: "/api/v1/runs/" + h.start() + "/cancel"}, other: change{method: "POST", path: "/api/v1/runs/" + h.start() + "/cancel"}}
	},
	"reconcile-sync": func(h *hub, name string) keyed {
		check(h.t, h.store.KeepSyncs(context.Background(), []hubv1.Sync{{Name: "fleet"}, {Name: name}}))
		return keyed{change: change{method: "POST", path: "/api/v1/syncs/" + name + "/reconcile"}, unseen: true, other: change{method: "POST", path: "/api/v1/syncs/fleet/reconcile"}}
	},
	"approve-prune": func(h *hub, name string) keyed {
		check(h.t, h.store.KeepSyncs(context.Background(), []hubv1.Sync{{Name: name}}))
		waits := func(revision string) {
			for _, waits := range []*hubv1.PruneWaits{nil, {Revision: revision, Pools: []string{"gpu"}}} {
				check(h.t, h.store.SaveSync(context.Background(), hubv1.Sync{Name: name, State: hubv1.SyncReady, PruneWaits: waits}))
			}
		}
		one, two := strings.Repeat("1", 40), strings.Repeat("2", 40)
		waits(one)
		path := "/api/v1/syncs/" + name + "/approve-prune"
		return keyed{change: change{method: "POST", path: path, body: hubv1.ApprovePruneRequest{Revision: one}}, undo: func() { waits(two) },
			other: change{method: "POST", path: path, body: hubv1.ApprovePruneRequest{Revision: two}}}
	},
}

func owner(name string) string { return hubv1.ClusterOwner("c1", "cloop-fleet", name) }

func definition(name string, most int32) hubv1.DefinePoolRequest {
	return hubv1.DefinePoolRequest{Definition: hubv1.PoolDefinition{MaxRunners: most}, Provenance: hubv1.Provenance{Sync: owner(name)}}
}

// pool makes a pool and returns its path.
func (h *hub) pool(name string) string {
	h.done("POST", "/api/v1/pools", hubv1.CreatePoolRequest{Name: name, PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}})()
	return "/api/v1/pools/" + name
}

// group makes a group and a user of the name and returns the group's path.
func (h *hub) group(name string) string {
	h.done("POST", "/api/v1/groups", hubv1.CreateGroupRequest{Name: name})()
	h.done("POST", "/api/v1/users", hubv1.CreateUserRequest{Name: name})()
	return "/api/v1/groups/" + name
}

// twoPools makes a project and two pools that it can be bound to.
func (h *hub) twoPools(name string) (one, two string) {
	h.done("POST", "/api/v1/projects", hubv1.CreateProjectRequest{Name: name, Remote: "https://git.example.com/app.git"})()
	var pools [2]hubv1.CreatePoolResponse
	for i := range pools {
		h.must("POST", "/api/v1/pools", hubv1.CreatePoolRequest{Name: fmt.Sprintf("%s-%d", name, i), PoolDefinition: hubv1.PoolDefinition{MaxRunners: 1}}, &pools[i])
	}
	return "pool:" + pools[0].Pool.ID, "pool:" + pools[1].Pool.ID
}

func (h *hub) start() string {
	var run hubv1.Run
	h.must("POST", "/api/v1/runs", hubv1.StartRunRequest{Project: "app", Command: []string{"true"}}, &run)
	return run.ID
}

// newest is the id of a pool's newest credential.
func (h *hub) newest(pool string) string {
	var list hubv1.CredentialList
	h.must("GET", "/api/v1/pools/"+pool+"/credentials", nil, &list)
	return list.Items[0].ID
}

func (h *hub) tokenOf(user string) string {
	var list hubv1.TokenList
	h.must("GET", "/api/v1/tokens?"+url.Values{"user": {user}}.Encode(), nil, &list)
	return list.Items[0].ID
}

// changing are the operations by which people may change something.
func changing(t *testing.T, h *hub) []operation {
	t.Helper()
	return slices.DeleteFunc(operations(t, h.handler), func(op operation) bool {
		return op.method == http.MethodGet || !strings.HasPrefix(op.path, "/api/")
	})
}

func TestEveryChangeOfPeopleTakesAKey(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, h *hub) {
		seen := map[string]bool{}
		for i, op := range changing(t, h) {
			seen[op.id] = true
			t.Run(op.id, func(t *testing.T) {
				if !slices.Contains(op.headers, "Idempotency-Key") {
					t.Error("its description has no Idempotency-Key")
				}
				prepare := keyedOperations[op.id]
				if prepare == nil {
					t.Fatal("add it to keyedOperations: what is it when it is repeated?")
				}
				mine := *h
				mine.t = t
				isDoneOnce(t, &mine, prepare, fmt.Sprintf("thing-%d", i))
			})
		}
		for id := range keyedOperations {
			if !seen[id] {
				t.Errorf("there is no operation %s", id)
			}
		}
	})
}

// isDoneOnce has an operation done by one user, undone by another and repeated.
func isDoneOnce(t *testing.T, h *hub, prepare func(*hub, string) keyed, name string) {
	t.Helper()
	actor := "actor-of-" + name
	by := h.as(h.user(actor, "admin"))
	k := prepare(h, name)
	before := h.observed(name, "gpu")
	first := by.carryOut(k.change, "key")
	if first.Code/100 != 2 {
		t.Fatalf("it is answered %d: %s", first.Code, first.Body)
	}
	after := h.observed(name, "gpu")
	if !k.unseen && after == before {
		t.Fatal("it changes nothing")
	}
	// repeated expects what a repetition is answered with, and that all is as after.
	repeated := func(what string, c change, good func(*httptest.ResponseRecorder) bool) {
		t.Helper()
		if answer := by.carryOut(c, "key"); !good(answer) {
			t.Errorf("%s is answered %d: %s", what, answer.Code, answer.Body)
		}
		if now := h.observed(name, "gpu"); now != after {
			t.Errorf("%s changes something: it was\n%s\nand is\n%s", what, after, now)
		}
	}
	likeFirst := func(answer *httptest.ResponseRecorder) bool { return answer.Code == first.Code }
	refused := func(code hubv1.Code, word string) func(*httptest.ResponseRecorder) bool {
		return func(answer *httptest.ResponseRecorder) bool {
			var p hubv1.Problem
			return json.Unmarshal(answer.Body.Bytes(), &p) == nil && p.Code == code && strings.Contains(p.Detail, word)
		}
	}
	repeated("a repetition", k.change, likeFirst)
	if k.undo != nil {
		k.undo()
		after = h.observed(name, "gpu")
		good := likeFirst
		if k.removed {
			good = refused(hubv1.CodeConflict, "removed since")
		}
		repeated("a repetition of what was undone", k.change, good)
	}
	repeated("another request with the key", k.other, refused(hubv1.CodeConflict, "another request"))
	repeated("another operation with the key", change{method: "POST", path: "/api/v1/tokens", body: hubv1.CreateTokenRequest{Name: "another"}},
		refused(hubv1.CodeConflict, "another request"))
	// Whose right was taken away learns nothing more by the key.
	h.done("DELETE", "/api/v1/roles/admin/bindings?subject=user:"+actor, nil)()
	after = h.observed(name, "gpu")
	repeated("a repetition by one who may not any more", k.change, func(answer *httptest.ResponseRecorder) bool {
		return answer.Code == http.StatusForbidden || answer.Code == http.StatusNotFound
	})
}

// A request that was refused may be tried again with its key, and one that looks
// elsewhere first is recognised although nothing is found there.
func TestAKeyIsKeptWithTheChange(t *testing.T) {
	broken := &brokenSources{}
	onBoth(t, func(o *api.Options) { o.Sources, broken.err = broken, nil }, func(t *testing.T, h *hub) {
		path, one, two := h.pool("kept"), int32(2), int32(3)
		patch := func(etag string, most *int32) change {
			return change{method: "PATCH", path: path, body: hubv1.UpdatePoolRequest{MaxRunners: most}, header: map[string]string{"If-Match": etag}}
		}
		for _, step := range []struct {
			key  string
			what change
			want int
		}{
			{"k", patch(`"9"`, &one), http.StatusPreconditionFailed},
			{"k", patch(`"1"`, &one), http.StatusOK},
			{"k", patch(`"1"`, &one), http.StatusOK},
			{"", patch(`"1"`, &one), http.StatusPreconditionFailed},
			{"k", patch("*", &two), http.StatusConflict},
			{strings.Repeat("é", 128), patch("*", &two), http.StatusOK},
			{strings.Repeat("é", 129), patch("*", &two), http.StatusUnprocessableEntity},
			{"\xff", patch("*", &two), http.StatusUnprocessableEntity},
		} {
			if answer := h.carryOut(step.what, step.key); answer.Code != step.want {
				t.Errorf("with the key %q it is answered %d: %s", step.key, answer.Code, answer.Body)
			}
		}
		executor, _ := h.twoPools("far")
		bind := change{method: "POST", path: "/api/v1/projects/far/executor", body: hubv1.BindRequest{ExecutorID: executor}}
		for _, step := range []struct {
			err  error
			key  string
			want int
		}{
			{problem.New(hubv1.CodeUnavailable, "there is no repository"), "b", http.StatusServiceUnavailable},
			{nil, "b", http.StatusOK},
			{problem.New(hubv1.CodeUnavailable, "there is no repository"), "b", http.StatusOK},
			{problem.New(hubv1.CodeUnavailable, "there is no repository"), "", http.StatusServiceUnavailable},
		} {
			broken.err = step.err
			in := request{method: bind.method, target: bind.path, body: encoded(bind.body), contentType: "application/json", header: map[string]string{"Idempotency-Key": step.key}}
			if answer := h.send(in); answer.Code != step.want {
				t.Errorf("with %v a binding is answered %d: %s", step.err, answer.Code, answer.Body)
			}
		}
	})
}

// brokenSources reaches no repository, or fails.
type brokenSources struct{ err error }

func (b *brokenSources) Read(context.Context, string, string) (store.Source, error) {
	return store.Source{Unknown: "no repository is reached"}, b.err
}
