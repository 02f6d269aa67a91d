package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// runRow is a run with what only the hub needs to know.
type runRow struct {
	hubv1.Run
	// seq is the run's place in the queue.
	seq       int64
	projectID string
	// boundTo is the pool that its project is bound to by now; empty: to none.
	boundTo string
	// waitsSince is when it came into the queue, the last time where it did so again.
	waitsSince time.Time
	handOffs   int
	logNext    int64
	logFull    bool
	// recalled says that the hub waits for the runner to let go of the run.
	recalled bool
}

// selectRuns reads whole runs, for people. Commands may be long, and there may be
// thousands: what decides over runs reads their heads, which are without.
const (
	selectRuns  = selectBefore + "r.command" + selectBehind
	selectHeads = selectBefore + "'[]'" + selectBehind
)

const (
	selectBefore = `SELECT r.seq, r.id, j.name, r.project_id, COALESCE(j.pool_id, ''), r.pool_id, r.ref, r.commit_hash, `
	selectBehind = `, r.state, r.reason, r.exit_code, r.signal,
	r.attempt, r.hand_offs, r.failover, COALESCE(r.runner_id, r.former_runner), r.started_by, r.log_bytes, r.log_next, r.log_full, r.log_pruned_at, r.recalled_at IS NOT NULL, r.revision,
	r.queued_at, COALESCE(r.requeued_at, r.queued_at), r.handed_at, r.started_at, r.first_log_at, r.settled_at, r.requirements, r.pod_end
	FROM runs r JOIN projects j ON j.id = r.project_id`
)

func scanRun(row scanner) (runRow, error) {
	var (
		r                                  runRow
		command                            string
		exit                               sql.NullInt32
		queued, since                      int64
		handed, started, firstLog, settled sql.NullInt64
		pruned                             sql.NullInt64
		requirements, end                  sql.NullString
	)
	err := row.Scan(&r.seq, &r.ID, &r.Project, &r.projectID, &r.boundTo, &r.PoolID, &r.Ref, &r.Commit, &command, &r.State, &r.Reason, &exit, &r.Signal,
		&r.Attempt, &r.handOffs, &r.Failover, &r.Runner, &r.StartedBy, &r.LogBytes, &r.logNext, &r.logFull, &pruned, &r.recalled, &r.Revision,
		&queued, &since, &handed, &started, &firstLog, &settled, &requirements, &end)
	if err != nil {
		return r, err
	}
	if exit.Valid {
		r.ExitCode = &exit.Int32
	}
	if r.Requirements, err = optionalJSON[hubv1.Requirements](requirements); err != nil {
		return r, err
	}
	if r.PodEnd, err = optionalJSON[hubv1.PodEnd](end); err != nil {
		return r, err
	}
	r.QueuedAt, r.waitsSince, r.LogRemovedAt = fromNano(queued), fromNano(since), optionalTime(pruned)
	r.HandedAt, r.StartedAt, r.FirstLogAt, r.SettledAt = optionalTime(handed), optionalTime(started), optionalTime(firstLog), optionalTime(settled)
	return r, fromJSON(command, &r.Command)
}

// heldRun is the run, without its command, that the runner holds.
func heldRun(ctx context.Context, q querier, runner string) (runRow, bool, error) {
	return first(ctx, q, scanRun, selectHeads+" WHERE r.runner_id = ? AND r.settled_at IS NULL AND r.state <> 'queued'", runner)
}

// findRun is the run without its command.
func findRun(ctx context.Context, q querier, id string) (runRow, error) {
	r, found, err := first(ctx, q, scanRun, selectHeads+" WHERE r.id = ?", id)
	if err == nil && !found {
		err = noRun(id)
	}
	return r, err
}

func noRun(id string) *hubv1.Problem {
	return problem.New(hubv1.CodeNotFound, "there is no run %q", id)
}

// StartRun checks that the run may go to the project's pool, which must meet what
// the source of its ref asks for, and queues it. A runner that is idle has it
// when the method returns; with NoWait one does, or nothing is queued
// (CodeWaitingForCapacity).
func (s *Store) StartRun(ctx context.Context, actor string, key Key, request hubv1.StartRunRequest, source Source) (hubv1.Run, error) {
	id := ""
	err := s.update(ctx, func(tx *Tx) error {
		var repeated bool
		var err error
		if id, repeated, err = tx.repeats(actor, key, request); err != nil || repeated {
			return err
		}
		project, err := findProject(ctx, tx, request.Project)
		if err != nil {
			return err
		}
		if err := tx.seesProject(project); err != nil {
			return err
		}
		pool, err := tx.poolFor(project, actor)
		if err != nil {
			return err
		}
		if err := meets(pool, project.Name, source.Requirements); err != nil {
			return err
		}
		if err := tx.held(project.Name, source); err != nil {
			return err
		}
		if !request.NoWait { // else it has a runner at once, or is nothing
			if err := tx.room(actor, project, pool); err != nil {
				return err
			}
		}
		if id, err = tx.queue(actor, project, pool, request, source); err != nil {
			return err
		}
		if request.NoWait {
			if err := tx.handNow(project.Name, pool.ID, id); err != nil {
				return err
			}
		}
		return tx.remember(actor, key, request, id)
	})
	if err != nil {
		return hubv1.Run{}, err
	}
	return s.GetRun(ctx, id)
}

