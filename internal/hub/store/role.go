package store

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
)

func scanRole(row scanner) (hubv1.Role, error) {
	var role hubv1.Role
	var permissions string
	if err := row.Scan(&role.Name, &permissions); err != nil {
		return role, err
	}
	return role, fromJSON(permissions, &role.Permissions)
}

// findRole finds a built-in role or one that somebody made.
func findRole(ctx context.Context, q querier, name string) (hubv1.Role, error) {
	if role, found := access.FindBuiltIn(name); found {
		return role, nil
	}
	role, found, err := first(ctx, q, scanRole, "SELECT name, permissions FROM roles WHERE name = ?", name)
	if err == nil && !found {
		err = problem.New(hubv1.CodeNotFound, "there is no role %q", name)
	}
	return role, err
}

// PutRole makes a role or changes what it permits.
func (s *Store) PutRole(ctx context.Context, actor, name string, request hubv1.RoleRequest) (hubv1.Role, error) {
	if _, found := access.FindBuiltIn(name); found {
		return hubv1.Role{}, builtInRole(name)
	}
	permissions := slices.Clone(request.Permissions)
	slices.Sort(permissions)
	permissions = slices.Compact(permissions)
	repeated, err := s.changeAccess(ctx, func(tx *Tx) error {
		was, found, err := first(context.Background(), tx, scanRole, "SELECT name, permissions FROM roles WHERE name = ?", name)
		if err != nil {
			return err
		}
		if err := tx.mayDefine(name, was.Permissions, permissions); err != nil {
			return err
		}
		if found && slices.Equal(was.Permissions, permissions) {
			return nil
		}
		if _, err := tx.exec(`INSERT INTO roles (name, permissions, created_at) VALUES (?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET permissions = excluded.permissions`, name, asJSON(permissions), nano(tx.now)); err != nil {
			return err
		}
		if err := tx.audit(record{actor: actor, action: ActionRoleDefine, object: access.Role(name), state: "live", detail: joined(permissions)}); err != nil {
			return err
		}
		return tx.accessChanged(actor)
	})
	if err != nil {
		return hubv1.Role{}, err
	}
	role, err := s.GetRole(ctx, name)
	if repeated {
		err = orUndone(err, "role "+name)
	}
	return role, err
}

// mayDefine refuses to make a role permit what the caller may not do itself, or
// to narrow it for somebody who has more.
func (tx *Tx) mayDefine(name string, was, permissions []hubv1.Permission) error {
	if err := tx.mayGive(access.Grant{Role: name, Permissions: append(slices.Clone(was), permissions...)}); err != nil {
		return err
	}
	narrower := slices.ContainsFunc(was, func(p hubv1.Permission) bool { return !slices.Contains(permissions, p) })
	if !narrower {
		return nil
	}
	return tx.mayTakeFromHolders(name)
}

func builtInRole(name string) *hubv1.Problem {
	p := problem.New(hubv1.CodeConflict, "role %s is the hub's own and stays as it is", name)
	p.Remedy = "make a role of another name"
	return p
}

// RemoveRole removes a role and takes it from everybody.
func (s *Store) RemoveRole(ctx context.Context, actor, name string) error {
	if _, found := access.FindBuiltIn(name); found {
		return builtInRole(name)
	}
	_, err := s.changeAccess(ctx, func(tx *Tx) error {
		role, err := findRole(context.Background(), tx, name)
		if err != nil {
			return err
		}
		if err := tx.mayDefine(name, role.Permissions, nil); err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM roles WHERE name = ?", name); err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM role_bindings WHERE role = ?", name); err != nil {
			return err
		}
		if err := tx.audit(record{actor: actor, action: ActionRoleRemove, object: access.Role(name), state: "removed"}); err != nil {
			return err
		}
		return tx.accessChanged(actor)
	})
	return err
}

