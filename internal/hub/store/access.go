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

// namesOf are the names by which an audience may list an actor.
func (tx *Tx) namesOf(actor, projectID string) ([]string, error) {
	user, found := strings.CutPrefix(actor, access.User(""))
	if !found {
		return []string{actor}, nil
	}
	s, known := tx.standings[user]
	if !known {
		var err error
		if s, err = standingOf(context.Background(), tx, user); err != nil {
			return nil, err
		}
		if tx.standings == nil {
			tx.standings = map[string]standing{}
		}
		tx.standings[user] = s
	}
	return access.Names(user, s.groups, s.grants, projectID), nil
}

// refuses is why a queued run is not handed out any more; nil: it may be. The
// pool takes it no more, or whoever started it is barred.
func (tx *Tx) refuses(pool poolRow, run runRow) (*hubv1.Problem, error) {
	barred, removed, err := tx.barred(run)
	if err != nil || removed {
		return barred, err
	}
	err = tx.admit(pool, run.Project, run.projectID, run.StartedBy)
	if err == nil {
		err = meets(pool, run.Project, run.Requirements)
	}
	var refused *hubv1.Problem
	if err == nil {
		return barred, nil
	} else if errors.As(err, &refused) {
		return refused, nil
	}
	return nil, err
}

// barred is why no runner takes a queued run, whoever the pool is for: its
// starter may not read the project or start runs of it any more, or was removed.
// Nil: it may, or is no user.
func (tx *Tx) barred(run runRow) (why *hubv1.Problem, removed bool, err error) {
	grants, err := tx.grantsOf(run.StartedBy)
	if err != nil || grants == nil {
		return nil, false, err
	}
	rights := access.Of(*grants, nil)
	reads := rights.May(hubv1.PermissionProjectRead, run.projectID)
	if reads && rights.May(hubv1.PermissionRunStart, run.projectID) {
		return nil, false, nil
	}
	removed, err = tx.isRemoved(run.StartedBy)
	switch {
	case removed:
		why = problem.New(hubv1.CodeForbidden, "%s", orphaned(run))
	case !reads:
		why = problem.New(hubv1.CodeForbidden, "%s, who started it, may not read project %s", run.StartedBy, run.Project)
	default:
		why = problem.New(hubv1.CodeForbidden, "%s, who started it, may start runs of project %s no more", run.StartedBy, run.Project)
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
	grants, known := tx.grants[user]
	if !known {
		var err error
		if grants, err = grantsOfUser(context.Background(), tx, user); err != nil {
			return nil, err
		}
		if tx.grants == nil {
			tx.grants = map[string][]access.Grant{}
		}
		tx.grants[user] = grants
	}
	return &grants, nil
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
	ctx := context.Background()
	kind, name, _ := strings.Cut(owner, ":")
	var grants []access.Grant
	var err error
	switch kind {
	case "user":
		var s standing
		s, err = standingOf(ctx, tx, name)
		grants = s.grants
	case "group":
		grants, err = grantsOf(ctx, tx, owner)
	case "role":
		grants, err = collect(ctx, tx, scanGrant, `SELECT b.role, b.project_id, COALESCE(r.permissions, '') FROM role_bindings b
			LEFT JOIN roles r ON r.name = b.role WHERE b.role = ?`, name)
	}
	return access.Of(grants, nil).May(hubv1.PermissionProjectRead, projectID), err
}

// dismiss takes the runs out of the pool's queue that could never be handed out
// any more.
func (tx *Tx) dismiss(actor string, pool poolRow) error {
	waiting, err := collect(context.Background(), tx, scanRun, selectRuns+" WHERE r.pool_id = ? AND r.settled_at IS NULL AND r.state = 'queued' ORDER BY r.seq", pool.ID)
	if err != nil {
		return err
	}
	for _, run := range waiting {
		refused, err := tx.refuses(pool, run)
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
	tx.standings, tx.grants = nil, nil
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
