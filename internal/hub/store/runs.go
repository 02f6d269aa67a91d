package store

import (
	"context"

	"cloop.dev/cloop/apis/hubv1"
)

// RunsQuery asks for a page of runs.
type RunsQuery struct {
	// Projects are the ids of those whose runs are listed; nil: of all.
	Projects []string
	// Cursor is hubv1.RunList.Next of the page before; 0: from the newest on.
	Cursor int64
	// Limit is the most runs of the page. It has fewer where they are large.
	Limit int
}

// ListRuns lists runs, newest first, of one project unless that is empty.
func (s *Store) ListRuns(ctx context.Context, project string, limit int) ([]hubv1.Run, error) {
	page, err := s.Runs(ctx, project, RunsQuery{Limit: limit})
	return page.Items, err
}

// Runs is a page of runs, newest first: of one project unless that is empty.
func (s *Store) Runs(ctx context.Context, project string, query RunsQuery) (page hubv1.RunList, err error) {
	page.Items = []hubv1.Run{}
	err = s.viewPage(ctx, func(q querier) error {
		if project != "" {
			p, err := findProject(ctx, q, project)
			if err != nil {
				return err
			}
			query.Projects = []string{p.ID}
		}
		page, err = s.pageOfRuns(ctx, q, query)
		return err
	})
	return page, err
}

// pageOfRuns leaves out the runs that the ceiling of whoever asks hides.
func (s *Store) pageOfRuns(ctx context.Context, q querier, query RunsQuery) (hubv1.RunList, error) {
	page := hubv1.RunList{Items: []hubv1.Run{}}
	where, args := " WHERE 1 = 1", []any{}
	among := func(column string, ids []string) {
		where += " AND " + column + " IN (" + places(len(ids)) + ")"
		for _, id := range ids {
			args = append(args, id)
		}
	}
	if query.Projects != nil {
		if len(query.Projects) == 0 {
			return page, nil
		}
		among("r.project_id", query.Projects)
	}
	if ceiling := ceilingIn(ctx); len(ceiling.Names) > 0 {
		pools, err := poolsWithin(ctx, q, ceiling)
		if err != nil || len(pools) == 0 {
			return page, err
		}
		among("r.pool_id", pools)
	}
	if query.Cursor > 0 {
		where, args = where+" AND r.seq < ?", append(args, query.Cursor)
	}
	sizes, err := collect(ctx, q, scanSize, `SELECT r.seq, octet_length(r.command) + octet_length(r.reason) + COALESCE(octet_length(r.requirements), 0)
		+ COALESCE((SELECT SUM(octet_length(a.reason)) FROM run_attempts a WHERE a.run_id = r.id), 0)
		FROM runs r`+where+" ORDER BY r.seq DESC LIMIT ?", append(args, query.Limit+1)...)
	if err != nil || len(sizes) == 0 {
		return page, err
	}
	n := fitting(sizes[:min(len(sizes), query.Limit)], func(s size) int64 { return s.bytes })
	if n < len(sizes) {
		page.Next = sizes[n-1].seq
	}
	rows, err := collect(ctx, q, scanRun, selectRuns+where+" AND r.seq >= ? ORDER BY r.seq DESC", append(args, sizes[n-1].seq)...)
	if err != nil {
		return page, err
	}
	page.Items, err = s.shown(ctx, q, rows...)
	return page, err
}

// size is how much of a page a run takes.
type size struct{ seq, bytes int64 }

func scanSize(row scanner) (out size, err error) { return out, row.Scan(&out.seq, &out.bytes) }
