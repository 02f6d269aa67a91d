package store

import (
	"context"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
)

// Whoever manages access is bounded by what it has itself, in both directions:
// it gives no more than that, and takes nothing from those who have more. With
// access.manage alone it could otherwise make itself anything, or be rid of
// everybody who could stop it.

// renewCaller reads again what the caller may do: since its request was let in, roles
// may have been taken from it.
func (tx *Tx) renewCaller() error {
	if tx.caller == nil {
		return nil
	}
	now := *tx.caller
	var err error
	now.standing, err = standingOf(context.Background(), tx, now.User)
	now.Rights = access.Of(now.grants, now.Token.Scopes)
	tx.caller = &now
	return err
}

// managesAccess refuses a caller who may not manage access any more.
func (tx *Tx) managesAccess() error {
	if err := tx.renewCaller(); err != nil || tx.caller == nil {
		return err
	}
	if !tx.caller.Rights.May(hubv1.PermissionAccessManage, "") {
		return bounded("it was taken away meanwhile", "%s has %s no more", tx.caller.Actor(), hubv1.PermissionAccessManage)
	}
	return nil
}

// changeAccess runs a change of users, groups or roles, once for each key, unless the
// caller may not make it any more.
func (s *Store) changeAccess(ctx context.Context, change func(*Tx) error) (repeated bool, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		if err := tx.managesAccess(); err != nil {
			return err
		}
		repeated, err = tx.once(keyedIn(ctx), func() error { return change(tx) })
		return err
	})
	return repeated, err
}

// mayGive refuses to give a role that permits what the caller may not do itself.
func (tx *Tx) mayGive(g access.Grant) error {
	if tx.caller == nil {
		return nil
	}
	return tx.caller.mayGive(g, "role "+g.Role)
}

// mayGrant is mayGive, with the places in audiences that come with the role.
func (tx *Tx) mayGrant(g access.Grant) error {
	if err := tx.mayGive(g); err != nil {
		return err
	}
	return tx.mayAdmit([]string{access.Role(g.Role)}, g.Project)
}

func (c Caller) mayGive(g access.Grant, what string) error {
	lacking := c.lacking(g)
	if len(lacking) == 0 {
		return nil
	}
	return bounded("nobody gives more than they have", "%s gives %s, which %s has not itself with token %s", what, joined(lacking), c.Actor(), c.Token.ID)
}

// lacking is what a grant gives and the caller has not.
func (c Caller) lacking(g access.Grant) []hubv1.Permission {
	permissions := g.Permissions
	if g.Project != "" {
		permissions = slices.DeleteFunc(slices.Clone(permissions), func(p hubv1.Permission) bool { return !access.PerProject(p) })
	}
	return c.Rights.Lacking(permissions, g.Project)
}

func bounded(rule, format string, args ...any) *hubv1.Problem {
	p := problem.New(hubv1.CodeForbidden, format, args...)
	p.Remedy = rule + ": ask somebody who has role:" + access.RoleAdmin
	return p
}

// Those whom a change takes something from, as queries of their names.
const (
	theUser    = "SELECT name FROM users WHERE name = ?"
	theMembers = "SELECT user_name AS name FROM group_members WHERE group_name = ?"
	theHolders = `SELECT name FROM users WHERE 'user:' || name IN (SELECT subject FROM role_bindings WHERE role = ?)
		UNION SELECT user_name FROM group_members WHERE 'group:' || group_name IN (SELECT subject FROM role_bindings WHERE role = ?)`
)

// mayTakeFrom refuses to take anything from users of whom one may do more than
// the caller. Who says in words who they are.
func (tx *Tx) mayTakeFrom(who, users string, args ...any) error {
	if tx.caller == nil {
		return nil
	}
	grants, err := collect(context.Background(), tx, scanGrant, `SELECT DISTINCT b.role, b.project_id, COALESCE(r.permissions, '')
		FROM role_bindings b LEFT JOIN roles r ON r.name = b.role
		WHERE b.subject IN (SELECT 'user:' || u.name FROM (`+users+`) AS u)
		OR b.subject IN (SELECT 'group:' || m.group_name FROM group_members m WHERE m.user_name IN (`+users+`))
		ORDER BY b.role, b.project_id`, append(slices.Clone(args), args...)...)
	if err != nil {
		return err
	}
	for _, g := range grants {
		if lacking := tx.caller.lacking(g); len(lacking) > 0 {
			return bounded("nobody takes from those who have more", "%s has role %s and with it %s, which %s has not itself with token %s",
				who, g.Role, joined(lacking), tx.caller.Actor(), tx.caller.Token.ID)
		}
	}
	return nil
}

func (tx *Tx) mayTakeFromUser(name string) error {
	return tx.mayTakeFrom(access.User(name), theUser, name)
}

func (tx *Tx) mayTakeFromMembers(group string) error {
	return tx.mayTakeFrom("somebody in "+access.Group(group), theMembers, group)
}

