package hub_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
)

// attempt is one request of somebody who manages access and may do little else.
type attempt struct{ path, body string }

// bounds: operation → what the clerk must be refused, and what it may do. Each
// operation that changes access is here.
func bounds(tokens map[string]string) map[string]struct{ refused, allowed []attempt } {
	return map[string]struct{ refused, allowed []attempt }{
		"POST /api/v1/users": {
			refused: []attempt{{"users", `{"name":"later"}`}}, // the audience of a pool lists it
			allowed: []attempt{{"users", `{"name":"new"}`}},
		},
		"DELETE /api/v1/users/{user}": {
			refused: []attempt{{"users/bob", ""}, {"users/ann", ""}, {"users/dan", ""}},
			allowed: []attempt{{"users/tim", ""}},
		},
		"POST /api/v1/groups": {allowed: []attempt{{"groups", `{"name":"new"}`}}},
		"DELETE /api/v1/groups/{group}": {
			refused: []attempt{{"groups/admins", ""}, {"groups/nobodys", ""}, {"groups/mixed", ""}},
			allowed: []attempt{{"groups/new", ""}},
		},
		"PUT /api/v1/groups/{group}/members/{user}": {
			refused: []attempt{{"groups/admins/members/clerk", ""}, {"groups/nobodys/members/tim", ""}, {"groups/guests/members/clerk", ""}},
			allowed: []attempt{{"groups/new/members/tim", ""}, {"groups/mixed/members/clerk", ""}},
		},
		"DELETE /api/v1/groups/{group}/members/{user}": {
			refused: []attempt{{"groups/admins/members/ann", ""}, {"groups/mixed/members/bob", ""}},
			allowed: []attempt{{"groups/new/members/tim", ""}},
		},
		"PUT /api/v1/roles/{role}": {
			refused: []attempt{
				{"roles/mine", `{"permissions":["executor.manage"]}`},
				{"roles/clerk", `{"permissions":["access.manage","access.read","project.read","run.start"]}`},
				{"roles/ops", `{"permissions":["project.read"]}`},
				{"roles/reader", `{"permissions":["access.read"]}`}, // bob has it, who has more
			},
			allowed: []attempt{{"roles/tiny", `{"permissions":["project.read"]}`}, {"roles/tiny", `{"permissions":["access.read"]}`}},
		},
		"DELETE /api/v1/roles/{role}": {
			refused: []attempt{{"roles/ops", ""}, {"roles/reader", ""}, {"roles/shared", ""}},
			allowed: []attempt{{"roles/tiny", ""}},
		},
		"POST /api/v1/roles/{role}/bindings": {
			refused: []attempt{
				{"roles/admin/bindings", `{"subject":"user:clerk"}`}, {"roles/developer/bindings", `{"subject":"user:clerk","project":"app"}`},
				{"roles/ops/bindings", `{"subject":"group:mixed"}`}, {"roles/placed/bindings", `{"subject":"user:clerk"}`},
			},
			allowed: []attempt{{"roles/tiny/bindings", `{"subject":"user:tim"}`}},
		},
		"DELETE /api/v1/roles/{role}/bindings": {
			refused: []attempt{
				{"roles/admin/bindings?subject=user:bob", ""}, {"roles/reader/bindings?subject=user:bob", ""},
				{"roles/shared/bindings?subject=group:mixed", ""}, {"roles/admin/bindings?subject=group:nobodys", ""},
			},
			allowed: []attempt{{"roles/tiny/bindings?subject=user:tim", ""}},
		},
		"POST /api/v1/tokens": {
			refused: []attempt{
				{"tokens", `{"name":"x","user":"bob"}`}, {"tokens", `{"name":"x","user":"bob","scopes":["project.read"]}`},
				{"tokens", `{"name":"x","user":"ann","scopes":["project.read"]}`}, {"tokens", `{"name":"x","user":"tim","scopes":["executor.manage"]}`},
				{"tokens", `{"name":"x","scopes":["executor.manage"]}`}, {"tokens", `{"name":"x","user":"guest"}`},
				{"tokens", `{"name":"x","user":"bob","scopes":["executor.read"],"ceiling":{"maxRunners":1}}`},
			},
			allowed: []attempt{{"tokens", `{"name":"x","user":"tim"}`}, {"tokens", `{"name":"x","scopes":["project.read"]}`}},
		},
		"DELETE /api/v1/tokens/{token}": {
			refused: []attempt{{"tokens/" + tokens["bob"], ""}, {"tokens/" + tokens["ann"], ""}, {"tokens/" + tokens["dan"], ""}},
			allowed: []attempt{{"tokens/" + tokens["tim"], ""}},
		},
	}
}

