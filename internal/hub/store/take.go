package store

import (
	"context"
	"database/sql"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// candidate is a run in a pool's queue, with what decides who may take it.
type candidate struct {
	seq                  int64 // rises in the order of the queue
	id                   string
	project, projectName string // project is the id
	startedBy            string
	// waitsSince is when it came into the queue, the last time where it was handed out
	// before.
	waitsSince time.Time
	// boundTo is the pool that its project is bound to by now; empty: to none.
	boundTo string
	// requirements are what it asks of its runner; nil: nobody knows.
	requirements *hubv1.Requirements
}

// passing is why a runner passes a run over; the zero value: it may take it.
type passing int

const (
	kept   passing = iota + 1 // for another project
	cannot                    // check what a project asks for
)

// mayTake says why the runner may not take the run; 0: it may. It is the one
// place where that is decided. What the pool as a whole does not take has left
// its queue, and is not this function's to see.
func mayTake(run candidate, r runnerRow) passing {
	if !mayHold(r, run.project) {
		return kept
	}
	if run.requirements == nil && !r.checks {
		return cannot
	}
	return 0
}

// passedOver is why all of some runners pass a run over.
type passedOver struct{ kept, cannot int }

func (p *passedOver) add(why passing) {
	if why == kept {
		p.kept++
	} else {
		p.cannot++
	}
}

func (p passedOver) String() string {
	switch {
	case p.kept == 1 && p.cannot == 0:
		return "it is kept for another project, whose volume it has"
	case p.cannot == 1 && p.kept == 0:
		return "its build cannot check what a project asks for"
	case p.cannot == 0:
		return "they are kept for other projects, whose volumes they have"
	case p.kept == 0:
		return "their builds cannot check what a project asks for"
	}
	return "some are kept for other projects, whose volumes they have, and the builds of the others cannot check what a project asks for"
}

// match gives the runs, oldest first, each to the first of the runners that may
// take it: so each runner gets the oldest run that it may take, and no run waits
// beside a runner that may. The runners that are left are returned.
func match(runs []candidate, runners []runnerRow, hand func(candidate, runnerRow) (bool, error)) ([]runnerRow, error) {
	for _, run := range runs {
		for i, r := range runners {
			if mayTake(run, r) != 0 {
				continue
			}
			taken, err := hand(run, r)
			if err != nil {
				return runners, err
			}
			if taken {
				runners = append(runners[:i:i], runners[i+1:]...)
			}
			break
		}
	}
	return runners, nil
}

// queuePage is how many runs of a queue are read at a time where the runners may
// take only some of them.
const queuePage = 64

// handOff gives the oldest queued runs to the idle runners that listen and may
// take them: first to those that have the project's volume, then to the
// longest idle. A run that its pool does not take any more leaves the queue here.
func (tx *Tx) handOff(pool poolRow, listens func(runnerRow) bool) error {
	ctx := context.Background()
	idle, err := collect(ctx, tx, scanRunner, selectRunners+" WHERE pool_id = ? AND state <> 'retired' AND state = 'idle' ORDER BY enrolled_at, id", pool.ID)
	if err != nil {
		return err
	}
	listening := idle[:0]
	for _, r := range idle {
		if listens(r) {
			listening = append(listening, r)
		}
	}
	listening = holdersFirst(listening)
	limit := len(listening) // enough where every runner may take every run
	for after := int64(0); len(listening) > 0; {
		page, err := collect(ctx, tx, scanCandidate, selectCandidates, pool.ID, after, limit)
		if err != nil || len(page) == 0 {
			return err
		}
		limit = queuePage
		after = page[len(page)-1].seq
		if listening, err = match(page, listening, func(run candidate, r runnerRow) (bool, error) { return tx.handOrDrop(pool, run, r) }); err != nil {
			return err
		}
	}
	return nil
}

// selectCandidates reads what decides who may take a run, and whether its pool
// does: asked of each run, the database would be waited for as often.
const selectCandidates = `SELECT r.seq, r.id, r.project_id, j.name, r.started_by, COALESCE(r.requeued_at, r.queued_at), COALESCE(j.pool_id, ''), r.requirements
	FROM runs r JOIN projects j ON j.id = r.project_id
	WHERE r.pool_id = ? AND r.settled_at IS NULL AND r.state = 'queued' AND r.seq > ? ORDER BY r.seq LIMIT ?`

func scanCandidate(row scanner) (candidate, error) {
	var c candidate
	var since int64
	var requirements sql.NullString
	err := row.Scan(&c.seq, &c.id, &c.project, &c.projectName, &c.startedBy, &since, &c.boundTo, &requirements)
	if err != nil {
		return c, err
	}
	c.waitsSince = fromNano(since)
	c.requirements, err = optionalJSON[hubv1.Requirements](requirements)
	return c, err
}

// candidate is what of a run in the queue decides who may take it.
func (r runRow) candidate() candidate {
	return candidate{
		seq: r.seq, id: r.ID, project: r.projectID, projectName: r.Project, startedBy: r.StartedBy, waitsSince: r.waitsSince,
		boundTo: r.boundTo, requirements: r.Requirements,
	}
}

// handOrDrop hands the run to the runner, unless the pool does not take it any
// more: whoever started it may have lost the right since.
func (tx *Tx) handOrDrop(pool poolRow, c candidate, r runnerRow) (handed bool, err error) {
	refused, err := tx.refuses(pool, c)
	if err != nil {
		return false, err
	}
	if refused == nil {
		return true, tx.hand(c, r)
	}
	run, err := findRun(context.Background(), tx, c.id)
	if err != nil {
		return false, err
	}
	return false, tx.drop(actorHub, run, noLonger(refused))
}

// noLonger is why a run leaves the queue that is not handed out any more.
func noLonger(refused *hubv1.Problem) string {
	if refused.Code == hubv1.CodeForbidden || refused.Code == hubv1.CodeProjectUnbound {
		return refused.Detail // it is not the pool's doing
	}
	text := "the pool no longer takes it: " + refused.Detail
	for _, field := range refused.Errors {
		text += "; " + field.Message
	}
	return text
}
