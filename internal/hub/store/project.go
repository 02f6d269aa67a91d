package store

import (
	"context"
	"database/sql"
	"math"
	"strconv"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// executorPrefix begins an executor id that names a pool.
const executorPrefix = "pool:"

type projectRow struct {
	hubv1.Project
	poolID string
	// ref is that by which it was looked for; empty where it was not.
	ref string
}

const selectProjects = "SELECT id, name, COALESCE(idx, 0), owner, remote, default_ref, pool_id, requirements, dropped, created_at FROM projects"

func scanProject(row scanner) (projectRow, error) {
	var p projectRow
	var pool, requirements, dropped sql.NullString
	var created int64
	err := row.Scan(&p.ID, &p.Name, &p.Index, &p.Owner, &p.Remote, &p.DefaultRef, &pool, &requirements, &dropped, &created)
	if err != nil {
		return p, err
	}
	if p.Requirements, err = optionalJSON[hubv1.ProjectRequirements](requirements); err != nil {
		return p, err
	}
	if p.Dropped, err = optionalJSON[hubv1.Dropped](dropped); err != nil {
		return p, err
	}
	p.poolID, p.CreatedAt = pool.String, fromNano(created)
	if pool.Valid {
		p.ExecutorID = executorPrefix + pool.String
	}
	return p, nil
}

// indexPrefix begins what names a project by its place in the order in which
// projects were made. No name and no id begins so.
const indexPrefix = "#"

// ProjectAt is what the methods take for the project of an index, as it was written
// in digits: there may be more of them than there are numbers.
func ProjectAt(index string) string { return indexPrefix + index }

// findProject finds a project by name, id or ProjectAt.
func findProject(ctx context.Context, q querier, ref string) (p projectRow, err error) {
	var found bool
	if text, by := strings.CutPrefix(ref, indexPrefix); by {
		if index, wrong := strconv.ParseInt(text, 10, 64); wrong == nil {
			p, found, err = first(ctx, q, scanProject, selectProjects+" WHERE idx = ?", index)
		}
	} else {
		// A name goes before an id, should somebody name a project like one.
		p, found, err = first(ctx, q, scanProject, selectProjects+" WHERE name = ? OR id = ? ORDER BY name = ? DESC LIMIT 1", ref, ref, ref)
	}
	if err == nil && !found {
		err = NoProject(ref)
	}
	p.ref = ref
	return p, err
}

// NoProject says that there is no project of a name, an id or ProjectAt.
func NoProject(ref string) *hubv1.Problem {
	if index, by := strings.CutPrefix(ref, indexPrefix); by {
		return problem.New(hubv1.CodeNotFound, "there is no project of index %s", index)
	}
	return problem.New(hubv1.CodeNotFound, "there is no project %q", ref)
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
		if _, err := tx.exec("INSERT INTO projects (id, name, owner, remote, default_ref, created_at) VALUES (?, ?, ?, ?, ?, ?)",
			id, request.Name, actor, request.Remote, ref, nano(tx.now)); err != nil {
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

// FindProject returns a project by name or id, without what its runs do.
func (s *Store) FindProject(ctx context.Context, ref string) (hubv1.Project, error) {
	p, err := findProject(ctx, s.reader, ref)
	return p.Project, err
}

// GetProject returns a project by name or id. One that is bound to a pool that
// the ceiling of whoever asks hides is not there.
func (s *Store) GetProject(ctx context.Context, ref string) (out hubv1.Project, err error) {
	err = s.view(ctx, func(q querier) error {
		p, err := findProject(ctx, q, ref)
		if err != nil {
			return err
		}
		hidden, err := p.hidden(ctx, q, ceilingIn(ctx))
		if err == nil && hidden {
			err = NoProject(ref)
		}
		if err == nil {
			err = p.veil(ctx, q, ceilingIn(ctx))
		}
		if err != nil {
			return err
		}
		if p.Paused, err = s.paused(ctx, q, p); err != nil {
			return err
		}
		out = p.Project
		return nil
	})
	return out, err
}

// ListProjects lists the projects by name, without those that are bound to pools
// that the ceiling of whoever asks hides.
func (s *Store) ListProjects(ctx context.Context) (out []hubv1.Project, err error) {
	err = s.view(ctx, func(q querier) error {
		rows, err := collect(ctx, q, scanProject, selectProjects+" ORDER BY name")
		if err != nil {
			return err
		}
		out = make([]hubv1.Project, 0, len(rows))
		for _, row := range rows {
			hidden, err := row.hidden(ctx, q, ceilingIn(ctx))
			if err != nil {
				return err
			}
			if hidden {
				continue
			}
			if err := row.veil(ctx, q, ceilingIn(ctx)); err != nil {
				return err
			}
			if row.Paused, err = s.paused(ctx, q, row); err != nil {
				return err
			}
			out = append(out, row.Project)
		}
		return nil
	})
	return out, err
}

// paused says why the oldest of the project's runs that wait does.
func (s *Store) paused(ctx context.Context, q querier, p projectRow) (*hubv1.Paused, error) {
	// A run waits for the pool that its project is bound to, and for no other.
	waiting, _, err := first(ctx, q, scanInt, `SELECT COUNT(*) FROM runs
		WHERE pool_id = ? AND settled_at IS NULL AND state = 'queued' AND project_id = ?`, p.poolID, p.ID)
	if err != nil || waiting == 0 {
		return nil, err
	}
	oldest, found, err := first(ctx, q, scanRun, selectHeads+
		" WHERE r.pool_id = ? AND r.settled_at IS NULL AND r.state = 'queued' AND r.project_id = ? ORDER BY r.seq LIMIT 1", p.poolID, p.ID)
	if err != nil || !found {
		return nil, err
	}
	runs, err := s.shown(ctx, q, oldest)
	if err != nil {
		return nil, err
	}
	return &hubv1.Paused{Reason: hubv1.PausedForCapacity, Runs: int32(min(waiting, math.MaxInt32)), Message: runs[0].Reason}, nil //nolint:gosec // bounded
}

// BindProject binds a project to a pool, unless that does not meet what the
// project's default ref, which the source is of, asks for. Runs that wait for
// another pool leave its queue.
func (s *Store) BindProject(ctx context.Context, actor, ref, executor string, source Source) (hubv1.Project, error) {
	pool, found := strings.CutPrefix(executor, executorPrefix)
	if !found {
		return hubv1.Project{}, problem.New(hubv1.CodeInvalid, "executor %q is not pool:<id>", executor)
	}
	err := s.once(ctx, func(tx *Tx) error {
		project, err := findProject(ctx, tx, ref)
		if err != nil {
			return err
		}
		if err := tx.leaves(project); err != nil {
			return err
		}
		row, err := findPool(ctx, tx, pool)
		if err != nil {
			return err
		}
		if err := tx.reaches(row); err != nil {
			return err
		}
		if row.State != hubv1.PoolActive {
			return problem.New(hubv1.CodePoolRevoked, "pool %s is %s", row.Name, row.State)
		}
		if err := meets(row, project.Name, source.Requirements); err != nil {
			return err
		}
		if err := tx.keepSource(project.ID, source); err != nil || project.poolID == row.ID {
			return err
		}
		if _, err := tx.exec("UPDATE projects SET pool_id = ? WHERE id = ?", row.ID, project.ID); err != nil {
			return err
		}
		if err := tx.audit(record{actor: actor, action: ActionProjectBind, pool: row.ID, object: project.ID, detail: "was " + project.ExecutorID}); err != nil {
			return err
		}
		waiting, err := collect(ctx, tx, scanRun, selectHeads+" WHERE r.project_id = ? AND r.pool_id <> ? AND r.settled_at IS NULL AND r.state = 'queued'", project.ID, row.ID)
		if err != nil {
			return err
		}
		for _, run := range waiting {
			if err := tx.drop(actor, run, noLonger(boundElsewhere(project.Name))); err != nil {
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
