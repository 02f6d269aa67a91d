package store

import (
	"context"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hub/problem"
)

// Waiting is how many runs may wait at a time. Zero stands for the default. Each
// waiting run keeps its command, at most hubv1.MaxCommandBytes, so these bound
// what a queue takes of the disk. A run that comes back from a runner waits again
// whatever the bounds say.
type Waiting struct {
	// PerUser bounds the runs that one user started; 1,000.
	PerUser int
	// PerProject bounds those of one project; 2,000.
	PerProject int
	// PerPool bounds those of one pool; 10,000.
	PerPool int
}

// Defaults returns the bounds where the zero value stands for the default.
func (w Waiting) Defaults() Waiting {
	def(&w.PerUser, 1_000)
	def(&w.PerProject, 2_000)
	def(&w.PerPool, 10_000)
	return w
}

// selectWaiting counts what waits of a user and of a project, no more than matter, in one query: whoever
// queues a run waits for the answer.
const selectWaiting = `SELECT
	(SELECT COUNT(*) FROM (SELECT 1 AS one FROM runs WHERE started_by = ? AND settled_at IS NULL AND state = 'queued' LIMIT ?) AS users),
	(SELECT COUNT(*) FROM (SELECT 1 AS one FROM runs WHERE project_id = ? AND settled_at IS NULL AND state = 'queued' LIMIT ?) AS projects)`

func scanWaiting(row scanner) (w Waiting, err error) {
	return w, row.Scan(&w.PerUser, &w.PerProject)
}

// room refuses one more run where as many wait as may. Changes follow one another
// on both databases, so two that come at once do not both get the last place.
func (tx *Tx) room(actor string, project projectRow, pool poolRow) error {
	most := tx.store.Limits.Waiting
	waiting, _, err := first(context.Background(), tx, scanWaiting, selectWaiting, actor, most.PerUser, project.ID, most.PerProject)
	if err != nil {
		return err
	}
	for _, bound := range []struct {
		waiting, most      int
		whose, of, setting string
	}{
		{waiting.PerUser, most.PerUser, actor, "user", "perUser"},
		{waiting.PerProject, most.PerProject, "project " + project.Name, "project", "perProject"},
		{int(pool.Queued), most.PerPool, "pool " + pool.Name, "pool", "perPool"},
	} {
		if bound.waiting >= bound.most {
			return problem.New(hubv1.CodeQueueFull, "%s of %s wait, and no more may of one %s (limits.waiting.%s of the hub's configuration)",
				count.Of(bound.most, "run"), bound.whose, bound.of, bound.setting)
		}
	}
	return nil
}