// StartedBefore finds the run that an earlier request with the key started.
func (s *Store) StartedBefore(ctx context.Context, actor string, key Key, request hubv1.StartRunRequest) (run hubv1.Run, found bool, err error) {
	id := ""
	err = s.update(ctx, func(tx *Tx) error {
		id, found, err = tx.repeats(actor, key, request)
		return err
	})
	if err != nil || !found {
		return run, false, err
	}
	run, err = s.GetRun(ctx, id)
	return run, err == nil, err
}

// queue puts a run into the pool's queue.
func (tx *Tx) queue(actor string, project projectRow, pool poolRow, request hubv1.StartRunRequest, source Source) (string, error) {
	ref, failover := request.Ref, request.Failover
	if failover == "" {
		failover = hubv1.FailoverOnce
	}
	if ref == "" || ref == project.DefaultRef {
		ref = project.DefaultRef
		if err := tx.keepSource(project.ID, source); err != nil {
			return "", err
		}
	}
	var requirements any
	if source.Requirements != nil {
		requirements = asJSON(source.Requirements)
	}
	id := newID("run")
	if err := tx.send(`INSERT INTO runs (id, project_id, pool_id, ref, commit_hash, requirements, command, state, failover, started_by, revision, queued_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, 'queued', ?, ?, 1, ?)`,
		id, project.ID, pool.ID, ref, source.Commit, requirements, asJSON(request.Command), failover, actor, nano(tx.now)); err != nil {
		return "", err
	}
	tx.touch(pool.ID)
	return id, tx.audit(record{actor: actor, action: ActionRunQueue, pool: pool.ID, object: id, state: string(hubv1.RunQueued), detail: "project " + project.Name})
}

// poolFor is the pool that the project's runs go to, if the person may.
func (tx *Tx) poolFor(project projectRow, actor string) (poolRow, error) {
	if project.poolID == "" {
		return poolRow{}, problem.New(hubv1.CodeProjectUnbound, "project %s is bound to no pool", project.Name)
	}
	pool, err := findPool(context.Background(), tx, project.poolID)
	if err != nil {
		return pool, err
	}
	if pool.State != hubv1.PoolActive {
		return pool, problem.New(hubv1.CodePoolRevoked, "pool %s, to which project %s is bound, is %s", pool.Name, project.Name, pool.State)
	}
	return pool, tx.admit(pool, project.Name, project.ID, actor)
}

// GetRun returns a run.
func (s *Store) GetRun(ctx context.Context, id string) (run hubv1.Run, err error) {
	err = s.view(ctx, func(q querier) error {
		row, found, err := first(ctx, q, scanRun, selectRuns+" WHERE r.id = ?", id)
		if err == nil && !found {
			err = noRun(id)
		}
		if err != nil {
			return err
		}
		shown, err := s.shown(ctx, q, row)
		if err == nil {
			run = shown[0]
		}
		return err
	})
	return run, err
}

// PlaceOfRun is the project that a run belongs to, and the name of the pool that
// it is for.
func (s *Store) PlaceOfRun(ctx context.Context, run string) (project hubv1.Project, pool string, err error) {
	err = s.view(ctx, func(q querier) error {
		p, found, err := first(ctx, q, scanProject, selectProjects+" WHERE id = (SELECT project_id FROM runs WHERE id = ?)", run)
		if err == nil && !found {
			err = noRun(run)
		}
		if err != nil {
			return err
		}
		project = p.Project
		pool, _, err = first(ctx, q, scanText, "SELECT name FROM pools WHERE id = (SELECT pool_id FROM runs WHERE id = ?)", run)
		return err
	})
	return project, pool, err
}

// CancelRun cancels a queued run at once and asks the runner of another to stop
// it. A settled run is returned as it is.
func (s *Store) CancelRun(ctx context.Context, actor, id string) (hubv1.Run, error) {
	err := s.update(ctx, func(tx *Tx) error {
		run, err := findRun(ctx, tx, id)
		if err == nil {
			err = tx.seesRun(run)
		}
		if err != nil {
			return err
		}
		_, err = tx.once(keyedIn(ctx), func() error { return tx.cancel(actor, run) })
		return err
	})
	if err != nil {
		return hubv1.Run{}, err
	}
	return s.GetRun(ctx, id)
}

func (tx *Tx) cancel(actor string, run runRow) error {
	switch run.State {
	case hubv1.RunQueued:
		return tx.settleRun(actor, run, outcome{state: hubv1.RunCancelled, reason: "cancelled by " + actor + " while it waited"})
	case hubv1.RunHanded, hubv1.RunRunning:
		if err := tx.send("UPDATE runs SET state = 'cancelling', reason = ?, deadline = ?, revision = revision + 1 WHERE id = ?",
			"cancelled by "+actor, nano(tx.now.Add(tx.store.Limits.CancelTimeout)), run.ID); err != nil {
			return err
		}
		if err := tx.bumpRunner(run.Runner); err != nil {
			return err
		}
		tx.runChanged(run)
		return tx.audit(record{actor: actor, action: ActionRunCancel, pool: run.PoolID, object: run.ID, state: string(hubv1.RunCancelling)})
	}
	return nil
}

