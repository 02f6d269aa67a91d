package store

import (
	"context"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/doctor"
)

// fact is one column's value of a pool.
type fact struct {
	pool   string
	number int64
	text   string
}

func scanNumber(row scanner) (f fact, err error) { return f, row.Scan(&f.pool, &f.number) }
func scanSaid(row scanner) (f fact, err error)   { return f, row.Scan(&f.pool, &f.text) }

// Patients reads for the doctor one pool by its id, or those that are not revoked
// where that is empty, by name.
func (s *Store) Patients(ctx context.Context, id string) ([]doctor.Pool, error) {
	var out []doctor.Pool
	err := s.view(ctx, func(q querier) error {
		rows, err := collect(ctx, q, scanPool, selectPools+" WHERE (? = '' AND p.state <> 'revoked') OR p.id = ? ORDER BY p.name", id, id)
		if err != nil {
			return err
		}
		place := map[string]int{} // pool id → its index
		out = make([]doctor.Pool, len(rows))
		for i, row := range rows {
			if out[i].Pool, err = s.withContacts(ctx, q, row); err != nil {
				return err
			}
			out[i].Features = hubv1.ControllerFeatures()
			place[row.ID] = i
		}
		for _, part := range []struct {
			query string
			scan  func(scanner) (fact, error)
			add   func(*doctor.Pool, fact)
		}{
			{"SELECT pool_id, MIN(queued_at) FROM runs WHERE settled_at IS NULL AND state = 'queued' AND (? = '' OR pool_id = ?) GROUP BY pool_id",
				scanNumber, func(p *doctor.Pool, f fact) { p.OldestQueued = fromNano(f.number) }},
			{"SELECT pool_id, COUNT(*) FROM credentials WHERE revoked_at IS NULL AND (? = '' OR pool_id = ?) GROUP BY pool_id",
				scanNumber, func(p *doctor.Pool, f fact) { p.Credentials = int(f.number) }},
			{"SELECT pool_id, refusal FROM credentials WHERE revoked_at IS NULL AND refusal <> '' AND (? = '' OR pool_id = ?) ORDER BY created_at, id",
				scanSaid, func(p *doctor.Pool, f fact) { p.Trouble = append(p.Trouble, f.text) }},
		} {
			facts, err := collect(ctx, q, part.scan, part.query, id, id)
			if err != nil {
				return err
			}
			for _, f := range facts {
				if i, listed := place[f.pool]; listed {
					part.add(&out[i], f)
				}
			}
		}
		return nil
	})
	return out, err
}
