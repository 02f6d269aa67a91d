package access

import (
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
)

// About is what a permission allows, in words.
type About struct {
	Permission hubv1.Permission
	Allows     string
	// PerProject says that it can be given for one project alone.
	PerProject bool
}

// Permissions are all that there are, in the order in which people read them.
func Permissions() []About {
	return []About{
		{hubv1.PermissionExecutorRead, "see pools and their runners", false},
		{hubv1.PermissionExecutorManage, "make, change, cordon and revoke pools, approve that Git removes many, mint controller credentials, bind projects to pools", false},
		{hubv1.PermissionProjectRead, "see a project", true},
		{hubv1.PermissionProjectManage, "make and change projects", true},
		{hubv1.PermissionRunRead, "see a project's runs and their logs", true},
		{hubv1.PermissionRunStart, "start runs of a project", true},
		{hubv1.PermissionRunCancel, "cancel runs of a project", true},
		{hubv1.PermissionHubRead, "see how the hub and its Git syncs stand", false},
		{hubv1.PermissionHubManage, "make a Git sync run now", false},
		{hubv1.PermissionAccessRead, "see users, groups, roles and everybody's tokens", false},
		{hubv1.PermissionAccessManage, "make and change users, groups and roles, give roles, make and revoke everybody's tokens", false},
		{hubv1.PermissionAuditRead, "read the audit trail", false},
	}
}

// Known says whether there is such a permission.
func Known(p hubv1.Permission) bool {
	return slices.ContainsFunc(Permissions(), func(a About) bool { return a.Permission == p })
}

// PerProject says whether a permission can be given for one project alone.
func PerProject(p hubv1.Permission) bool {
	return slices.ContainsFunc(Permissions(), func(a About) bool { return a.Permission == p && a.PerProject })
}

// RoleAdmin is the built-in role that has every permission.
const RoleAdmin = "admin"

// builtIn are the roles that every hub has. Whoever changes what one may do
// changes it for everybody who has it.
func builtIn() []hubv1.Role {
	var all []hubv1.Permission
	for _, about := range Permissions() {
		all = append(all, about.Permission)
	}
	read := []hubv1.Permission{
		hubv1.PermissionExecutorRead, hubv1.PermissionProjectRead, hubv1.PermissionRunRead, hubv1.PermissionHubRead,
	}
	with := func(more ...hubv1.Permission) []hubv1.Permission { return append(slices.Clone(read), more...) }
	return []hubv1.Role{
		{Name: RoleAdmin, Permissions: all, Description: "may do everything"},
		{Name: "auditor", Permissions: with(hubv1.PermissionAccessRead, hubv1.PermissionAuditRead),
			Description: "sees everything and changes nothing"},
		{Name: "developer", Permissions: with(hubv1.PermissionRunStart, hubv1.PermissionRunCancel),
			Description: "starts and cancels runs"},
		{Name: "operator", Permissions: with(hubv1.PermissionExecutorManage, hubv1.PermissionProjectManage,
			hubv1.PermissionRunStart, hubv1.PermissionRunCancel, hubv1.PermissionHubManage),
			Description: "looks after pools, projects and runs"},
		{Name: "viewer", Permissions: read, Description: "sees pools, projects and runs"},
	}
}

// BuiltIn are the roles that every hub has, by name.
func BuiltIn() []hubv1.Role {
	roles := builtIn()
	for i := range roles {
		roles[i].BuiltIn = true
	}
	return roles
}

// FindBuiltIn returns a built-in role.
func FindBuiltIn(name string) (hubv1.Role, bool) {
	for _, role := range BuiltIn() {
		if role.Name == name {
			return role, true
		}
	}
	return hubv1.Role{}, false
}

// RolesWith names the built-in roles that have a permission, for whoever lacks it.
func RolesWith(p hubv1.Permission) []string {
	var names []string
	for _, role := range builtIn() {
		if slices.Contains(role.Permissions, p) {
			names = append(names, role.Name)
		}
	}
	return names
}

// CheckPermissions names every permission that there is not.
func CheckPermissions(location string, permissions []hubv1.Permission) []hubv1.FieldError {
	var faulty []hubv1.FieldError
	for i, p := range permissions {
		if !Known(p) {
			faulty = append(faulty, hubv1.FieldError{Location: fmt.Sprintf("%s[%d]", location, i), Message: "must be one of " + list(Permissions())})
		}
	}
	return faulty
}

func list(abouts []About) string {
	names := make([]string, 0, len(abouts))
	for _, about := range abouts {
		names = append(names, string(about.Permission))
	}
	return strings.Join(names, ", ")
}
