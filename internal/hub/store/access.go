package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
)

// admit refuses a run of the project on the pool, unless its starter, one of the
// starter's groups or one of its roles is in the pool's audience, if it has one,
// and the pool's owner, if it has one, may read the project. The starter is an
// actor of the audit trail.
func (tx *Tx) admit(pool poolRow, project, projectID, starter string) error {
	if len(pool.Audience) > 0 {
		names, err := tx.namesOf(starter, projectID)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(names, func(name string) bool { return slices.Contains(pool.Audience, name) }) {
			return problem.New(hubv1.CodeAudience, "pool %s is for %s, and the run is of %s", pool.Name,
				strings.Join(pool.Audience, ", "), strings.Join(names, ", "))
		}
	}
	if pool.Owner == "" {
		return nil
	}
	reads, err := tx.readsProject(pool.Owner, projectID)
	if err == nil && !reads {
		err = problem.New(hubv1.CodeOwner, "pool %s belongs to %s, who may not read project %s", pool.Name, pool.Owner, project)
	}
	return err
}

// people is what a change has asked of users, groups and roles so far: the runs
// that it hands out are of few people. A change of one of them forgets it.
type people struct {
	// standings: user's name → its groups and roles.
	standings map[string]standing
	// grants: user's name → the roles that it has.
	grants map[string][]access.Grant
	// owners: owner of a pool → its roles.
	owners map[string][]access.Grant
}

// asked reads what is not known yet.
func asked[T any](known *map[string]T, key string, read func() (T, error)) (T, error) {
	if value, is := (*known)[key]; is {
		return value, nil
	}
	value, err := read()
	if err != nil {
		return value, err
	}
	if *known == nil {
		*known = map[string]T{}
	}
	(*known)[key] = value
	return value, nil
}

// namesOf are the names by which an audience may list an actor.
func (tx *Tx) namesOf(actor, projectID string) ([]string, error) {
	user, found := strings.CutPrefix(actor, access.User(""))
	if !found {
		return []string{actor}, nil
	}
	s, err := asked(&tx.people.standings, user, func() (standing, error) { return standingOf(context.Background(), tx, user) })
	if err != nil {
		return nil, err
	}
	return access.Names(user, s.groups, s.grants, projectID), nil
}

// refuses is why a queued run is not handed out any more; nil: it may be. Its
// project is bound elsewhere, the pool takes it no more, or whoever started it is
// barred.
func (tx *Tx) refuses(pool poolRow, run candidate) (*hubv1.Problem, error) {
	if run.boundTo != pool.ID {
		return boundElsewhere(run.projectName), nil
	}
	barred, removed, err := tx.barred(run)
	if err != nil || removed {
		return barred, err
	}
	err = tx.admit(pool, run.projectName, run.project, run.startedBy)
	if err == nil {
		err = meets(pool, run.projectName, run.requirements)
	}
	var refused *hubv1.Problem
	if err == nil {
		return barred, nil
	} else if errors.As(err, &refused) {
		return refused, nil
	}
	return nil, err
}

// boundElsewhere is why a run leaves the queue of a pool that its project was bound to.
func boundElsewhere(project string) *hubv1.Problem {
	return problem.New(hubv1.CodeProjectUnbound, "project %s was bound to another pool", project)
}

// barred is why no runner takes a queued run, whoever the pool is for: its
// starter may not read the project or start runs of it any more, or was removed.
// Nil: it may, or is no user.
func (tx *Tx) barred(run candidate) (why *hubv1.Problem, removed bool, err error) {
	grants, err := tx.grantsOf(run.startedBy)
	if err != nil || grants == nil {
		return nil, false, err
	}
	rights := access.Of(*grants, nil)
	reads := rights.May(hubv1.PermissionProjectRead, run.project)
	if reads && rights.May(hubv1.PermissionRunStart, run.project) {
		return nil, false, nil
	}
	removed, err = tx.isRemoved(run.startedBy)
	switch {
	case removed:
		why = problem.New(hubv1.CodeForbidden, "%s", orphaned(run.startedBy))
	case !reads:
		why = problem.New(hubv1.CodeForbidden, "%s, who started it, may not read project %s", run.startedBy, run.projectName)
	default:
		why = problem.New(hubv1.CodeForbidden, "%s, who started it, may start runs of project %s no more", run.startedBy, run.projectName)
	}
	return why, removed, err
}

// grantsOf are the roles that an actor has, itself or by its groups; nil for one
// that is no user, and not bounded by roles. Each hand-off asks it, so it is one
// query.
func (tx *Tx) grantsOf(actor string) (*[]access.Grant, error) {
	user, found := strings.CutPrefix(actor, access.User(""))
	if !found {
		return nil, nil
	}
	grants, err := asked(&tx.people.grants, user, func() ([]access.Grant, error) { return grantsOfUser(context.Background(), tx, user) })
	return &grants, err
}

// isRemoved says whether an actor is a user that was removed.
func (tx *Tx) isRemoved(actor string) (bool, error) {
	_, removed, err := first(context.Background(), tx, scanText, "SELECT name FROM users WHERE name = ? AND removed_at IS NOT NULL",
		strings.TrimPrefix(actor, access.User("")))
	return removed, err
}

// readsProject says whether a pool's owner may read a project: a user by its own
// roles and its groups', a group by those that it was given, and a role that
// somebody has for the project or the whole hub by what it permits.
func (tx *Tx) readsProject(owner, projectID string) (bool, error) {
	grants, err := asked(&tx.people.owners, owner, func() ([]access.Grant, error) { return tx.grantsOfOwner(owner) })
	return access.Of(grants, nil).May(hubv1.PermissionProjectRead, projectID), err
}

func (tx *Tx) grantsOfOwner(owner string) ([]access.Grant, error) {
	ctx := context.Background()
	kind, name, _ := strings.Cut(owner, ":")
	switch kind {
	case "user":
		s, err := standingOf(ctx, tx, name)
		return s.grants, err
	case "group":
		return grantsOf(ctx, tx, owner)
	case "role":
		return collect(ctx, tx, scanGrant, `SELECT b.role, b.project_id, COALESCE(r.permissions, '') FROM role_bindings b
			LEFT JOIN roles r ON r.name = b.role WHERE b.role = ?`, name)
	}
	return nil, nil
}

// dismiss takes the runs out of the pool's queue that could never be handed out
// any more.
func (tx *Tx) dismiss(actor string, pool poolRow) error {
	waiting, err := collect(context.Background(), tx, scanRun, selectHeads+" WHERE r.pool_id = ? AND r.settled_at IS NULL AND r.state = 'queued' ORDER BY r.seq", pool.ID)
	if err != nil {
		return err
	}
	for _, run := range waiting {
		refused, err := tx.refuses(pool, run.candidate())
		if err == nil && refused != nil {
			err = tx.drop(actor, run, noLonger(refused))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// reconsider dismisses what waits and would not be handed out any more, after
// groups or roles have changed.
func (tx *Tx) reconsider(actor string) error {
	tx.people = people{}
	waited, err := collect(context.Background(), tx, scanText, "SELECT DISTINCT pool_id FROM runs WHERE settled_at IS NULL AND state = 'queued'")
	if err != nil {
		return err
	}
	for _, id := range waited {
		pool, err := findPool(context.Background(), tx, id)
		if err != nil {
			return err
		}
		if err := tx.dismiss(actor, pool); err != nil {
			return err
		}
	}
	return nil
}
