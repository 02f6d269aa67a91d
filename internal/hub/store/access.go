package store

import (
	"context"
	"errors"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// RoleAdmin is what every management token is, beside its own name.
const RoleAdmin = "role:admin"

// admit refuses a run of the project on the pool, unless one of the principals
// is in the pool's audience, if it has one, and the pool's owner, if it has
// one, may read the project.
func (tx *Tx) admit(pool poolRow, project string, principals []string) error {
	slices.Sort(principals)
	principals = slices.Compact(principals)
	if len(pool.Audience) > 0 && !slices.ContainsFunc(principals, func(p string) bool { return slices.Contains(pool.Audience, p) }) {
		return problem.New(hubv1.CodeAudience, "pool %s is for %s, and the run is of %s", pool.Name,
			strings.Join(pool.Audience, ", "), strings.Join(principals, ", "))
	}
	if pool.Owner == "" {
		return nil
	}
	reads, err := tx.readsProjects(pool.Owner)
	if err == nil && !reads {
		err = problem.New(hubv1.CodeOwner, "pool %s belongs to %s, who may not read project %s: only who has a management token may, which is %s and those tokens' users",
			pool.Name, pool.Owner, project, RoleAdmin)
	}
	return err
}

// readsProjects says whether the principal may read projects. Whoever has a
// management token may read every one, and nobody else any.
func (tx *Tx) readsProjects(principal string) (bool, error) {
	if principal == RoleAdmin {
		return true, nil
	}
	_, found, err := first(context.Background(), tx, scanText, "SELECT id FROM admin_tokens WHERE 'user:' || name = ? AND revoked_at IS NULL", principal)
	return found, err
}

// refuses is why the pool does not take a queued run any more; nil: it does.
func (tx *Tx) refuses(pool poolRow, run runRow) (*hubv1.Problem, error) {
	err := tx.admit(pool, run.Project, []string{run.StartedBy, RoleAdmin})
	if err == nil {
		err = meets(pool, run.Project, run.Requirements)
	}
	var refused *hubv1.Problem
	if err == nil || errors.As(err, &refused) {
		return refused, nil
	}
	return nil, err
}

// dismiss takes the runs out of the pool's queue that its definition no longer
// admits: they could never be handed out.
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