// bumpRunner makes the runner's watch see a change of its run.
func (tx *Tx) bumpRunner(runner string) error {
	tx.wake(RunnerTopic(runner))
	return tx.send("UPDATE runners SET revision = revision + 1 WHERE id = ?", runner)
}

func (tx *Tx) runChanged(run runRow) {
	tx.touch(run.PoolID)
	tx.wake(RunTopic(run.ID))
	// Whoever follows the log wants to know when it ends.
	tx.wake(LogTopic(run.ID))
	tx.hurry = true
}

// runOf is the run that the runner holds at this attempt.
func (tx *Tx) runOf(r Runner, id string, attempt int32) (runRow, error) {
	run, err := findRun(context.Background(), tx, id)
	if err != nil {
		return run, err
	}
	if run.Runner != r.ID || run.Attempt != attempt || run.State == hubv1.RunQueued || run.recalled {
		return run, problem.New(hubv1.CodeRunNotHeld, "runner %s does not hold attempt %d of run %s", r.ID, attempt, id)
	}
	return run, nil
}

// Started says that the run's command has started.
func (s *Store) Started(ctx context.Context, r Runner, id string, request hubv1.StartedRequest) error {
	return s.update(ctx, func(tx *Tx) error {
		row, err := tx.liveRunner(r)
		if err != nil {
			return err
		}
		run, err := tx.runOf(r, id, request.Attempt)
		if err != nil {
			return err
		}
		if run.State.Terminal() {
			return problem.New(hubv1.CodeRunNotHeld, "run %s is settled: %s", id, run.State)
		}
		if err := tx.renew(row); err != nil || run.StartedAt != nil {
			return err
		}
		at := request.StartedAt
		// The runner's clock may be wrong; the order of a run's times may not.
		if at.Before(*run.HandedAt) || at.After(tx.now) {
			at = tx.now
		}
		if err := tx.send(`UPDATE runs SET state = CASE state WHEN 'handed' THEN 'running' ELSE state END,
			deadline = CASE state WHEN 'handed' THEN NULL ELSE deadline END,
			commit_hash = ?, started_at = ?, revision = revision + 1 WHERE id = ?`, request.Commit, nano(at), id); err != nil {
			return err
		}
		tx.runChanged(run)
		state := hubv1.RunRunning
		if run.State == hubv1.RunCancelling {
			state = run.State
		}
		return tx.audit(record{actor: r.actor(), action: ActionRunStarted, pool: run.PoolID, object: id, state: string(state),
			detail: request.Commit, took: at.Sub(run.waitsSince)})
	})
}

// Result settles the run and retires the runner.
func (s *Store) Result(ctx context.Context, r Runner, id string, request hubv1.ResultRequest) error {
	return s.update(ctx, func(tx *Tx) error {
		row, err := tx.liveRunner(r)
		if err != nil {
			return err
		}
		run, err := tx.runOf(r, id, request.Attempt)
		if err != nil || run.State.Terminal() {
			return err
		}
		if err := tx.settleRun(r.actor(), run, outcomeOf(run, request)); err != nil {
			return err
		}
		if row.state != hubv1.RunnerBusy {
			return nil
		}
		return tx.retiring(r.actor(), row, "its run is settled")
	})
}

// outcome is how a run ended.
type outcome struct {
	state  hubv1.RunState
	reason string
	exit   *int32
	signal string
}

func outcomeOf(run runRow, request hubv1.ResultRequest) outcome {
	out := outcome{state: hubv1.RunFailed, exit: request.ExitCode, signal: request.Signal}
	switch {
	case request.Cancelled && run.State == hubv1.RunCancelling:
		out.state, out.reason = hubv1.RunCancelled, run.Reason
	case request.Error != "":
		out.reason = request.Error
	case request.ExitCode != nil && *request.ExitCode == 0 && request.Signal == "":
		out.state = hubv1.RunSucceeded
	case request.Signal != "":
		out.reason = "the command was ended by the signal " + request.Signal
	case request.ExitCode != nil:
		out.reason = fmt.Sprintf("the command exited with code %d", *request.ExitCode)
	default:
		out.reason = "the runner reported no exit code"
	}
	return out
}

// settleRun ends a run for good.
func (tx *Tx) settleRun(actor string, run runRow, out outcome) error {
	var exit any
	if out.exit != nil {
		exit = *out.exit
	}
	if err := tx.send(`UPDATE runs SET state = ?, reason = ?, exit_code = ?, signal = ?, settled_at = ?, deadline = NULL, recalled_at = NULL, revision = revision + 1
		WHERE id = ? AND settled_at IS NULL`, string(out.state), out.reason, exit, out.signal, nano(tx.now), run.ID); err != nil {
		return err
	}
	tx.runChanged(run)
	return tx.audit(record{actor: actor, action: ActionRunSettled, pool: run.PoolID, object: run.ID, state: string(out.state), detail: out.reason})
}
