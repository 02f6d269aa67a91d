package store

import (
	"context"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/doctor"
)

// fact is one column's value of a pool.
type fact struct {
	pool   string
	number int64
}

func scanNumber(row scanner) (f fact, err error) { return f, row.Scan(&f.pool, &f.number) }

// admins are the users who have the role that may do everything.
const admins = `SELECT u.name FROM users u WHERE u.removed_at IS NULL AND (
	'user:' || u.name IN (SELECT b.subject FROM role_bindings b WHERE b.role = ? AND b.project_id = '')
	OR u.name IN (SELECT m.user_name FROM group_members m JOIN role_bindings b ON b.subject = 'group:' || m.group_name WHERE b.role = ? AND b.project_id = ''))`

// everything is what the role that may do everything gives.
func everything() access.Grant {
	role, _ := access.FindBuiltIn(access.RoleAdmin)
	return access.Grant{Role: role.Name, Permissions: role.Permissions}
}

// Access reads for the doctor who can do everything.
func (s *Store) Access(ctx context.Context) (out doctor.Access, err error) {
	live, now := " WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)", nano(s.clock.Now())
	err = s.view(ctx, func(q querier) error {
		first, err := collect(ctx, q, scanToken, selectTokens+live+" AND created_by IN (?, ?) ORDER BY created_at, id", now, actorHub, actorOperator)
		if err != nil || len(first) == 0 {
			return err
		}
		for _, t := range first {
			out.First = append(out.First, t.Token)
		}
		theirs, err := collect(ctx, q, scanToken, selectTokens+live+" AND ceiling IS NULL AND user_name IN ("+admins+") ORDER BY user_name",
			nano(s.clock.Now().Add(doctor.Lasting)), access.RoleAdmin, access.RoleAdmin)
		for _, t := range theirs {
			if all := access.Of([]access.Grant{everything()}, t.Scopes); len(all.Everywhere()) == len(access.Permissions()) {
				out.Others = append(out.Others, t.User)
			}
		}
		out.Others = slices.Compact(out.Others)
		return err
	})
	return out, err
}

// Patients reads for the doctor one pool by its id, or those that are not revoked
// where that is empty, by name.
func (s *Store) Patients(ctx context.Context, id string) ([]doctor.Pool, error) {
	var out []doctor.Pool
	err := s.view(ctx, func(q querier) error {
		rows, err := collect(ctx, q, scanPool, selectPools+" WHERE (? = '' AND p.state <> 'revoked') OR p.id = ? ORDER BY p.name", id, id)
		if err != nil {
			return err
		}
		held, err := readUnapplied(ctx, q)
		if err != nil {
			return err
		}
		place := map[string]int{} // pool id → its index
		out = make([]doctor.Pool, len(rows))
		for i, row := range rows {
			contacts, err := s.allContacts(ctx, q, row.ID)
			if err != nil {
				return err
			}
			row.Controllers = contacts[:min(len(contacts), contactsShown)]
			s.drifted(&row.Pool, held)
			out[i].Pool = row.Pool
			said, err := refusals(ctx, q, row.ID, contacts)
			if err != nil {
				return err
			}
			for _, r := range slices.Backward(said) {
				out[i].Trouble = append(out[i].Trouble, r.Message)
			}
			out[i].Features = hubv1.ControllerFeatures()
			place[row.ID] = i
		}
		for _, part := range []struct {
			query string
			add   func(*doctor.Pool, fact)
		}{
			{"SELECT pool_id, MIN(COALESCE(requeued_at, queued_at)) FROM runs WHERE settled_at IS NULL AND state = 'queued' AND (? = '' OR pool_id = ?) GROUP BY pool_id",
				func(p *doctor.Pool, f fact) { p.OldestQueued = fromNano(f.number) }},
			{"SELECT pool_id, COUNT(*) FROM credentials WHERE revoked_at IS NULL AND (? = '' OR pool_id = ?) GROUP BY pool_id",
				func(p *doctor.Pool, f fact) { p.Credentials = int(f.number) }},
		} {
			facts, err := collect(ctx, q, scanNumber, part.query, id, id)
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