// Somebody who manages access gives nobody, itself included, more than it has,
// and takes nothing from anybody who has more: by no operation that there is.
func TestWhoManagesAccessIsBoundedByWhatTheyHave(t *testing.T) {
	r := serve(t, nil)
	clerk, tokens := r.office()
	table := bounds(tokens)
	api := func(operation string, a attempt) (int, []byte) {
		method, _, _ := strings.Cut(operation, " ")
		status, _, answer := r.ask(method, "/api/v1/"+a.path, clerk, a.body)
		return status, answer
	}
	before := r.accessNow()
	for operation, c := range table {
		for _, a := range c.refused {
			status, answer := api(operation, a)
			var p hubv1.Problem
			if err := json.Unmarshal(answer, &p); err != nil || status != http.StatusForbidden || p.Remedy == "" {
				t.Errorf("%s %s %s: %d %s", operation, a.path, a.body, status, answer)
			}
		}
	}
	if now := r.accessNow(); now != before {
		t.Errorf("what was refused changed something:\n%s\nis now\n%s", before, now)
	}
	for _, operation := range []string{
		"POST /api/v1/users", "POST /api/v1/groups", "PUT /api/v1/groups/{group}/members/{user}", "DELETE /api/v1/groups/{group}/members/{user}",
		"PUT /api/v1/roles/{role}", "POST /api/v1/roles/{role}/bindings", "POST /api/v1/tokens", "DELETE /api/v1/roles/{role}/bindings",
		"DELETE /api/v1/roles/{role}", "DELETE /api/v1/tokens/{token}", "DELETE /api/v1/groups/{group}", "DELETE /api/v1/users/{user}",
	} {
		for _, a := range table[operation].allowed {
			if status, answer := api(operation, a); status/100 != 2 {
				t.Errorf("%s %s %s: %d %s", operation, a.path, a.body, status, answer)
			}
		}
	}
	for _, o := range r.operations() {
		changes := o.permission == string(hubv1.PermissionAccessManage) || o.permission == "self" && o.method != http.MethodGet
		if c := table[o.method+" "+o.path]; changes && len(c.allowed) == 0 {
			t.Errorf("nothing is tried of %s %s", o.method, o.path)
		}
	}
}

// office makes those whom the attempts are about, and returns the clerk's token
// and the ids of others': user → id.
func (r *running) office() (clerk string, tokens map[string]string) {
	t := r.t
	pool, _ := r.pool("gpu", 1)
	r.project("app", pool)
	must(t)(r.admin.UpdatePool(r.ctx(), "gpu", "", hubv1.UpdatePoolRequest{Audience: &[]string{"group:guests", "role:placed", "user:later"}}))
	for role, permissions := range map[string][]hubv1.Permission{
		"clerk":  {hubv1.PermissionAccessManage, hubv1.PermissionAccessRead, hubv1.PermissionProjectRead},
		"ops":    {hubv1.PermissionExecutorManage, hubv1.PermissionProjectRead},
		"reader": {hubv1.PermissionProjectRead}, "shared": {hubv1.PermissionProjectRead}, "placed": {hubv1.PermissionProjectRead},
	} {
		must(t)(r.admin.PutRole(r.ctx(), role, hubv1.RoleRequest{Permissions: permissions}))
	}
	for group, members := range map[string][]string{"admins": {"ann"}, "nobodys": nil, "mixed": {"tim", "bob"}, "guests": {"guest"}} {
		must(t)(r.admin.CreateGroup(r.ctx(), hubv1.CreateGroupRequest{Name: group}))
		for _, member := range members {
			must(t)(r.admin.AddMember(r.ctx(), group, r.plain(member)))
		}
	}
	r.plain("clerk")
	r.plain("dan")
	for role, subjects := range map[string][]string{
		access.RoleAdmin: {"user:bob", "group:admins", "group:nobodys"}, "clerk": {"user:clerk"}, "ops": {"user:dan"}, "reader": {"user:bob"}, "shared": {"group:mixed"},
	} {
		for _, subject := range subjects {
			must(t)(r.admin.GiveRole(r.ctx(), role, hubv1.BindingRequest{Subject: subject}))
		}
	}
	tokens = map[string]string{}
	for _, user := range []string{"bob", "ann", "dan", "tim"} {
		tokens[user] = r.token(r.admin, hubv1.CreateTokenRequest{Name: "t", User: user}).ID
	}
	return r.token(r.admin, hubv1.CreateTokenRequest{Name: "t", User: "clerk"}).Secret, tokens
}

// accessNow is who may do what, and who may prove to be whom.
func (r *running) accessNow() string {
	var all strings.Builder
	for _, path := range []string{"users", "groups", "roles", "tokens?all=true"} {
		_, _, answer := r.ask(http.MethodGet, "/api/v1/"+path, r.firstToken(), "")
		// When a token was last used changes by itself.
		var list struct{ Items []map[string]any }
		check(r.t, json.Unmarshal(answer, &list))
		for _, item := range list.Items {
			delete(item, "lastUsedAt")
		}
		text, err := json.Marshal(list)
		check(r.t, err)
		all.Write(append(text, '\n'))
	}
	return all.String()
}

