package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cloop.dev/cloop/internal/count"
)

// Retention is how long the hub keeps what is over. Zero stands for the
// default, less than zero for ever. Nothing that is not over is ever removed.
type Retention struct {
	// Logs of runs are kept this long after the run has settled; 30 days.
	Logs time.Duration
	// Runs are kept this long after they have settled, but of each project the
	// newest RunsPerProject always; 90 days and 100.
	Runs           time.Duration
	RunsPerProject int
	// Runners are kept this long after they are retired, with the hashes of
	// their tokens and sessions, and revoked credentials as long once none of
	// their runners is left; 7 days.
	Runners time.Duration
	// Tokens of users are kept this long after they were revoked or have expired,
	// and users as long after they were removed, unless a run of theirs is not
	// settled; 90 days.
	Tokens time.Duration
	// Audit is how long the audit trail says what became of runs and runners;
	// 365 days. What it says of pools, projects and credentials it says for ever.
	Audit time.Duration
	// Batch bounds how many rows of a kind one transaction removes, so that
	// nobody waits long behind it; 200.
	Batch int64
}

const day = 24 * time.Hour

// Defaults returns the retention where the zero value stands for the default.
func (r Retention) Defaults() Retention {
	def(&r.Logs, 30*day)
	def(&r.Runs, 90*day)
	def(&r.RunsPerProject, 100)
	def(&r.Runners, 7*day)
	def(&r.Tokens, 90*day)
	def(&r.Audit, 365*day)
	def(&r.Batch, 200)
	return r
}

// pruneChunks bounds how many chunks of logs one transaction removes: each may
// take a megabyte.
const pruneChunks = 64

// Prune removes one batch of what has been over for long, in one transaction.
// It says whether there is more. For a day after the clock was set by
// much it removes nothing.
func (s *Store) Prune(ctx context.Context) (more bool, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		if s.unsettled() {
			return nil
		}
		keep := tx.store.Limits.Retention
		var did []string
		for _, step := range []struct {
			what  string
			age   time.Duration
			batch int64
			prune func(tx *Tx, before, batch int64) (int64, error)
		}{
			{"log", keep.Logs, keep.Batch, pruneLogs},
			{"log chunk", 0, min(keep.Batch, pruneChunks), pruneLogChunks},
			{"run", keep.Runs, keep.Batch, pruneRuns},
			{"runner", keep.Runners, keep.Batch, pruneRunners},
			{"credential", keep.Runners, keep.Batch, pruneCredentials},
			{"token", keep.Tokens, keep.Batch, pruneTokens},
			{"user", keep.Tokens, keep.Batch, pruneUsers},
			{"audit row", keep.Audit, keep.Batch, pruneAudit},
		} {
			if step.age < 0 {
				continue
			}
			n, err := step.prune(tx, nano(tx.now.Add(-step.age)), step.batch)
			if err != nil {
				return fmt.Errorf("remove what is older than the retention: %s: %w", step.what, err)
			}
			more = more || n == step.batch
			if n > 0 {
				did = append(did, count.Of(n, step.what))
			}
		}
		if len(did) == 0 {
			return nil
		}
		return tx.audit(record{actor: actorHub, action: ActionPrune, detail: strings.Join(did, ", ")})
	})
	return more, err
}

// pruneLogs gives up the logs of runs that have settled before. They cannot be
// read from here on; what they take goes by pruneLogChunks.
func pruneLogs(tx *Tx, before, batch int64) (int64, error) {
	old, err := collect(context.Background(), tx, scanText, `SELECT id FROM runs WHERE settled_at IS NOT NULL AND log_pruned_at IS NULL
		AND log_bytes > 0 AND settled_at <= ? ORDER BY settled_at LIMIT ?`, before, batch)
	if err != nil {
		return 0, err
	}
	for _, id := range old {
		if err := tx.giveUpLog(id); err != nil {
			return 0, err
		}
	}
	return int64(len(old)), nil
}

func (tx *Tx) giveUpLog(run string) error {
	if _, err := tx.exec("UPDATE runs SET log_pruned_at = ?, revision = revision + 1 WHERE id = ?", nano(tx.now), run); err != nil {
		return err
	}
	_, err := tx.exec("INSERT INTO pruned_logs (run_id) VALUES (?)", run)
	return err
}

func pruneLogChunks(tx *Tx, _, batch int64) (removed int64, err error) {
	given, err := collect(context.Background(), tx, scanText, "SELECT run_id FROM pruned_logs LIMIT ?", batch)
	if err != nil {
		return 0, err
	}
	for _, run := range given {
		n, err := tx.exec("DELETE FROM run_logs WHERE run_id = ? AND start IN (SELECT start FROM run_logs WHERE run_id = ? ORDER BY start LIMIT ?)",
			run, run, batch-removed)
		if err != nil {
			return removed, err
		}
		if removed += n; removed == batch {
			return removed, nil
		}
		if _, err := tx.exec("DELETE FROM pruned_logs WHERE run_id = ?", run); err != nil {
			return removed, err
		}
	}
	return removed, nil
}

