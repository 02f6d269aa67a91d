package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/token"
)

// Runner is a runner that has proved who it is.
type Runner struct{ ID, PoolID string }

func (r Runner) actor() string { return "runner:" + r.ID }

type runnerRow struct {
	Runner
	credential, key, name string
	// holds is whose data the runner's volume has, and holdsProject the project
	// that it is kept for; empty: nobody's.
	holds, holdsProject string
	state               hubv1.RunnerState
	tokenExpires        int64
	revision            int64
	// checks says that the runner finds out by itself what a project asks for.
	checks bool
	// heardBy is the member that it has a watch open at; empty with SQLite.
	heardBy string
	// podEnd is how its controller says that its Pod has ended, although it has a
	// watch open: a GoneRequest as JSON; empty: nobody says so.
	podEnd string
}

const selectRunners = "SELECT id, pool_id, credential_id, key, name, holds, COALESCE(holds_project, ''), state, token_expires_at, revision, checks, heard_by, COALESCE(pod_end, '') FROM runners"

func scanRunner(row scanner) (runnerRow, error) {
	var r runnerRow
	err := row.Scan(&r.ID, &r.PoolID, &r.credential, &r.key, &r.name, &r.holds, &r.holdsProject, &r.state, &r.tokenExpires, &r.revision, &r.checks, &r.heardBy, &r.podEnd)
	return r, err
}

// Mint makes a runner under the pool's maximum, or a new token for one whose
// token is not redeemed yet.
func (s *Store) Mint(ctx context.Context, c Credential, key string) (hubv1.MintResponse, error) {
	return s.MintHolding(ctx, c, hubv1.MintRequest{Key: key})
}

// MintHolding is Mint for a runner that may hold a project's volume: it gets that
// project's runs only. A repeated mint cannot change whose.
func (s *Store) MintHolding(ctx context.Context, c Credential, request hubv1.MintRequest) (out hubv1.MintResponse, err error) {
	name := ""
	err = s.update(ctx, func(tx *Tx) error {
		if err := tx.live(c); err != nil {
			return err
		}
		pool, err := findPool(ctx, tx, c.PoolID)
		if err != nil {
			return err
		}
		name = pool.Name
		switch {
		case pool.State != hubv1.PoolActive:
			return problem.New(hubv1.CodePoolRevoked, "pool %s is %s", pool.Name, pool.State)
		case pool.Cordon != nil:
			return problem.New(hubv1.CodePoolCordoned, "pool %s is cordoned: %s", pool.Name, pool.Cordon.Reason)
		}
		old, found, err := first(ctx, tx, scanRunner, selectRunners+" WHERE key = ? AND "+ofController, request.Key, c.PoolID, c.ID, c.ID)
		if err != nil {
			return err
		}
		text := token.New(token.Runner).Reveal()
		out = hubv1.MintResponse{RunnerID: old.ID, Token: text, ExpiresAt: tx.now.Add(tx.store.Limits.TokenTTL)}
		if request.Holds != "" {
			if err := tx.holdsKept(); err != nil {
				return err
			}
		}
		if found && old.holds != request.Holds {
			return problem.New(hubv1.CodeConflict, "the runner of key %s was minted as holding another volume", old.key)
		}
		if found {
			return tx.remint(c, old, out)
		}
		out.RunnerID = newID("runner")
		return tx.mint(c, pool, request, out)
	})
	var refused *hubv1.Problem
	if errors.As(err, &refused) && name != "" {
		s.refused(name, refused.Code)
	}
	if err != nil {
		out = hubv1.MintResponse{}
	}
	return out, err
}

func (tx *Tx) mint(c Credential, pool poolRow, request hubv1.MintRequest, out hubv1.MintResponse) error {
	// Tokens that have run out but that the timer has not collected yet do not
	// count.
	held, _, err := first(context.Background(), tx, scanInt, `SELECT COUNT(*) FROM runners WHERE pool_id = ? AND state <> 'retired'
		AND NOT (state = 'starting' AND token_expires_at <= ?)`, pool.ID, nano(tx.now))
	if err != nil {
		return err
	}
	if held >= int64(pool.MaxRunners) {
		return problem.New(hubv1.CodePoolAtMaximum, "pool %s has %d of at most %s", pool.Name, held, count.Of(pool.MaxRunners, "runner"))
	}
	project, err := tx.heldProject(pool.ID, request.Holds)
	if err != nil {
		return err
	}
	if err := tx.send(`INSERT INTO runners (id, pool_id, credential_id, key, state, token_hash, token_expires_at, holds, holds_project, created_at, revision)
		VALUES (?, ?, ?, ?, 'starting', ?, ?, ?, ?, ?, 1)`,
		out.RunnerID, pool.ID, c.ID, request.Key, token.Hash(out.Token), nano(out.ExpiresAt), request.Holds, project.id(), nano(tx.now)); err != nil {
		return err
	}
	tx.touch(pool.ID)
	tx.hurry = true
	detail := "key " + request.Key
	if request.Holds != "" {
		detail += ", holds project " + project.Name
	}
	return tx.audit(record{actor: c.actor(), action: ActionRunnerMint, pool: pool.ID, object: out.RunnerID, state: string(hubv1.RunnerStarting), detail: detail})
}