func (tx *Tx) mayTakeFromHolders(role string) error {
	return tx.mayTakeFrom("somebody who has "+access.Role(role), theHolders, role, role)
}

// mayTakeFromSubject is for a user or a group, as a binding names it.
func (tx *Tx) mayTakeFromSubject(subject string) error {
	kind, name, _ := strings.Cut(subject, ":")
	if kind == "group" {
		return tx.mayTakeFromMembers(name)
	}
	return tx.mayTakeFromUser(name)
}

// mayAdmit refuses to give somebody names that the audience of a pool lists,
// where the caller has no place in it and may not change it either: who is in
// the audience, for a project or for the whole hub, takes runners of the pool.
func (tx *Tx) mayAdmit(names []string, project string) error {
	if tx.caller == nil || tx.caller.Rights.May(hubv1.PermissionExecutorManage, "") {
		return nil
	}
	pools, err := collect(context.Background(), tx, scanPool, selectPools+" WHERE p.state <> 'revoked' ORDER BY p.name")
	if err != nil {
		return err
	}
	mine := access.Names(tx.caller.User, tx.caller.groups, tx.caller.grants, project)
	for _, pool := range pools {
		listed := func(name string) bool { return slices.Contains(pool.Audience, name) }
		if i := slices.IndexFunc(names, listed); i >= 0 && !slices.ContainsFunc(mine, listed) {
			return bounded("nobody gives more than they have", "pool %s is for %s, and %s has no place there", pool.Name, names[i], tx.caller.Actor())
		}
	}
	return nil
}

// mayActAs refuses a token of somebody else who has more than the caller: with
// it the caller could do what only that one may, such as revoke its tokens.
func (tx *Tx) mayActAs(user string) error {
	if err := tx.mayTakeFromUser(user); err != nil || tx.caller == nil {
		return err
	}
	s, err := standingOf(context.Background(), tx, user)
	if err != nil {
		return err
	}
	for _, g := range append(s.grants, access.Grant{}) {
		if err := tx.mayAdmit(access.Names(user, s.groups, s.grants, g.Project), g.Project); err != nil {
			return err
		}
	}
	return nil
}

// mayRevoke refuses to revoke a token of one who has more than the caller, and
// with a bounded token another one of the same user that gives more.
func (tx *Tx) mayRevoke(t tokenRow) error {
	c := tx.caller
	switch {
	case c == nil || t.ID == c.Token.ID:
		return nil
	case t.User != c.User:
		return tx.mayTakeFromUser(t.User)
	case !c.KeepsTokens(hubv1.PermissionAccessManage):
		return bounded("a token with a ceiling, or without "+string(hubv1.PermissionAccessManage)+" among its scopes, ends itself alone",
			"token %s is bounded, and %s is another", c.Token.ID, t.ID)
	}
	for _, g := range c.grants {
		if len(t.Scopes) > 0 {
			g.Permissions = slices.DeleteFunc(slices.Clone(g.Permissions), func(p hubv1.Permission) bool { return !slices.Contains(t.Scopes, p) })
		}
		if err := c.mayGive(g, "token "+t.ID); err != nil {
			return err
		}
	}
	return nil
}

// leavesManager refuses a change of the caller's after which nobody could manage
// access any more, itself included.
func (tx *Tx) leavesManager() error {
	if tx.caller == nil {
		return nil
	}
	managers, err := tx.managers()
	if err != nil || managers > 0 {
		return err
	}
	p := problem.New(hubv1.CodeConflict, "nobody would be left who has %s", hubv1.PermissionAccessManage)
	p.Remedy = "give role:" + access.RoleAdmin + " to another user first: `cloop hub role give`"
	return p
}

// accessChanged ends a change of groups or roles: somebody must still be able to
// manage access, and runs that may no longer run leave their queue.
func (tx *Tx) accessChanged(actor string) error {
	if err := tx.leavesManager(); err != nil {
		return err
	}
	return tx.reconsider(actor)
}

// managers counts the users who have access.manage for the whole hub.
func (tx *Tx) managers() (int, error) {
	bg := context.Background()
	users, err := collect(bg, tx, scanText, `SELECT name FROM users WHERE removed_at IS NULL AND ('user:' || name IN (SELECT subject FROM role_bindings WHERE project_id = '')
		OR name IN (SELECT m.user_name FROM group_members m WHERE 'group:' || m.group_name IN (SELECT subject FROM role_bindings WHERE project_id = ''))) ORDER BY name`)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, user := range users {
		s, err := standingOf(bg, tx, user)
		if err != nil {
			return 0, err
		}
		if access.Of(s.grants, nil).May(hubv1.PermissionAccessManage, "") {
			n++
		}
	}
	return n, nil
}

func joined(permissions []hubv1.Permission) string {
	texts := make([]string, 0, len(permissions))
	for _, p := range permissions {
		texts = append(texts, string(p))
	}
	return strings.Join(texts, ", ")
}
