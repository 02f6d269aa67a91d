package store

import (
	"context"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

const fullNotice = "\n[cloop] the log is longer than the hub keeps; the rest is dropped\n"

// AppendLog appends what the run's runner wrote, at the offset that it has
// reached, and returns the next one. Past the limit the bytes are counted and
// dropped.
func (s *Store) AppendLog(ctx context.Context, r Runner, id string, offset int64, data []byte) (next int64, err error) {
	err = s.update(ctx, func(tx *Tx) error {
		if _, err := tx.liveRunner(r); err != nil {
			return err
		}
		run, err := findRun(context.Background(), tx, id)
		if err != nil {
			return err
		}
		if run.Runner != r.ID || run.State == hubv1.RunQueued || run.State.Terminal() || run.recalled {
			return problem.New(hubv1.CodeRunNotHeld, "runner %s does not hold run %s", r.ID, id)
		}
		if offset != run.logNext {
			p := problem.New(hubv1.CodeLogOffset, "the log of run %s goes on from %d, not %d", id, run.logNext, offset)
			p.Offset = &run.logNext
			return p
		}
		if next = offset + int64(len(data)); next == offset {
			return nil
		}
		if _, err := tx.exec("UPDATE runs SET log_next = ? WHERE id = ?", next, id); err != nil {
			return err
		}
		return tx.storeLog(run, data)
	})
	return next, err
}

// storeLog keeps the bytes up to the limit and says once that there were more.
func (tx *Tx) storeLog(run runRow, data []byte) error {
	if run.logFull {
		return nil
	}
	full := false
	if room := tx.store.Limits.LogBytes - run.LogBytes; int64(len(data)) > room {
		full = true
		data = append(append([]byte{}, data[:max(room, 0)]...), fullNotice...)
	}
	if _, err := tx.exec("INSERT INTO run_logs (run_id, start, data) VALUES (?, ?, ?)", run.ID, run.LogBytes, data); err != nil {
		return err
	}
	query := "UPDATE runs SET log_bytes = ?, log_full = ? WHERE id = ?"
	args := []any{run.LogBytes + int64(len(data)), full, run.ID}
	if run.FirstLogAt == nil {
		query = "UPDATE runs SET log_bytes = ?, log_full = ?, first_log_at = ?, revision = revision + 1 WHERE id = ?"
		args = []any{run.LogBytes + int64(len(data)), full, nano(tx.now), run.ID}
		tx.wake(RunTopic(run.ID))
	}
	tx.wake(LogTopic(run.ID))
	_, err := tx.exec(query, args...)
	return err
}

// ReadLog reads stored log from the offset: one chunk, empty at the end. The
// state is the run's before the read, so that an empty chunk of a settled run
// is the end for good.
func (s *Store) ReadLog(ctx context.Context, id string, offset int64) (data []byte, state hubv1.RunState, err error) {
	err = s.view(ctx, func(q querier) error {
		run, err := findRun(ctx, q, id)
		if err != nil {
			return err
		}
		state = run.State
		if run.LogRemovedAt != nil {
			return problem.New(hubv1.CodeLogRemoved, "the log of run %s, which ended at %s, was removed at %s", id,
				run.SettledAt.Format(time.RFC3339), run.LogRemovedAt.Format(time.RFC3339))
		}
		chunk, found, err := first(ctx, q, scanChunk, "SELECT start, data FROM run_logs WHERE run_id = ? AND start <= ? ORDER BY start DESC LIMIT 1", id, offset)
		if err != nil || !found {
			return err
		}
		if skip := offset - chunk.start; skip < int64(len(chunk.data)) {
			data = chunk.data[skip:]
		}
		return nil
	})
	return data, state, err
}

type chunk struct {
	start int64
	data  []byte
}

func scanChunk(row scanner) (chunk, error) {
	var c chunk
	err := row.Scan(&c.start, &c.data)
	return c, err
}
