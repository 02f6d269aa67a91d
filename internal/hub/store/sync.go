package store

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// KeepSyncs makes the configured syncs the only ones: pools of any other are
// let go, so that they can be changed by hand again. Those of HubPools in clusters
// are not the configuration's. A sync that is new, or whose repository or path is,
// starts as pending.
func (s *Store) KeepSyncs(ctx context.Context, configured []hubv1.Sync) error {
	return s.update(ctx, func(tx *Tx) error {
		bg := context.Background()
		owned, err := collect(bg, tx, scanPool, selectPools+" WHERE p.source_sync IS NOT NULL")
		if err != nil {
			return err
		}
		names := make([]string, 0, len(configured))
		for _, c := range configured {
			names = append(names, c.Name)
		}
		for _, pool := range owned {
			_, _, _, ofCluster := pool.Source.Cluster()
			if ofCluster || slices.Contains(names, pool.Source.Sync) || pool.State == hubv1.PoolDraining {
				continue
			}
			if err := tx.orphan(actorHub, pool, "sync "+pool.Source.Sync+" is not configured any more"); err != nil {
				return err
			}
		}
		known, err := collect(bg, tx, scanText, "SELECT name FROM syncs")
		if err != nil {
			return err
		}
		for _, name := range known {
			if slices.Contains(names, name) {
				continue
			}
			if _, err := tx.exec("DELETE FROM syncs WHERE name = ?", name); err != nil {
				return err
			}
		}
		for _, c := range configured {
			if _, err := tx.exec(`INSERT INTO syncs (name, repository, path, state, revision) VALUES (?, ?, ?, 'pending', 1)
				ON CONFLICT (name) DO UPDATE SET repository = excluded.repository, path = excluded.path,
				state = CASE WHEN syncs.repository = excluded.repository AND syncs.path = excluded.path THEN syncs.state ELSE 'pending' END,
				revision = syncs.revision + 1`, c.Name, c.Repository, c.Path); err != nil {
				return err
			}
		}
		return nil
	})
}

// SaveSync keeps how a sync stands. A sync that is not configured is left out.
func (s *Store) SaveSync(ctx context.Context, sync hubv1.Sync) error {
	return s.update(ctx, func(tx *Tx) error {
		pools, heldBack, observed := sync.Pools, sync.HeldBack, sync.Observed
		if pools == nil {
			pools = []string{}
		}
		if heldBack == nil {
			heldBack = []hubv1.HeldBack{}
		}
		if observed == nil {
			observed = []hubv1.Observed{}
		}
		var at any
		if sync.LastRun != nil {
			at = nano(*sync.LastRun)
		}
		if err := tx.tellUnapplied(sync); err != nil {
			return err
		}
		// A yes is used up when nothing waits for one.
		var waits any
		approval := ", approved_prune = ''"
		if sync.PruneWaits != nil {
			waits, approval = asJSON(sync.PruneWaits), ""
		}
		_, err := tx.exec(`UPDATE syncs SET state = ?, message = ?, last_attempted = ?, last_applied = ?, pools = ?, held_back = ?, observed = ?, prune_waits = ?, last_run = ?,
			revision = revision + 1`+approval+` WHERE name = ?`,
			string(sync.State), sync.Message, sync.LastAttemptedRevision, sync.LastAppliedRevision, asJSON(pools), asJSON(heldBack), asJSON(observed), waits, at, sync.Name)
		tx.wake(SyncTopic(sync.Name))
		return err
	})
}

// tellUnapplied wakes who watches a pool whose document is held back or only compared
// now and was not, or the other way round, or for another reason.
func (tx *Tx) tellUnapplied(now hubv1.Sync) error {
	bg := context.Background()
	before, _, err := first(bg, tx, scanSync, selectSyncs+" WHERE name = ?", now.Name)
	if err != nil {
		return err
	}
	differ := map[string]int{} // pool and what is said of it → in how many of the two
	for _, held := range slices.Concat(before.HeldBack, now.HeldBack) {
		differ[held.Pool+"\n"+strings.Join(held.Problems, "\n")]++
	}
	for _, observed := range slices.Concat(before.Observed, now.Observed) {
		differ[observed.Pool+"\n"+asJSON(observed.Definition)+observed.CordonReason]++
	}
	for _, waits := range []*hubv1.PruneWaits{before.PruneWaits, now.PruneWaits} {
		if waits == nil {
			continue
		}
		for _, pool := range waits.Pools {
			differ[pool+"\n"+waits.Revision]++
		}
	}
	for said, n := range differ {
		if n == 2 {
			continue
		}
		name, _, _ := strings.Cut(said, "\n")
		id, found, err := first(bg, tx, scanText, "SELECT id FROM pools WHERE name = ?", name)
		if err != nil {
			return err
		}
		if found {
			tx.fed[id] = struct{}{}
		}
	}
	return nil
}

const selectSyncs = "SELECT name, repository, path, state, message, last_attempted, last_applied, pools, held_back, observed, prune_waits, last_run, revision FROM syncs"

