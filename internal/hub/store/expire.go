package store

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

// NextDeadline is when Expire next has something to do; ok is false while
// nothing waits for a time.
func (s *Store) NextDeadline(ctx context.Context) (at time.Time, ok bool, err error) {
	if err := s.keepTime(ctx); err != nil {
		return time.Time{}, false, err
	}
	next, _, err := first(ctx, s.reader, scanOptionalInt, `SELECT MIN(at) FROM (
		SELECT MIN(token_expires_at) AS at FROM runners WHERE state <> 'retired' AND state = 'starting'
		UNION ALL SELECT MIN(lost_at) FROM runners WHERE state <> 'retired'
		UNION ALL SELECT MIN(enrolled_at) + ? FROM runners WHERE state <> 'retired' AND state = 'idle'
		UNION ALL SELECT MIN(override_until) FROM pools WHERE override_until IS NOT NULL
		UNION ALL SELECT MIN(deadline) FROM runs WHERE settled_at IS NULL) AS due`, int64(s.Limits.IdleRetire))
	if err != nil {
		return time.Time{}, false, fmt.Errorf("read the next deadline: %w", err)
	}
	return fromNano(next.Int64), next.Valid, nil
}

func scanOptionalInt(row scanner) (sql.NullInt64, error) {
	var n sql.NullInt64
	err := row.Scan(&n)
	return n, err
}

// Expire carries out what is due by the clock.
func (s *Store) Expire(ctx context.Context) error {
	return s.update(ctx, func(tx *Tx) error {
		for _, step := range []func(*Tx) error{expireTokens, expireLeases, expireIdle, expireRuns, expireOverrides} {
			if err := step(tx); err != nil {
				return err
			}
		}
		return nil
	})
}

func expireTokens(tx *Tx) error {
	return tx.each(selectRunners+" WHERE state <> 'retired' AND state = 'starting' AND token_expires_at <= ?", nano(tx.now), func(r runnerRow) error {
		return tx.retired(actorHub, r, "its token expired before it enrolled")
	})
}

func expireLeases(tx *Tx) error {
	return tx.each(selectRunners+" WHERE state <> 'retired' AND lost_at <= ?", nano(tx.now), func(r runnerRow) error {
		if r.state == hubv1.RunnerRetiring {
			return tx.retired(actorHub, r, "it was let go and did not say goodbye")
		}
		silent := tx.store.Limits.Lease + tx.store.Limits.Margin
		run, held, err := heldRun(tx.ctx, tx, r.ID)
		if err != nil {
			return err
		}
		if held && run.recalled {
			// It may have spoken all the time: its lease was not renewed.
			return tx.runnerLost(actorHub, r, fmt.Sprintf("it was to let go of its run and did not say goodbye within %s", silent))
		}
		said, err := r.saidEnd()
		if err != nil {
			return err
		}
		if err := tx.runnerLost(actorHub, r, fmt.Sprintf("the runner was silent for %s", silent)); err != nil || !held || r.podEnd == "" || said.Spoke {
			return err
		}
		return tx.cause(actorHub, r, said.GoneRequest)
	})
}

func expireIdle(tx *Tx) error {
	before := nano(tx.now.Add(-tx.store.Limits.IdleRetire))
	return tx.each(selectRunners+" WHERE state <> 'retired' AND state = 'idle' AND enrolled_at <= ?", before, func(r runnerRow) error {
		return tx.retiring(actorHub, r, fmt.Sprintf("it waited %s without a run", tx.store.Limits.IdleRetire))
	})
}

func (tx *Tx) each(query string, until int64, do func(runnerRow) error) error {
	due, err := collect(context.Background(), tx, scanRunner, query, until)
	if err != nil {
		return err
	}
	for _, r := range due {
		if err := do(r); err != nil {
			return err
		}
	}
	return nil
}

// expireRuns takes back the runs that did not start in time and settles those
// whose runner did not stop them in time. Their runners get no other run.
func expireRuns(tx *Tx) error {
	due, err := collect(context.Background(), tx, scanRun, selectHeads+" WHERE r.settled_at IS NULL AND r.deadline <= ?", nano(tx.now))
	if err != nil {
		return err
	}
	for _, run := range due {
		if run.State == hubv1.RunHanded {
			if err := tx.recall(actorHub, run, fmt.Sprintf("the runner did not start it within %s", tx.store.Limits.StartTimeout)); err != nil {
				return err
			}
			continue
		}
		r, found, err := first(context.Background(), tx, scanRunner, selectRunners+" WHERE id = ?", run.Runner)
		if err != nil || !found {
			return err
		}
		cause := fmt.Sprintf("the runner did not stop it within %s", tx.store.Limits.CancelTimeout)
		// It ignores what it is told, so its session ends.
		if err := tx.retired(actorHub, r, cause); err != nil {
			return err
		}
		if err := tx.freeRun(actorHub, run, cause); err != nil {
			return err
		}
	}
	return nil
}