// A token that gives little is no way to be rid of those of the same user that
// give more.
func TestABoundedTokenRevokesNoneThatGivesMore(t *testing.T) {
	r := serve(t, nil)
	whole := r.token(r.admin, hubv1.CreateTokenRequest{Name: "whole"})
	reads := hubv1.CreateTokenRequest{Name: "reads", Scopes: []hubv1.Permission{hubv1.PermissionExecutorRead}}
	small, other := r.token(r.admin, reads), r.token(r.admin, reads)
	manager := r.token(r.admin, hubv1.CreateTokenRequest{Name: "manages",
		Scopes: []hubv1.Permission{hubv1.PermissionAccessManage, hubv1.PermissionAccessRead, hubv1.PermissionExecutorRead}})
	reads.Ceiling = &hubv1.Ceiling{Names: []string{"eu-*"}}
	bounded := r.token(r.admin, reads)
	for _, c := range []struct {
		of   hubv1.Token
		sees int
	}{{small, 1}, {bounded, 1}, {manager, 6}, {whole, 6}} {
		status, _, answer := r.ask(http.MethodGet, "/api/v1/tokens", c.of.Secret, "")
		var list hubv1.TokenList
		if err := json.Unmarshal(answer, &list); err != nil || len(list.Items) != c.sees || c.sees == 1 && list.Items[0].ID != c.of.ID {
			t.Errorf("%s sees %d %s", c.of.Name, status, answer)
		}
	}
	for _, c := range []struct {
		bearer string
		of     hubv1.Token
		want   int
	}{
		{small.Secret, whole, http.StatusForbidden},
		{bounded.Secret, whole, http.StatusForbidden},
		{bounded.Secret, small, http.StatusForbidden},
		{small.Secret, other, http.StatusForbidden},
		{manager.Secret, whole, http.StatusForbidden},
		{manager.Secret, other, http.StatusNoContent},
		{small.Secret, small, http.StatusNoContent},
		{bounded.Secret, bounded, http.StatusNoContent},
		{whole.Secret, whole, http.StatusNoContent},
	} {
		if status, _, answer := r.ask(http.MethodDelete, "/api/v1/tokens/"+c.of.ID, c.bearer, ""); status != c.want {
			t.Errorf("revoke %s: %d %s, want %d", c.of.Name, status, answer, c.want)
		}
	}
}

// Nobody locks everybody out of access by an oversight, by whatever operation; by
// force it can be done.
func TestTheLastWhoManagesAccessStays(t *testing.T) {
	r := serve(t, nil)
	last := hubv1.BindingRequest{Subject: "user:admin"}
	must(t)(r.admin.PutRole(r.ctx(), "keeper", hubv1.RoleRequest{Permissions: everything()}))
	must(t)(r.admin.CreateGroup(r.ctx(), hubv1.CreateGroupRequest{Name: "keepers"}))
	must(t)(r.admin.AddMember(r.ctx(), "keepers", "admin"))
	must(t)(r.admin.GiveRole(r.ctx(), "keeper", hubv1.BindingRequest{Subject: "group:keepers"}))
	must(t)(r.admin.TakeRole(r.ctx(), access.RoleAdmin, last)) // there is another way yet
	refused := map[string]func() error{
		"remove the user":   func() error { return r.admin.RemoveUser(r.ctx(), "admin") },
		"remove the group":  func() error { return r.admin.RemoveGroup(r.ctx(), "keepers") },
		"remove the member": func() error { return errOf(r.admin.RemoveMember(r.ctx(), "keepers", "admin")) },
		"remove the role":   func() error { return r.admin.RemoveRole(r.ctx(), "keeper") },
		"take the role": func() error {
			return errOf(r.admin.TakeRole(r.ctx(), "keeper", hubv1.BindingRequest{Subject: "group:keepers"}))
		},
		"change the role": func() error {
			return errOf(r.admin.PutRole(r.ctx(), "keeper", hubv1.RoleRequest{Permissions: []hubv1.Permission{hubv1.PermissionAccessRead}}))
		},
	}
	for what, act := range refused {
		if p := wantCode(t, act(), hubv1.CodeConflict); !strings.Contains(p.Detail, "access.manage") || !strings.Contains(p.Remedy, "cloop hub role give") {
			t.Errorf("%s: %+v", what, p)
		}
	}
	if _, err := r.admin.GetUser(r.ctx(), "admin"); err != nil {
		t.Errorf("what was refused was done: %v", err)
	}
	check(t, r.admin.ForceRemoveUser(r.ctx(), "admin"))
	_, err := r.admin.GetUser(r.ctx(), "admin")
	wantCode(t, err, hubv1.CodeUnauthenticated)
}

func everything() (all []hubv1.Permission) {
	for _, about := range access.Permissions() {
		all = append(all, about.Permission)
	}
	return all
}
