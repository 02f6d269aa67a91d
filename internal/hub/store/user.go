package store

import (
	"context"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
)

// named is a user or a group as its table has it.
type named struct {
	name    string
	created time.Time
}

func scanNamed(row scanner) (named, error) {
	var n named
	var created int64
	err := row.Scan(&n.name, &created)
	n.created = fromNano(created)
	return n, err
}

const (
	selectUsers  = "SELECT name, created_at FROM users WHERE removed_at IS NULL"
	selectGroups = "SELECT name, created_at FROM user_groups WHERE 1 = 1"
)

func findUser(ctx context.Context, q querier, name string) (named, error) {
	return findNamed(ctx, q, selectUsers, "user", name)
}

func findGroup(ctx context.Context, q querier, name string) (named, error) {
	return findNamed(ctx, q, selectGroups, "group", name)
}

func findNamed(ctx context.Context, q querier, query, what, name string) (named, error) {
	n, found, err := first(ctx, q, scanNamed, query+" AND name = ?", name)
	if err == nil && !found {
		err = problem.New(hubv1.CodeNotFound, "there is no %s %q", what, name)
	}
	return n, err
}

// CreateUser makes a user, who has no roles and no tokens yet.
func (s *Store) CreateUser(ctx context.Context, actor string, key Key, request hubv1.CreateUserRequest) (hubv1.User, error) {
	err := s.createNamed(ctx, actor, key, request, insertUser, access.User(request.Name), ActionUserCreate)
	if err != nil {
		return hubv1.User{}, err
	}
	return s.GetUser(ctx, request.Name)
}

// CreateGroup makes a group without members.
func (s *Store) CreateGroup(ctx context.Context, actor string, key Key, request hubv1.CreateGroupRequest) (hubv1.Group, error) {
	err := s.createNamed(ctx, actor, key, request, insertGroup, access.Group(request.Name), ActionGroupCreate)
	if err != nil {
		return hubv1.Group{}, err
	}
	return s.GetGroup(ctx, request.Name)
}

const (
	// insertUser makes a user, also one that was removed before.
	insertUser = `INSERT INTO users (name, created_at) VALUES (?, ?)
		ON CONFLICT (name) DO UPDATE SET created_at = excluded.created_at, removed_at = NULL WHERE users.removed_at IS NOT NULL`
	insertGroup = "INSERT INTO user_groups (name, created_at) VALUES (?, ?) ON CONFLICT (name) DO NOTHING"
)

func (s *Store) createNamed(ctx context.Context, actor string, key Key, request any, insert, subject, action string) error {
	kind, name, _ := strings.Cut(subject, ":")
	return s.update(ctx, func(tx *Tx) error {
		if err := tx.managesAccess(); err != nil {
			return err
		}
		if _, repeated, err := tx.repeats(actor, key, request); err != nil {
			return err
		} else if repeated {
			return tx.stillNamed(kind, name)
		}
		if kind == "user" {
			// An audience may list one who is yet to be made.
			if err := tx.mayAdmit([]string{subject}, ""); err != nil {
				return err
			}
		}
		made, err := tx.exec(insert, name, nano(tx.now))
		if err != nil {
			return err
		}
		if made == 0 {
			return problem.New(hubv1.CodeConflict, "%s %s exists", kind, name)
		}
		if err := tx.audit(record{actor: actor, action: action, object: subject, state: "live"}); err != nil {
			return err
		}
		return tx.remember(actor, key, request, subject)
	})
}

// stillNamed refuses to repeat the making of who was removed since.
func (tx *Tx) stillNamed(kind, name string) error {
	find := findUser
	if kind == "group" {
		find = findGroup
	}
	_, err := find(tx.ctx, tx, name)
	return orUndone(err, kind+" "+name)
}

// RemoveUser removes a user with its tokens and roles. Its runs that wait are
// cancelled: there is nobody any more on whose behalf they would be. The last
// user who manages access is not removed.
func (s *Store) RemoveUser(ctx context.Context, actor, name string) error {
	return s.removeUser(ctx, actor, name, (*Tx).leavesManager)
}

