package store

import (
	"context"
	"database/sql"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/printable"
	"cloop.dev/cloop/internal/sandbox"
)

// Source is what was found of a ref of a project's repository, before the
// transaction that uses it. The zero value knows nothing.
type Source struct {
	// Commit that the ref stands for; empty where nobody could be asked.
	Commit string
	// Requirements of that commit; nil where they are not known, which is never
	// taken for none: only a runner that finds out by itself gets such a run.
	Requirements *hubv1.Requirements
	// Unknown says why the requirements are not known.
	Unknown string
}

// Undemanding is the source of a commit that asks nothing of its runners.
func Undemanding(commit string) Source {
	return Source{Commit: commit, Requirements: &hubv1.Requirements{}}
}

// meets refuses what the project asks for and the pool does not declare. What is
// not known is not refused here.
func meets(pool poolRow, project string, asked *hubv1.Requirements) error {
	if asked == nil {
		return nil
	}
	unmet := sandbox.Unmet(*asked, declared(pool))
	if len(unmet) == 0 {
		return nil
	}
	p := problem.New(hubv1.CodeRequirementsUnmet, "project %s asks in %s for what pool %s does not have", project, sandbox.Path, pool.Name)
	for _, text := range unmet {
		p.Errors = append(p.Errors, hubv1.FieldError{Location: sandbox.Path, Message: text})
	}
	return p
}

func declared(pool poolRow) hubv1.Declared {
	return hubv1.Declared{Pool: pool.Name, Capabilities: pool.Capabilities, Labels: pool.Labels}
}

// keepSource keeps what the project's default ref asks for, for people.
func (tx *Tx) keepSource(project string, source Source) error {
	kept := hubv1.ProjectRequirements{Commit: source.Commit, Unknown: source.Unknown, At: tx.now}
	if source.Requirements != nil {
		kept.Requirements = *source.Requirements
	} else if kept.Unknown == "" {
		kept.Unknown = "nobody has looked at the repository"
	}
	_, err := tx.exec("UPDATE projects SET requirements = ? WHERE id = ?", asJSON(kept), project)
	return err
}

// drop ends a run that can never be handed out, and keeps for its project why.
func (tx *Tx) drop(actor string, run runRow, reason string) error {
	if err := tx.settleRun(actor, run, outcome{state: hubv1.RunCancelled, reason: reason}); err != nil {
		return err
	}
	_, err := tx.exec("UPDATE projects SET dropped = ? WHERE id = ?",
		asJSON(hubv1.Dropped{Run: run.ID, Reason: reason, At: tx.now}), run.projectID)
	return err
}

// cause keeps how Kubernetes says that the Pod of a run's runner ended, once,
// with a run that failed or was lost. It goes behind the run's reason, unless
// that comes from it.
func (tx *Tx) cause(actor string, r runnerRow, request hubv1.GoneRequest) error {
	run, found, err := first(context.Background(), tx, scanRun, selectRuns+
		" WHERE r.runner_id = ? AND r.settled_at IS NOT NULL AND r.state IN ('failed', 'lost') AND r.pod_end IS NULL", r.ID)
	if err != nil || !found {
		return err
	}
	end := hubv1.PodEnd{Reason: shown(request.Reason, 256), Message: shown(request.Message, 512), ExitCode: request.ExitCode}
	text := goneText(request)
	reason := run.Reason
	if !strings.Contains(reason, text) {
		reason = printable.Clip(reason+"; "+text, maxReason)
	}
	if _, err := tx.exec("UPDATE runs SET reason = ?, pod_end = ?, revision = revision + 1 WHERE id = ? AND pod_end IS NULL",
		reason, asJSON(end), run.ID); err != nil {
		return err
	}
	tx.wake(RunTopic(run.ID))
	return tx.audit(record{actor: actor, action: ActionRunCause, pool: run.PoolID, object: run.ID, state: string(run.State), detail: text})
}

// maxReason bounds why a run ended, in bytes.
const maxReason = 2048

// shown is what a controller said as one bounded line that a terminal only shows.
func shown(text string, limit int) string { return printable.Clip(printable.Line(text), limit) }

// telling says whether a Pod's end may be why its run failed: a runner that has
// left in order, or whose Pod was cleaned up, tells nothing.
func telling(request hubv1.GoneRequest) bool {
	switch request.Reason {
	case "PodDeleted", "Completed", "Unknown", "":
		return request.ExitCode != nil && *request.ExitCode != 0
	}
	return true
}

// optionalJSON decodes a column that may be NULL.
func optionalJSON[T any](text sql.NullString) (*T, error) {
	if !text.Valid {
		return nil, nil //nolint:nilnil // NULL is neither a value nor an error
	}
	value := new(T)
	return value, fromJSON(text.String, value)
}