func (tx *Tx) remint(c Credential, old runnerRow, out hubv1.MintResponse) error {
	switch {
	case old.state == hubv1.RunnerRetired, old.state == hubv1.RunnerStarting && old.tokenExpires <= nano(tx.now):
		return problem.New(hubv1.CodeRunnerRetired, "the runner of key %s is retired", old.key)
	case old.state != hubv1.RunnerStarting:
		return problem.New(hubv1.CodeTokenRedeemed, "the token of key %s has been redeemed", old.key)
	}
	if err := tx.send("UPDATE runners SET token_hash = ?, token_expires_at = ?, revision = revision + 1 WHERE id = ?",
		token.Hash(out.Token), nano(out.ExpiresAt), old.ID); err != nil {
		return err
	}
	return tx.audit(record{actor: c.actor(), action: ActionRunnerRemint, pool: old.PoolID, object: old.ID, state: string(old.state), detail: "key " + old.key})
}

// Enroll redeems a runner token, once ever.
func (s *Store) Enroll(ctx context.Context, request hubv1.EnrollRequest) (out hubv1.EnrollResponse, err error) {
	if token.Check(token.Runner, request.Token) != nil {
		return out, problem.New(hubv1.CodeTokenRefused, "that is no runner token")
	}
	session := token.New(token.Session).Reveal()
	err = s.update(ctx, func(tx *Tx) error {
		r, found, err := first(ctx, tx, scanRunner, selectRunners+" WHERE token_hash = ?", token.Hash(request.Token))
		switch {
		case err != nil:
			return err
		case !found:
			return problem.New(hubv1.CodeTokenRefused, "the runner token was never issued or has been replaced")
		case r.state == hubv1.RunnerStarting && r.tokenExpires <= nano(tx.now):
			return problem.New(hubv1.CodeTokenRefused, "the runner token has expired")
		case r.state == hubv1.RunnerRetired:
			return problem.New(hubv1.CodeTokenRefused, "the runner token is revoked or has been redeemed: its runner is retired")
		case r.state != hubv1.RunnerStarting:
			return problem.New(hubv1.CodeTokenRefused, "the runner token has been redeemed")
		}
		out.RunnerID = r.ID
		if err := tx.send(`UPDATE runners SET state = 'idle', session_hash = ?, name = ?, build = ?, checks = ?, enrolled_at = ?, lost_at = ?,
			revision = revision + 1 WHERE id = ? AND state = 'starting'`,
			token.Hash(session), request.Name, request.Build, flag(slices.Contains(request.Features, hubv1.FeatureRequirements)),
			nano(tx.now), nano(tx.lostAt()), r.ID); err != nil {
			return err
		}
		tx.runnerChanged(r.Runner)
		return tx.audit(record{actor: r.actor(), action: ActionRunnerEnroll, pool: r.PoolID, object: r.ID, state: string(hubv1.RunnerIdle), detail: request.Name})
	})
	out.Session = session
	if err != nil {
		out = hubv1.EnrollResponse{}
	}
	return out, err
}

// AuthRunner finds the runner of a session token.
func (s *Store) AuthRunner(ctx context.Context, text string) (Runner, error) {
	if token.Check(token.Session, text) != nil {
		return Runner{}, problem.New(hubv1.CodeUnauthenticated, "the bearer token is no session of a runner")
	}
	r, found, err := first(ctx, s.reader, scanRunner, selectRunners+" WHERE session_hash = ?", token.Hash(text))
	switch {
	case err != nil:
		return Runner{}, err
	case !found:
		return Runner{}, problem.New(hubv1.CodeUnauthenticated, "the session was never issued")
	case r.state == hubv1.RunnerRetired:
		return Runner{}, problem.New(hubv1.CodeRunnerRetired, "runner %s is retired", r.ID)
	case r.podEnd != "":
		err = s.spoke(ctx, r)
	}
	return r.Runner, err
}