// ForceRemoveUser is RemoveUser also for the last user who manages access.
func (s *Store) ForceRemoveUser(ctx context.Context, actor, name string) error {
	return s.removeUser(ctx, actor, name, func(*Tx) error { return nil })
}

func (s *Store) removeUser(ctx context.Context, actor, name string, judge func(*Tx) error) error {
	_, err := s.changeAccess(ctx, func(tx *Tx) error {
		bg := context.Background()
		if _, err := findUser(bg, tx, name); err != nil {
			return err
		}
		if err := tx.mayTakeFromUser(name); err != nil {
			return err
		}
		subject := access.User(name)
		live, err := collect(bg, tx, scanToken, selectTokens+" WHERE user_name = ? AND revoked_at IS NULL", name)
		if err != nil {
			return err
		}
		for _, t := range live {
			if err := tx.revokeToken(actor, t, "user "+name+" was removed"); err != nil {
				return err
			}
		}
		if _, err := tx.exec("UPDATE users SET removed_at = ? WHERE name = ?", nano(tx.now), name); err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM group_members WHERE user_name = ?", name); err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM role_bindings WHERE subject = ?", subject); err != nil {
			return err
		}
		if err := judge(tx); err != nil {
			return err
		}
		if err := tx.audit(record{actor: actor, action: ActionUserRemove, object: subject, state: "removed"}); err != nil {
			return err
		}
		waiting, err := collect(bg, tx, scanRun, selectHeads+" WHERE r.started_by = ? AND r.settled_at IS NULL AND r.state = 'queued'", subject)
		if err != nil {
			return err
		}
		for _, run := range waiting {
			if err := tx.drop(actor, run, orphaned(run.StartedBy)); err != nil {
				return err
			}
		}
		return tx.reconsider(actor)
	})
	return err
}

// orphaned is why a run ends that waits and whose user was removed.
func orphaned(startedBy string) string { return startedBy + ", who started it, was removed" }

// RemoveGroup removes a group with its roles; its members stay.
func (s *Store) RemoveGroup(ctx context.Context, actor, name string) error {
	_, err := s.changeAccess(ctx, func(tx *Tx) error {
		if _, err := findGroup(context.Background(), tx, name); err != nil {
			return err
		}
		if err := tx.mayRemoveGroup(name); err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM group_members WHERE group_name = ?", name); err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM role_bindings WHERE subject = ?", access.Group(name)); err != nil {
			return err
		}
		if _, err := tx.exec("DELETE FROM user_groups WHERE name = ?", name); err != nil {
			return err
		}
		if err := tx.audit(record{actor: actor, action: ActionGroupRemove, object: access.Group(name), state: "removed"}); err != nil {
			return err
		}
		return tx.accessChanged(actor)
	})
	return err
}

// mayRemoveGroup refuses to remove a group that has what the caller has not, or
// has somebody in it who has more.
func (tx *Tx) mayRemoveGroup(name string) error {
	grants, err := grantsOf(context.Background(), tx, access.Group(name))
	if err != nil {
		return err
	}
	for _, g := range grants {
		if err := tx.mayGive(g); err != nil {
			return err
		}
	}
	return tx.mayTakeFromMembers(name)
}

// AddMember puts a user into a group, which gives it the group's roles and its
// places in audiences: nobody gives so what they have not got.
func (s *Store) AddMember(ctx context.Context, actor, group, user string) (hubv1.Group, error) {
	return s.changeMembers(ctx, actor, group, user, ActionGroupAdd, func(tx *Tx) (int64, error) {
		grants, err := grantsOf(context.Background(), tx, access.Group(group))
		if err != nil {
			return 0, err
		}
		for _, g := range grants {
			if err := tx.mayGrant(g); err != nil {
				return 0, err
			}
		}
		if err := tx.mayAdmit([]string{access.Group(group)}, ""); err != nil {
			return 0, err
		}
		return tx.exec("INSERT INTO group_members (user_name, group_name) VALUES (?, ?) ON CONFLICT (user_name, group_name) DO NOTHING", user, group)
	})
}

