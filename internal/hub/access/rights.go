package access

import (
	"maps"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
)

// Grant is a role that somebody has, as far as it matters here.
type Grant struct {
	Role string
	// Project is the id of the one project that it is for; empty for the whole
	// hub.
	Project     string
	Permissions []hubv1.Permission
}

// Rights are what somebody may do, with the token in hand.
type Rights struct {
	grants []Grant
	// scopes are the only permissions that count; nil: all.
	scopes []hubv1.Permission
}

// Of are the rights of somebody with the grants, as far as the scopes of the
// token in hand go; no scopes do not bound them.
func Of(grants []Grant, scopes []hubv1.Permission) Rights {
	return Rights{grants: grants, scopes: scopes}
}

// gives says whether a grant has the permission, for the project or, where that
// is empty, for the whole hub. A permission that is not about projects does not
// come with a grant for one project.
func (g Grant) gives(p hubv1.Permission, project string) bool {
	if g.Project != "" && (g.Project != project || !PerProject(p)) {
		return false
	}
	return slices.Contains(g.Permissions, p)
}

func (r Rights) inScope(p hubv1.Permission) bool {
	return len(r.scopes) == 0 || slices.Contains(r.scopes, p)
}

// May says whether the permission holds for the project, by its id, or for the
// whole hub where that is empty.
func (r Rights) May(p hubv1.Permission, project string) bool {
	return r.inScope(p) && slices.ContainsFunc(r.grants, func(g Grant) bool { return g.gives(p, project) })
}

// MayAnywhere says whether the permission holds for the whole hub or for some
// project.
func (r Rights) MayAnywhere(p hubv1.Permission) bool {
	return r.inScope(p) && slices.ContainsFunc(r.grants, func(g Grant) bool { return g.gives(p, g.Project) })
}

// Projects are the ids of the projects for which the permission holds; all is
// true where it holds for every one.
func (r Rights) Projects(p hubv1.Permission) (ids []string, all bool) {
	if r.May(p, "") {
		return nil, true
	}
	found := map[string]bool{}
	for _, g := range r.grants {
		if g.Project != "" && r.May(p, g.Project) {
			found[g.Project] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), false
}

// Everywhere are the permissions that hold for the whole hub.
func (r Rights) Everywhere() []hubv1.Permission {
	out := []hubv1.Permission{}
	for _, about := range Permissions() {
		if r.May(about.Permission, "") {
			out = append(out, about.Permission)
		}
	}
	return out
}

// Lacking are those of the permissions that the rights do not have for the
// project, or for the whole hub where that is empty: whoever has not got one
// cannot give it.
func (r Rights) Lacking(permissions []hubv1.Permission, project string) []hubv1.Permission {
	var out []hubv1.Permission
	for _, p := range permissions {
		if !r.May(p, project) {
			out = append(out, p)
		}
	}
	return out
}

// Names are the names by which an audience may list a user: its own, its
// groups', and the roles that it has for the whole hub or for the project.
func Names(user string, groups []string, grants []Grant, project string) []string {
	names := []string{User(user)}
	for _, group := range groups {
		names = append(names, Group(group))
	}
	for _, g := range grants {
		if g.Project == "" || g.Project == project {
			names = append(names, Role(g.Role))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// User is the name of a user as audiences and the audit trail have it.
func User(name string) string { return "user:" + name }

// Group is like User, for a group.
func Group(name string) string { return "group:" + name }

// Role is like User, for a role.
func Role(name string) string { return "role:" + name }