// selectAssignment reads a runner, and what it holds, in one query: that is one
// snapshot by itself, and the runner that a run was handed to waits for it.
const selectAssignment = `SELECT n.revision, n.state, r.id, COALESCE(r.attempt, 0), COALESCE(r.state, ''), r.recalled_at IS NOT NULL,
	COALESCE(r.ref, ''), COALESCE(r.commit_hash, ''), COALESCE(r.command, ''), COALESCE(r.pool_id, ''), COALESCE(r.project_id, ''),
	COALESCE(j.name, ''), COALESCE(j.owner, ''), COALESCE(j.remote, ''), COALESCE(p.name, ''), CASE WHEN r.requirements IS NULL THEN p.definition END
	FROM runners n
	LEFT JOIN runs r ON r.runner_id = n.id AND r.settled_at IS NULL AND r.state <> 'queued'
	LEFT JOIN projects j ON j.id = r.project_id
	LEFT JOIN pools p ON p.id = r.pool_id
	WHERE n.id = ?`

func scanAssignment(row scanner) (hubv1.RunnerSnapshot, error) {
	var (
		out                    hubv1.RunnerSnapshot
		run                    hubv1.Assignment
		state                  hubv1.RunState
		id, definition         sql.NullString
		command, pool, project string
		owner                  string
		recalled               bool
		made                   poolRow
	)
	err := row.Scan(&out.Revision, &out.State, &id, &run.Attempt, &state, &recalled, &run.Ref, &run.Commit, &command, &pool, &project,
		&run.Project, &owner, &run.Remote, &made.Name, &definition)
	switch {
	case err != nil || !id.Valid:
		return out, err
	case recalled:
		out.State = hubv1.RunnerRetiring // it stops what it has, and leaves
		return out, nil
	}
	run.RunID, run.Holds = id.String, holdsOf(pool, project, owner)
	if definition.Valid {
		if err := fromJSON(definition.String, &made.PoolDefinition); err != nil {
			return out, err
		}
		run.Declared = new(declared(made))
	}
	out.Run, out.Cancel = &run, state == hubv1.RunCancelling
	return out, fromJSON(command, &run.Command)
}

// RunnerSnapshot is all that the runner needs to know.
func (s *Store) RunnerSnapshot(ctx context.Context, r Runner) (hubv1.RunnerSnapshot, error) {
	out, _, err := first(ctx, s.reader, scanAssignment, selectAssignment, r.ID)
	return out, err
}

// Heartbeat renews the runner's lease and returns its state. The lease of a
// runner that is retiring, or is to let go of its run, is not renewed, so that
// one which never says goodbye ends too.
func (s *Store) Heartbeat(ctx context.Context, r Runner) (state hubv1.RunnerState, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		row, err := tx.liveRunner(r)
		if err != nil {
			return err
		}
		if state = row.state; state == hubv1.RunnerBusy {
			run, held, err := heldRun(context.Background(), tx, r.ID)
			if err != nil {
				return err
			}
			if held && run.recalled {
				state = hubv1.RunnerRetiring
				return nil
			}
		}
		return tx.renew(row)
	})
	return state, err
}

func (tx *Tx) renew(r runnerRow) error {
	if r.state == hubv1.RunnerRetiring {
		return nil
	}
	return tx.send("UPDATE runners SET lost_at = ? WHERE id = ? AND lost_at IS NOT NULL", nano(tx.lostAt()), r.ID)
}

// Bye is the runner's last word. A run that it still holds is treated like the
// run of a lost runner.
func (s *Store) Bye(ctx context.Context, r Runner, reason string) error {
	return s.update(ctx, func(tx *Tx) error {
		row, found, err := first(ctx, tx, scanRunner, selectRunners+" WHERE id = ?", r.ID)
		if err != nil || !found || row.state == hubv1.RunnerRetired {
			return err
		}
		text := "the runner left"
		if reason != "" {
			text += ": " + reason
		}
		return tx.runnerLost(r.actor(), row, text)
	})
}

