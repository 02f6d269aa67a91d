package store

import (
	"context"
	"database/sql"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/printable"
)

// keepAttempt keeps what became of a run in the hands of a runner that it comes
// back from. The run's row has room for its last time only.
func (tx *Tx) keepAttempt(run runRow, cause string) error {
	var started any
	if run.StartedAt != nil {
		started = nano(*run.StartedAt)
	}
	return tx.send(`INSERT INTO run_attempts (run_id, n, attempt, runner_id, handed_at, started_at, ended_at, reason)
		VALUES (?, (SELECT COALESCE(MAX(a.n), 0) + 1 FROM run_attempts a WHERE a.run_id = ?), ?, ?, ?, ?, ?, ?)`,
		run.ID, run.ID, run.Attempt, run.Runner, nano(*run.HandedAt), started, nano(tx.now), printable.Clip(cause, maxReason))
}

// returned says whether the run has come back from a runner before.
func (r runRow) returned() bool {
	return r.Attempt > 1 || r.handOffs > 1 || r.handOffs == 1 && r.HandedAt == nil
}

// earlier are the times that a run came back from a runner, oldest first.
func earlier(ctx context.Context, q querier, run string) ([]hubv1.RunAttempt, error) {
	return collect(ctx, q, func(row scanner) (hubv1.RunAttempt, error) {
		var (
			a            hubv1.RunAttempt
			handed, over int64
			started      sql.NullInt64
			end          sql.NullString
		)
		err := row.Scan(&a.Attempt, &a.Runner, &a.Reason, &handed, &started, &over, &end)
		if err != nil {
			return a, err
		}
		a.HandedAt, a.StartedAt, a.EndedAt = fromNano(handed), optionalTime(started), fromNano(over)
		a.PodEnd, err = optionalJSON[hubv1.PodEnd](end)
		return a, err
	}, "SELECT attempt, runner_id, reason, handed_at, started_at, ended_at, pod_end FROM run_attempts WHERE run_id = ? ORDER BY n", run)
}

// cause keeps how Kubernetes says that the Pod of a run's runner ended, once:
// with a run that failed or was lost, or with the time that it was in the hands
// of this runner, where it has come back from it. It goes behind the reason,
// unless that comes from it.
func (tx *Tx) cause(actor string, r runnerRow, request hubv1.GoneRequest) error {
	end := asJSON(hubv1.PodEnd{Reason: shown(request.Reason, 256), Message: shown(request.Message, 512), ExitCode: request.ExitCode})
	text := goneText(request)
	run, found, err := first(context.Background(), tx, scanRun, selectHeads+
		" WHERE r.runner_id = ? AND r.settled_at IS NOT NULL AND r.state IN ('failed', 'lost') AND r.pod_end IS NULL", r.ID)
	if err != nil {
		return err
	}
	if found {
		if _, err := tx.exec("UPDATE runs SET reason = ?, pod_end = ?, revision = revision + 1 WHERE id = ? AND pod_end IS NULL",
			behind(run.Reason, text), end, run.ID); err != nil {
			return err
		}
		return tx.caused(actor, run, text)
	}
	back, found, err := first(context.Background(), tx, scanBack, "SELECT run_id, n, reason FROM run_attempts WHERE runner_id = ? AND pod_end IS NULL", r.ID)
	if err != nil || !found {
		return err
	}
	if run, err = findRun(context.Background(), tx, back.run); err != nil {
		return err
	}
	if _, err := tx.exec("UPDATE run_attempts SET reason = ?, pod_end = ? WHERE run_id = ? AND n = ?", behind(back.reason, text), end, back.run, back.n); err != nil {
		return err
	}
	if _, err := tx.exec("UPDATE runs SET revision = revision + 1 WHERE id = ?", back.run); err != nil {
		return err
	}
	return tx.caused(actor, run, text)
}

func (tx *Tx) caused(actor string, run runRow, text string) error {
	tx.wake(RunTopic(run.ID))
	return tx.audit(record{actor: actor, action: ActionRunCause, pool: run.PoolID, object: run.ID, state: string(run.State), detail: text})
}

// back is one time that a run came back from a runner.
type back struct {
	run    string
	n      int64
	reason string
}

func scanBack(row scanner) (b back, err error) { return b, row.Scan(&b.run, &b.n, &b.reason) }

// behind puts what a controller said behind a reason that does not say it yet.
func behind(reason, text string) string {
	if strings.Contains(reason, text) {
		return reason
	}
	return printable.Clip(reason+"; "+text, maxReason)
}

// maxReason bounds why a run ended, in bytes.
const maxReason = 2048

// shown is what a controller said as one bounded line that a terminal only shows.
// What is blank around it, such as the end of a last line, is left out.
func shown(text string, limit int) string {
	return printable.Clip(printable.Line(strings.TrimSpace(text)), limit)
}

// telling says whether a Pod's end may be why its run failed: a runner that has
// left in order, or whose Pod was cleaned up, tells nothing.
func telling(request hubv1.GoneRequest) bool {
	switch request.Reason {
	case "PodDeleted", "Completed", "Unknown", "":
		return request.ExitCode != nil && *request.ExitCode != 0
	}
	return true
}
