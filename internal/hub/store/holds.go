package store

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// holdsBytes keep the digest short enough for a label's value, and long enough
// that nobody makes two projects of one digest.
const holdsBytes = 16

// holdsOf stands for a project's data on a pool's volumes. It says nothing of
// the project to who reads it in the cluster, and changes with the pool and the
// project's owner, so that no volume is taken along to another's.
func holdsOf(pool, project, owner string) string {
	sum := sha256.Sum256([]byte("cloop volume\x00" + pool + "\x00" + project + "\x00" + owner))
	return hex.EncodeToString(sum[:holdsBytes])
}

// heldBy is the project that a runner is kept for; the zero value: none.
type heldBy struct{ ID, Name, Owner string }

// id is the value of a column that may be empty.
func (h heldBy) id() any {
	if h.ID == "" {
		return nil
	}
	return h.ID
}

func scanHeldBy(row scanner) (heldBy, error) {
	var h heldBy
	err := row.Scan(&h.ID, &h.Name, &h.Owner)
	return h, err
}

// heldProject finds the project whose data a volume of the pool has. Only a
// project of the hub counts: a runner for any other would wait for nothing.
func (tx *Tx) heldProject(pool, holds string) (heldBy, error) {
	if holds == "" {
		return heldBy{}, nil
	}
	projects, err := collect(context.Background(), tx, scanHeldBy, "SELECT id, name, owner FROM projects WHERE pool_id = ?", pool)
	if err != nil {
		return heldBy{}, err
	}
	for _, p := range projects {
		if holdsOf(pool, p.ID, p.Owner) == holds {
			return p, nil
		}
	}
	return heldBy{}, problem.New(hubv1.CodeHoldsUnknown, "no project that is bound to the pool has its data on that volume")
}

// waitingProjects lists whose runs wait for the pool, the longest waiting first.
func waitingProjects(ctx context.Context, q querier, pool string) ([]hubv1.WaitingProject, error) {
	return collect(ctx, q, func(row scanner) (hubv1.WaitingProject, error) {
		var w hubv1.WaitingProject
		var id string
		err := row.Scan(&id, &w.Project, &w.Owner, &w.Runs)
		w.Holds = holdsOf(pool, id, w.Owner)
		return w, err
	}, `SELECT r.project_id, j.name, j.owner, COUNT(*) FROM runs r JOIN projects j ON j.id = r.project_id
		WHERE r.pool_id = ? AND r.settled_at IS NULL AND r.state = 'queued'
		GROUP BY r.project_id, j.name, j.owner ORDER BY MIN(r.seq) LIMIT ?`, pool, hubv1.MaxWaiting)
}

// mayHold says whether the runner may take a run of the project: one that starts
// on a project's volume takes no other's.
func mayHold(r runnerRow, project string) bool { return r.holds == "" || r.holdsProject == project }

// holdersFirst orders runners, the longest idle first, so that a run goes to one
// that has its project's volume before any other.
func holdersFirst(idle []runnerRow) []runnerRow {
	slices.SortStableFunc(idle, func(a, b runnerRow) int { return cmp.Compare(holding(b), holding(a)) })
	return idle
}

func holding(r runnerRow) int {
	if r.holds != "" {
		return 1
	}
	return 0
}