// Retire asks for a runner of the controller to be retired: one that has not
// enrolled loses its token, an idle one gets no run any more, a busy one stays.
// Of another controller's runner of the pool it says that it is retired, and
// nothing else.
func (s *Store) Retire(ctx context.Context, c Credential, id string) (state hubv1.RunnerState, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		row, own, err := tx.runnerFor(c, id)
		if err != nil {
			return err
		}
		state = row.state
		switch {
		case row.state == hubv1.RunnerRetired:
			return nil // which anybody of the pool may know
		case !own:
			return notOwn(id)
		}
		switch row.state {
		case hubv1.RunnerStarting:
			state = hubv1.RunnerRetired
			return tx.retired(c.actor(), row, "its controller retired it before it enrolled")
		case hubv1.RunnerIdle:
			state = hubv1.RunnerRetiring
			return tx.retiring(c.actor(), row, "its controller has no use for it")
		}
		return nil
	})
	return state, err
}

// Gone reports that the runner's Pod has ended. Without an exit code nobody has
// seen the runner end: it is gone from the cluster's books, and may be running
// all the same on a node that the cluster has lost. Its run goes to nobody else
// until its lease is over. A runner that has its watch open keeps its run,
// whatever is said of it (see podEnded).
// The state is what the runner has now.
func (s *Store) Gone(ctx context.Context, c Credential, id string, request hubv1.GoneRequest) (state hubv1.RunnerState, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		row, own, err := tx.runnerFor(c, id)
		if err == nil && !own {
			err = notOwn(id)
		}
		if err != nil {
			return err
		}
		state = row.state
		if telling(request) {
			// Its run may be settled already: the report is why.
			if err := tx.cause(c.actor(), row, request); err != nil {
				return err
			}
		}
		if row.state == hubv1.RunnerRetired {
			return nil
		}
		run, held, err := heldRun(ctx, tx, row.ID)
		if err != nil {
			return err
		}
		listens, err := tx.listensAnywhere()
		if err != nil {
			return err
		}
		cancelling := run.State == hubv1.RunCancelling
		switch {
		case held && listens(row):
			return tx.podEnded(c.actor(), row, request)
		case held && !cancelling && request.ExitCode == nil:
			// A run that is being cancelled goes to nobody else anyway.
			return tx.recall(c.actor(), run, goneText(request))
		}
		state = hubv1.RunnerRetired
		if err := tx.runnerLost(c.actor(), row, goneText(request)); err != nil || !held {
			return err
		}
		return tx.cause(c.actor(), row, request)
	})
	return state, err
}

func goneText(request hubv1.GoneRequest) string {
	var b strings.Builder
	b.WriteString("the runner's Pod ended: " + request.Reason)
	if request.ExitCode != nil {
		fmt.Fprintf(&b, " (exit code %d)", *request.ExitCode)
	}
	if request.Message != "" {
		b.WriteString(": " + request.Message)
	}
	return shown(b.String(), 1024)
}

// liveRunner reads the runner inside the transaction: it may have been retired
// since its session was checked.
func (tx *Tx) liveRunner(r Runner) (runnerRow, error) {
	row, found, err := first(context.Background(), tx, scanRunner, selectRunners+" WHERE id = ?", r.ID)
	if err == nil && (!found || row.state == hubv1.RunnerRetired) {
		err = problem.New(hubv1.CodeRunnerRetired, "runner %s is retired", r.ID)
	}
	return row, err
}

func (tx *Tx) runnerChanged(r Runner) {
	tx.touch(r.PoolID)
	tx.wake(RunnerTopic(r.ID))
	tx.hurry = true
}

// retiring lets the runner go: it gets no run any more.
func (tx *Tx) retiring(actor string, r runnerRow, reason string) error {
	if err := tx.send("UPDATE runners SET state = 'retiring', reason = ?, revision = revision + 1 WHERE id = ? AND state = ?",
		reason, r.ID, string(r.state)); err != nil {
		return err
	}
	tx.runnerChanged(r.Runner)
	return tx.audit(record{actor: actor, action: ActionRunnerRetiring, pool: r.PoolID, object: r.ID, state: string(hubv1.RunnerRetiring), detail: reason})
}

// retired ends the runner: token and session are refused from now on.
func (tx *Tx) retired(actor string, r runnerRow, reason string) error {
	if err := tx.send("UPDATE runners SET state = 'retired', retired_at = ?, lost_at = NULL, reason = ?, revision = revision + 1 WHERE id = ? AND state = ?",
		nano(tx.now), reason, r.ID, string(r.state)); err != nil {
		return err
	}
	tx.runnerChanged(r.Runner)
	return tx.audit(record{actor: actor, action: ActionRunnerRetired, pool: r.PoolID, object: r.ID, state: string(hubv1.RunnerRetired), detail: reason})
}