// GiveRole gives a role to a user or a group, for the whole hub or one project.
func (s *Store) GiveRole(ctx context.Context, actor, name string, request hubv1.BindingRequest) (hubv1.Role, error) {
	return s.changeBinding(ctx, actor, name, request, ActionRoleGive, func(tx *Tx, g access.Grant) (int64, error) {
		find := findUser
		kind, subject, _ := strings.Cut(request.Subject, ":")
		if kind == "group" {
			find = findGroup
		}
		if _, err := find(context.Background(), tx, subject); err != nil {
			return 0, err
		}
		if err := tx.mayGrant(g); err != nil {
			return 0, err
		}
		return tx.exec(`INSERT INTO role_bindings (subject, role, project_id, created_at) VALUES (?, ?, ?, ?)
			ON CONFLICT (subject, role, project_id) DO NOTHING`, request.Subject, name, g.Project, nano(tx.now))
	})
}

// TakeRole takes a role away again. Runs that wait and may no longer run leave
// the queue.
func (s *Store) TakeRole(ctx context.Context, actor, name string, request hubv1.BindingRequest) (hubv1.Role, error) {
	return s.changeBinding(ctx, actor, name, request, ActionRoleTake, func(tx *Tx, g access.Grant) (int64, error) {
		if err := tx.mayGive(g); err != nil {
			return 0, err
		}
		if err := tx.mayTakeFromSubject(request.Subject); err != nil {
			return 0, err
		}
		return tx.exec("DELETE FROM role_bindings WHERE subject = ? AND role = ? AND project_id = ?", request.Subject, name, g.Project)
	})
}

func (s *Store) changeBinding(ctx context.Context, actor, name string, request hubv1.BindingRequest, action string,
	change func(*Tx, access.Grant) (int64, error),
) (hubv1.Role, error) {
	_, err := s.changeAccess(ctx, func(tx *Tx) error {
		role, err := findRole(context.Background(), tx, name)
		if err != nil {
			return err
		}
		g, detail := access.Grant{Role: name, Permissions: role.Permissions}, request.Subject
		if request.Project != "" {
			project, err := findProject(context.Background(), tx, request.Project)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(role.Permissions, access.PerProject) {
				return problem.New(hubv1.CodeInvalid, "role %s permits nothing that can be given for one project", name)
			}
			g.Project, detail = project.ID, fmt.Sprintf("%s for project %s", request.Subject, project.Name)
		}
		changed, err := change(tx, g)
		if err != nil || changed == 0 {
			return err
		}
		if err := tx.audit(record{actor: actor, action: action, object: access.Role(name), detail: detail}); err != nil {
			return err
		}
		return tx.accessChanged(actor)
	})
	if err != nil {
		return hubv1.Role{}, err
	}
	return s.GetRole(ctx, name)
}

// GetRole returns a role and who has it.
func (s *Store) GetRole(ctx context.Context, name string) (role hubv1.Role, err error) {
	err = s.view(ctx, func(q querier) error {
		if role, err = findRole(ctx, q, name); err != nil {
			return err
		}
		role.Bindings, err = collect(ctx, q, scanBinding, selectBindings+" WHERE b.role = ? ORDER BY b.subject, j.name", name)
		return err
	})
	return role, err
}

// ListRoles lists the roles by name, with those who have them.
func (s *Store) ListRoles(ctx context.Context) (roles []hubv1.Role, err error) {
	err = s.view(ctx, func(q querier) error {
		made, err := collect(ctx, q, scanRole, "SELECT name, permissions FROM roles")
		if err != nil {
			return err
		}
		roles = append(access.BuiltIn(), made...)
		slices.SortFunc(roles, func(a, b hubv1.Role) int { return strings.Compare(a.Name, b.Name) })
		for i := range roles {
			if roles[i].Bindings, err = collect(ctx, q, scanBinding, selectBindings+" WHERE b.role = ? ORDER BY b.subject, j.name", roles[i].Name); err != nil {
				return err
			}
		}
		return nil
	})
	return roles, err
}

const selectBindings = "SELECT b.role, b.subject, COALESCE(j.name, '') FROM role_bindings b LEFT JOIN projects j ON j.id = b.project_id"

func scanBinding(row scanner) (hubv1.RoleBinding, error) {
	var b hubv1.RoleBinding
	err := row.Scan(&b.Role, &b.Subject, &b.Project)
	return b, err
}

func bindingsOf(ctx context.Context, q querier, subjects ...any) ([]hubv1.RoleBinding, error) {
	return collect(ctx, q, scanBinding, selectBindings+" WHERE b.subject IN ("+places(len(subjects))+") ORDER BY b.role, b.subject, j.name", subjects...)
}