// RemoveMember takes a user out of a group. Runs that wait and may no longer be
// the user's leave the queue.
func (s *Store) RemoveMember(ctx context.Context, actor, group, user string) (hubv1.Group, error) {
	return s.changeMembers(ctx, actor, group, user, ActionGroupDrop, func(tx *Tx) (int64, error) {
		if err := tx.mayTakeFromUser(user); err != nil {
			return 0, err
		}
		return tx.exec("DELETE FROM group_members WHERE user_name = ? AND group_name = ?", user, group)
	})
}

func (s *Store) changeMembers(ctx context.Context, actor, group, user, action string, change func(*Tx) (int64, error)) (hubv1.Group, error) {
	_, err := s.changeAccess(ctx, func(tx *Tx) error {
		if _, err := findGroup(context.Background(), tx, group); err != nil {
			return err
		}
		if _, err := findUser(context.Background(), tx, user); err != nil {
			return err
		}
		changed, err := change(tx)
		if err != nil || changed == 0 {
			return err
		}
		if err := tx.audit(record{actor: actor, action: action, object: access.Group(group), detail: access.User(user)}); err != nil {
			return err
		}
		return tx.accessChanged(actor)
	})
	if err != nil {
		return hubv1.Group{}, err
	}
	return s.GetGroup(ctx, group)
}

// GetUser returns a user with its groups and roles.
func (s *Store) GetUser(ctx context.Context, name string) (user hubv1.User, err error) {
	err = s.view(ctx, func(q querier) error {
		n, err := findUser(ctx, q, name)
		if err != nil {
			return err
		}
		user, err = userOf(ctx, q, n)
		return err
	})
	return user, err
}

func userOf(ctx context.Context, q querier, n named) (hubv1.User, error) {
	user := hubv1.User{Name: n.name, CreatedAt: n.created}
	var err error
	if user.Groups, err = collect(ctx, q, scanText, "SELECT group_name FROM group_members WHERE user_name = ? ORDER BY group_name", n.name); err != nil {
		return user, err
	}
	subjects := []any{access.User(n.name)}
	for _, group := range user.Groups {
		subjects = append(subjects, access.Group(group))
	}
	user.Roles, err = bindingsOf(ctx, q, subjects...)
	return user, err
}

// ListUsers lists the users by name, with their groups and roles.
func (s *Store) ListUsers(ctx context.Context) ([]hubv1.User, error) {
	return listNamed(ctx, s, selectUsers, userOf)
}

// GetGroup returns a group with its members and roles.
func (s *Store) GetGroup(ctx context.Context, name string) (group hubv1.Group, err error) {
	err = s.view(ctx, func(q querier) error {
		n, err := findGroup(ctx, q, name)
		if err != nil {
			return err
		}
		group, err = groupOf(ctx, q, n)
		return err
	})
	return group, err
}

func groupOf(ctx context.Context, q querier, n named) (hubv1.Group, error) {
	group := hubv1.Group{Name: n.name, CreatedAt: n.created}
	var err error
	if group.Members, err = collect(ctx, q, scanText, "SELECT user_name FROM group_members WHERE group_name = ? ORDER BY user_name", n.name); err != nil {
		return group, err
	}
	group.Roles, err = bindingsOf(ctx, q, access.Group(n.name))
	return group, err
}

// ListGroups lists the groups by name, with their members and roles.
func (s *Store) ListGroups(ctx context.Context) ([]hubv1.Group, error) {
	return listNamed(ctx, s, selectGroups, groupOf)
}

func listNamed[T any](ctx context.Context, s *Store, query string, whole func(context.Context, querier, named) (T, error)) ([]T, error) {
	var out []T
	err := s.view(ctx, func(q querier) error {
		rows, err := collect(ctx, q, scanNamed, query+" ORDER BY name")
		if err != nil {
			return err
		}
		out = make([]T, 0, len(rows))
		for _, n := range rows {
			item, err := whole(ctx, q, n)
			if err != nil {
				return err
			}
			out = append(out, item)
		}
		return nil
	})
	return out, err
}
