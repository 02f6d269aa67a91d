package access_test

import (
	"slices"
	"strings"
	"testing"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
)

func TestRights(t *testing.T) {
	developer := []hubv1.Permission{hubv1.PermissionProjectRead, hubv1.PermissionRunStart, hubv1.PermissionExecutorRead}
	of := []access.Grant{
		{Role: "developer", Project: "app", Permissions: developer},
		{Role: "viewer", Permissions: []hubv1.Permission{hubv1.PermissionProjectRead}},
	}
	rights := access.Of(of, nil)
	for _, c := range []struct {
		permission hubv1.Permission
		project    string
		want       bool
	}{
		{hubv1.PermissionRunStart, "app", true},
		{hubv1.PermissionRunStart, "other", false},
		{hubv1.PermissionRunStart, "", false},
		{hubv1.PermissionProjectRead, "other", true},
		{hubv1.PermissionProjectRead, "", true},
		// What is not about projects does not come with a grant for one.
		{hubv1.PermissionExecutorRead, "app", false},
		{hubv1.PermissionExecutorRead, "", false},
		{hubv1.PermissionAccessManage, "", false},
	} {
		if got := rights.May(c.permission, c.project); got != c.want {
			t.Errorf("%s in %q: %v", c.permission, c.project, got)
		}
	}
	if !rights.MayAnywhere(hubv1.PermissionRunStart) || rights.MayAnywhere(hubv1.PermissionExecutorRead) {
		t.Error("what may be somewhere is mistaken")
	}
	if ids, all := rights.Projects(hubv1.PermissionRunStart); all || !slices.Equal(ids, []string{"app"}) {
		t.Errorf("runs start in %v, everywhere %v", ids, all)
	}
	if _, all := rights.Projects(hubv1.PermissionProjectRead); !all {
		t.Error("projects are not read everywhere")
	}
	scoped := access.Of(of, []hubv1.Permission{hubv1.PermissionRunStart, hubv1.PermissionAuditRead})
	if !scoped.May(hubv1.PermissionRunStart, "app") || scoped.May(hubv1.PermissionProjectRead, "app") || scoped.May(hubv1.PermissionAuditRead, "") {
		t.Error("scopes add, or do not take away")
	}
	names := access.Names("eve", []string{"ml"}, of, "app")
	if !slices.Equal(names, []string{"group:ml", "role:developer", "role:viewer", "user:eve"}) {
		t.Errorf("names are %v", names)
	}
	if names := access.Names("eve", nil, of, "other"); !slices.Equal(names, []string{"role:viewer", "user:eve"}) {
		t.Errorf("names in another project are %v", names)
	}
}

func TestBuiltInRolesHaveKnownPermissions(t *testing.T) {
	for _, role := range access.BuiltIn() {
		if faulty := access.CheckPermissions("x", role.Permissions); len(faulty) > 0 || !role.BuiltIn || role.Description == "" {
			t.Errorf("%s: %v", role.Name, faulty)
		}
	}
	admin, _ := access.FindBuiltIn(access.RoleAdmin)
	if len(admin.Permissions) != len(access.Permissions()) {
		t.Error("the role of administrators lacks something")
	}
}

func TestACeilingNamesEachFieldAndItsBound(t *testing.T) {
	ceiling := hubv1.Ceiling{
		Names: []string{"ml-*", "gpu"}, MaxRunners: 5, Labels: []string{"gpu=*", "example.com/*=x"},
		Audience: []string{"group:ml-*"}, Owners: []string{"group:ml-*", "user:alice"},
	}
	good := hubv1.PoolDefinition{
		MaxRunners: 5, Labels: map[string]string{"gpu": "true", "example.com/a": "x"}, Audience: []string{"group:ml-a"}, Owner: "user:alice",
	}
	for _, c := range []struct {
		name, want string
		change     func(*hubv1.PoolDefinition)
	}{
		{"ml-one", "", func(*hubv1.PoolDefinition) {}},
		{"gpu", "", func(d *hubv1.PoolDefinition) { d.Labels = nil }},
		{"gpux", "name: gpux matches none of ml-*, gpu", func(*hubv1.PoolDefinition) {}},
		{"gpu", "maxRunners: 6 is above 5", func(d *hubv1.PoolDefinition) { d.MaxRunners = 6 }},
		{"gpu", "labels.a: a=b matches none of gpu=*, example.com/*=x", func(d *hubv1.PoolDefinition) { d.Labels = map[string]string{"a": "b"} }},
		{"gpu", "audience: anyone is more than group:ml-*", func(d *hubv1.PoolDefinition) { d.Audience = nil }},
		{"gpu", "audience[1]: role:admin matches none of group:ml-*", func(d *hubv1.PoolDefinition) { d.Audience = []string{"group:ml-a", "role:admin"} }},
		{"gpu", "owner: no owner matches none of group:ml-*, user:alice", func(d *hubv1.PoolDefinition) { d.Owner = "" }},
		{"x", "name maxRunners owner", func(d *hubv1.PoolDefinition) { d.MaxRunners, d.Owner = 9, "user:eve" }},
	} {
		definition := good
		c.change(&definition)
		var fields, texts []string
		for _, field := range access.Exceeds(ceiling, c.name, definition) {
			fields, texts = append(fields, field.Location), append(texts, field.Location+": "+field.Message)
		}
		if got := strings.Join(texts, "; "); got != c.want && strings.Join(fields, " ") != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if exceeded := access.Exceeds(hubv1.Ceiling{}, c.name, definition); len(exceeded) > 0 {
			t.Errorf("no ceiling, and yet %v", exceeded)
		}
	}
	if faulty := access.CheckCeiling("c", hubv1.Ceiling{Names: []string{"["}, Owners: []string{strings.Repeat("x", 500)}, MaxRunners: -1}); len(faulty) != 3 {
		t.Errorf("found %v", faulty)
	}
}
