package store

import (
	"database/sql"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
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
	return tx.send("UPDATE projects SET requirements = ? WHERE id = ?", asJSON(kept), project)
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

// optionalJSON decodes a column that may be NULL.
func optionalJSON[T any](text sql.NullString) (*T, error) {
	if !text.Valid {
		return nil, nil //nolint:nilnil // NULL is neither a value nor an error
	}
	value := new(T)
	return value, fromJSON(text.String, value)
}