// pruneRuns removes runs that have settled before, but the newest of each
// project. One whose log is there gives that up first and goes another time.
func pruneRuns(tx *Tx, before, batch int64) (int64, error) {
	keep := max(tx.store.Limits.Retention.RunsPerProject, 0)
	old, err := collect(context.Background(), tx, scanOld, `WITH kept AS MATERIALIZED (
			SELECT j.id AS project, (SELECT n.seq FROM runs n WHERE n.project_id = j.id ORDER BY n.seq DESC LIMIT 1 OFFSET ?) AS below
			FROM projects j)
		SELECT r.id, r.log_bytes > 0 AND r.log_pruned_at IS NULL FROM kept k JOIN runs r ON r.project_id = k.project
		WHERE r.settled_at IS NOT NULL AND r.settled_at <= ? AND r.seq <= k.below
		AND NOT EXISTS (SELECT 1 FROM pruned_logs l WHERE l.run_id = r.id) LIMIT ?`, keep, before, batch)
	if err != nil {
		return 0, err
	}
	for _, run := range old {
		if run.logged {
			err = tx.giveUpLog(run.id)
		} else {
			_, err = tx.exec("DELETE FROM runs WHERE id = ?", run.id)
		}
		if err != nil {
			return 0, err
		}
	}
	return int64(len(old)), nil
}

// oldRun is a run to remove; logged says that its log is still there.
type oldRun struct {
	id     string
	logged bool
}

func scanOld(row scanner) (oldRun, error) {
	var r oldRun
	err := row.Scan(&r.id, &r.logged)
	return r, err
}

// pruneRunners removes runners that were retired before. Their runs go on to
// name them.
func pruneRunners(tx *Tx, before, batch int64) (int64, error) {
	old, err := collect(context.Background(), tx, scanText, `SELECT r.id FROM runners r WHERE r.state = 'retired' AND r.retired_at <= ?
		AND NOT EXISTS (SELECT 1 FROM runs u WHERE u.runner_id = r.id AND u.settled_at IS NULL) ORDER BY r.retired_at LIMIT ?`, before, batch)
	if err != nil {
		return 0, err
	}
	for _, id := range old {
		if _, err := tx.exec("UPDATE runs SET former_runner = runner_id, runner_id = NULL WHERE runner_id = ?", id); err != nil {
			return 0, err
		}
		if _, err := tx.exec("DELETE FROM runners WHERE id = ?", id); err != nil {
			return 0, err
		}
	}
	return int64(len(old)), nil
}

// pruneCredentials removes credentials that were revoked before and that
// nothing refers to any more.
func pruneCredentials(tx *Tx, before, batch int64) (int64, error) {
	if _, err := tx.exec(`DELETE FROM controllers WHERE last_contact <= ? AND credential_id IN
		(SELECT id FROM credentials WHERE revoked_at IS NOT NULL AND revoked_at <= ?)`, before, before); err != nil {
		return 0, err
	}
	return tx.exec(`DELETE FROM credentials WHERE id IN (SELECT k.id FROM credentials k WHERE k.revoked_at IS NOT NULL AND k.revoked_at <= ?
		AND NOT EXISTS (SELECT 1 FROM runners r WHERE r.credential_id = k.id)
		AND NOT EXISTS (SELECT 1 FROM controllers c WHERE c.credential_id = k.id) LIMIT ?)`, before, batch)
}

// pruneTokens removes tokens of users that were over before.
func pruneTokens(tx *Tx, before, batch int64) (int64, error) {
	old, err := collect(context.Background(), tx, scanText, `SELECT id FROM tokens WHERE COALESCE(revoked_at, expires_at) <= ?
		ORDER BY COALESCE(revoked_at, expires_at) LIMIT ?`, before, batch)
	if err != nil {
		return 0, err
	}
	for _, id := range old {
		tx.store.tokenUses.forget(id)
		if _, err := tx.exec("DELETE FROM tokens WHERE id = ?", id); err != nil {
			return 0, err
		}
	}
	return int64(len(old)), nil
}

// pruneUsers removes those who were removed before and of whom nothing goes on.
// One user is always left: a hub without any would make a first one again.
func pruneUsers(tx *Tx, before, batch int64) (int64, error) {
	return tx.exec(`DELETE FROM users WHERE name IN (SELECT u.name FROM users u WHERE u.removed_at <= ?
		AND EXISTS (SELECT 1 FROM users l WHERE l.removed_at IS NULL)
		AND NOT EXISTS (SELECT 1 FROM tokens t WHERE t.user_name = u.name)
		AND NOT EXISTS (SELECT 1 FROM runs r WHERE r.settled_at IS NULL AND r.started_by = 'user:' || u.name) LIMIT ?)`, before, batch)
}

// ofWork are the audit rows of runs and runners. The index audit_work is of them,
// in the same words.
const ofWork = "(substr(action, 1, 4) = 'run.' OR substr(action, 1, 21) = 'executor_pool.runner.')"

// pruneAudit removes what the audit trail said before of runs and runners. What
// people did to pools, projects and credentials stays.
func pruneAudit(tx *Tx, before, batch int64) (int64, error) {
	return tx.exec("DELETE FROM audit WHERE id IN (SELECT id FROM audit WHERE "+ofWork+" AND at <= ? ORDER BY at LIMIT ?)", before, batch)
}