// runnerLost ends a runner whatever it was doing, and frees its run.
func (tx *Tx) runnerLost(actor string, r runnerRow, cause string) error {
	if err := tx.retired(actor, r, cause); err != nil {
		return err
	}
	run, held, err := heldRun(context.Background(), tx, r.ID)
	if err != nil || !held {
		return err
	}
	return tx.freeRun(actor, run, cause)
}

const selectPoolRunners = `SELECT r.id, r.pool_id, r.key, r.state, r.created_at, r.enrolled_at, r.holds,
	(SELECT j.name FROM projects j WHERE j.id = r.holds_project),
	(SELECT u.id FROM runs u WHERE u.runner_id = r.id AND u.settled_at IS NULL AND u.state <> 'queued' LIMIT 1),
	(SELECT u.project_id FROM runs u WHERE u.runner_id = r.id AND u.settled_at IS NULL AND u.state <> 'queued' LIMIT 1),
	(SELECT j.owner FROM runs u JOIN projects j ON j.id = u.project_id WHERE u.runner_id = r.id AND u.settled_at IS NULL AND u.state <> 'queued' LIMIT 1)
	FROM runners r
	WHERE r.pool_id = ? AND r.state <> 'retired'`

func scanPoolRunner(row scanner) (hubv1.PoolRunner, error) {
	var (
		r                   hubv1.PoolRunner
		pool                string
		created             int64
		enrolled            sql.NullInt64
		project, run        sql.NullString
		runsProj, runsOwner sql.NullString
	)
	err := row.Scan(&r.ID, &pool, &r.Key, &r.State, &created, &enrolled, &r.Holds, &project, &run, &runsProj, &runsOwner)
	r.CreatedAt, r.EnrolledAt = fromNano(created), optionalTime(enrolled)
	r.HoldsProject, r.RunID = project.String, run.String
	if runsProj.Valid {
		r.RunHolds = holdsOf(pool, runsProj.String, runsOwner.String)
	}
	return r, err
}

// PoolRunners lists a pool's runners that are not retired, oldest first.
func (s *Store) PoolRunners(ctx context.Context, ref string) (out []hubv1.PoolRunner, err error) {
	err = s.view(ctx, func(q querier) error {
		pool, err := findPool(ctx, q, ref)
		if err != nil {
			return err
		}
		out, err = collect(ctx, q, scanPoolRunner, selectPoolRunners+" ORDER BY r.created_at, r.id", pool.ID)
		return err
	})
	return out, err
}

// PoolSnapshot is all that the credential's controller needs, of whatever build.
func (s *Store) PoolSnapshot(ctx context.Context, c Credential) (hubv1.PoolSnapshot, error) {
	return s.SnapshotFor(ctx, Controller{Credential: c})
}

// SnapshotFor is PoolSnapshot for one controller, with what it asks for and
// whether another has precedence.
func (s *Store) SnapshotFor(ctx context.Context, c Controller) (out hubv1.PoolSnapshot, err error) {
	err = s.view(ctx, func(q querier) error {
		pool, err := findPool(ctx, q, c.PoolID)
		if err != nil {
			return err
		}
		out.Revision, out.Pool = pool.feed, pool.Pool
		out.Features = s.Features()
		if out.Duplicate, err = s.rival(ctx, q, c.seat(), pool.Name); err != nil {
			return err
		}
		if pool.State == hubv1.PoolActive && pool.Cordon == nil {
			// A cordoned or draining pool has no demand, whatever waits.
			out.Queued = pool.Queued
			if slices.Contains(c.Features, hubv1.FeatureRunnerHolds) && out.Queued > 0 {
				if out.Waiting, err = waitingProjects(ctx, q, pool.ID); err != nil {
					return err
				}
			}
		}
		if out.Runners, err = collect(ctx, q, scanPoolRunner, selectPoolRunners+" AND r."+ofController+" ORDER BY r.created_at, r.id", c.PoolID, c.PoolID, c.ID, c.ID); err != nil {
			return err
		}
		others, _, err := first(ctx, q, scanInt, `SELECT COUNT(*) FROM runners WHERE pool_id = ? AND state <> 'retired'
			AND state IN ('starting', 'idle') AND NOT `+ofController, c.PoolID, c.PoolID, c.ID, c.ID)
		out.OthersAvailable = int32(others) //nolint:gosec // bounded by maxRunners
		return err
	})
	return out, err
}