type syncRow struct {
	hubv1.Sync
	revision int64
}

func scanSync(row scanner) (syncRow, error) {
	var s syncRow
	var pools, heldBack, observed string
	var waits sql.NullString
	var at sql.NullInt64
	err := row.Scan(&s.Name, &s.Repository, &s.Path, &s.State, &s.Message, &s.LastAttemptedRevision, &s.LastAppliedRevision, &pools, &heldBack, &observed, &waits, &at, &s.revision)
	if err != nil {
		return s, err
	}
	s.LastRun = optionalTime(at)
	if s.PruneWaits, err = optionalJSON[hubv1.PruneWaits](waits); err != nil {
		return s, err
	}
	if err := fromJSON(heldBack, &s.HeldBack); err != nil {
		return s, err
	}
	if err := fromJSON(observed, &s.Observed); err != nil {
		return s, err
	}
	return s, fromJSON(pools, &s.Pools)
}

// ListSyncs lists the syncs by name.
func (s *Store) ListSyncs(ctx context.Context) ([]hubv1.Sync, error) {
	rows, err := collect(ctx, s.reader, scanSync, selectSyncs+" ORDER BY name")
	out := make([]hubv1.Sync, 0, len(rows))
	for _, row := range rows {
		out = append(out, row.Sync)
	}
	return out, err
}

// GetSync returns a sync and the revision of its record.
func (s *Store) GetSync(ctx context.Context, name string) (hubv1.Sync, int64, error) {
	row, found, err := first(ctx, s.reader, scanSync, selectSyncs+" WHERE name = ?", name)
	if err == nil && !found {
		err = noSync(name)
	}
	return row.Sync, row.revision, err
}

// PokeSync has a sync run now, at whichever hub it runs.
func (s *Store) PokeSync(ctx context.Context, name string) (hubv1.Sync, error) {
	sync, _, err := s.GetSync(ctx, name)
	if err != nil {
		return sync, err
	}
	return sync, s.once(ctx, func(tx *Tx) error { tx.wake(PokeTopic(name)); return nil })
}

// ApprovePrune lets pools go that a sync has kept although its newest revision lacks
// them. The revision is the whole commit that they wait at: what comes after it is
// somebody else's, and waits again. Repeating it changes nothing. The sync runs at
// once.
func (s *Store) ApprovePrune(ctx context.Context, actor string, key Key, sync string, request hubv1.ApprovePruneRequest) (hubv1.Sync, error) {
	err := s.update(ctx, func(tx *Tx) error {
		_, err := tx.once(keyed{actor, key, approval{sync, request}}, func() error {
			tx.wake(PokeTopic(sync))
			return tx.approvePrune(actor, sync, request.Revision)
		})
		return err
	})
	if err != nil {
		return hubv1.Sync{}, err
	}
	out, _, err := s.GetSync(ctx, sync)
	return out, err
}

// approval is what a repeated request must agree in.
type approval struct {
	Sync string
	hubv1.ApprovePruneRequest
}

func (tx *Tx) approvePrune(actor, sync, revision string) error {
	bg := context.Background()
	row, found, err := first(bg, tx, scanSync, selectSyncs+" WHERE name = ?", sync)
	switch {
	case err != nil:
		return err
	case !found:
		return noSync(sync)
	case row.PruneWaits == nil:
		return notWaiting("nothing of sync %s waits for an approval", sync)
	case row.PruneWaits.Revision != revision:
		return notWaiting("sync %s waits at revision %s, not %s", sync, row.PruneWaits.Revision, revision)
	}
	// Who cannot revoke one of them cannot have Git do it.
	for _, name := range row.PruneWaits.Pools {
		pool, found, err := first(bg, tx, scanPool, selectPools+" WHERE p.name = ?", name)
		if err == nil && found {
			err = tx.reaches(pool)
		}
		if err != nil {
			return err
		}
	}
	changed, err := tx.exec("UPDATE syncs SET approved_prune = ?, revision = revision + 1 WHERE name = ? AND approved_prune <> ?", revision, sync, revision)
	if err != nil || changed == 0 {
		return err
	}
	tx.wake(SyncTopic(sync))
	return tx.audit(record{actor: actor, action: ActionSyncApprovePrune, object: sync, state: string(row.State), detail: asJSON(row.PruneWaits)})
}

// ApprovePruneCommand is what somebody types who means what a revision removes.
func ApprovePruneCommand(sync, revision string) string {
	return fmt.Sprintf("cloop hub sync approve-prune %s --revision %s", sync, revision)
}

func notWaiting(format string, args ...any) *hubv1.Problem {
	p := problem.New(hubv1.CodeConflict, format, args...)
	p.Remedy = "look at what the sync says now: `cloop fleet status`"
	return p
}

func noSync(name string) *hubv1.Problem {
	return problem.New(hubv1.CodeNotFound, "there is no sync %q", name)
}
