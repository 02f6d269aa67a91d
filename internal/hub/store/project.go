package store

import (
	"context"
	"database/sql"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// executorPrefix begins an executor id that names a pool.
const executorPrefix = "pool:"

type projectRow struct {
	hubv1.Project
	poolID string
}

const selectProjects = "SELECT id, name, remote, default_ref, pool_id, created_at FROM projects"

func scanProject(row scanner) (projectRow, error) {
	var p projectRow
	var pool sql.NullString
	var created int64
	err := row.Scan(&p.ID, &p.Name, &p.Remote, &p.DefaultRef, &pool, &created)
	p.poolID, p.CreatedAt = pool.String, fromNano(created)
	if pool.Valid {
		p.ExecutorID = executorPrefix + pool.String
	}
	return p, err
}

func findProject(ctx context.Context, q querier, ref string) (projectRow, error) {
	// A name goes before an id, should somebody name a project like one.
	p, found, err := first(ctx, q, scanProject, selectProjects+" WHERE name = ? OR id = ? ORDER BY name = ? DESC LIMIT 1", ref, ref, ref)
	if err == nil && !found {
		err = problem.New(hubv1.CodeNotFound, "there is no project %q", ref)
	}
	return p, err
}

// CreateProject makes a project.
func (s *Store) CreateProject(ctx context.Context, actor string, key Key, request hubv1.CreateProjectRequest) (hubv1.Project, error) {
	id := ""
	err := s.update(ctx, func(tx *Tx) error {
		var repeated bool
		var err error
		if id, repeated, err = tx.repeats(actor, key, request); err != nil || repeated {
			return err
		}
		if _, taken, err := first(ctx, tx, scanProject, selectProjects+" WHERE name = ?", request.Name); err != nil {
			return err
		} else if taken {
			return problem.New(hubv1.CodeConflict, "project %s exists", request.Name)
		}
		ref := request.DefaultRef
		if ref == "" {
			ref = "main"
		}
		id = newID("project")
		if _, err := tx.exec("INSERT INTO projects (id, name, remote, default_ref, created_at) VALUES (?, ?, ?, ?, ?)",
			id, request.Name, request.Remote, ref, nano(tx.now)); err != nil {
			return err
		}
		if err := tx.audit(record{actor: actor, action: ActionProjectCreate, object: id, detail: request.Name + " " + request.Remote}); err != nil {
			return err
		}
		return tx.remember(actor, key, request, id)
	})
	if err != nil {
		return hubv1.Project{}, err
	}
	return s.GetProject(ctx, id)
}

// GetProject returns a project by name or id.
func (s *Store) GetProject(ctx context.Context, ref string) (hubv1.Project, error) {
	p, err := findProject(ctx, s.reader, ref)
	return p.Project, err
}

// ListProjects lists the projects by name.
func (s *Store) ListProjects(ctx context.Context) ([]hubv1.Project, error) {
	rows, err := collect(ctx, s.reader, scanProject, selectProjects+" ORDER BY name")
	out := make([]hubv1.Project, 0, len(rows))
	for _, row := range rows {
		out = append(out, row.Project)
	}
	return out, err
}

// BindProject binds a project to a pool. Runs that wait for another pool leave
// its queue.
func (s *Store) BindProject(ctx context.Context, actor, ref, executor string) (hubv1.Project, error) {
	pool, found := strings.CutPrefix(executor, executorPrefix)
	if !found {
		return hubv1.Project{}, problem.New(hubv1.CodeInvalid, "executor %q is not pool:<id>", executor)
	}
	err := s.update(ctx, func(tx *Tx) error {
		project, err := findProject(ctx, tx, ref)
		if err != nil {
			return err
		}
		row, err := findPool(ctx, tx, pool)
		if err != nil {
			return err
		}
		if row.State != hubv1.PoolActive {
			return problem.New(hubv1.CodePoolRevoked, "pool %s is %s", row.Name, row.State)
		}
		if project.poolID == row.ID {
			return nil
		}
		if _, err := tx.exec("UPDATE projects SET pool_id = ? WHERE id = ?", row.ID, project.ID); err != nil {
			return err
		}
		if err := tx.audit(record{actor: actor, action: ActionProjectBind, pool: row.ID, object: project.ID, detail: "was " + project.ExecutorID}); err != nil {
			return err
		}
		waiting, err := collect(ctx, tx, scanRun, selectRuns+" WHERE r.project_id = ? AND r.pool_id <> ? AND r.settled_at IS NULL AND r.state = 'queued'", project.ID, row.ID)
		if err != nil {
			return err
		}
		for _, run := range waiting {
			if err := tx.settleRun(actor, run, outcome{state: hubv1.RunCancelled, reason: "project " + project.Name + " was bound to another pool"}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return hubv1.Project{}, err
	}
	return s.GetProject(ctx, ref)
}
