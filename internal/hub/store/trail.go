package store

import (
	"context"
	"strings"
	"time"
	"unicode/utf8"

	"cloop.dev/cloop/apis/hubv1"
)

// MaxAuditPage is the most rows of the audit trail that one read gives.
const MaxAuditPage = 1000

// Audit reads the audit trail, oldest row first, from behind the query's cursor
// on. Rows are numbered as they are committed, so whoever goes on from the last
// one that it has misses none and sees none twice.
func (s *Store) Audit(ctx context.Context, query hubv1.AuditQuery) (hubv1.AuditPage, error) {
	where, args := []string{"id > ?"}, []any{query.Cursor}
	ask := func(condition string, values ...any) {
		where, args = append(where, condition), append(args, values...)
	}
	if !query.Since.IsZero() {
		ask("at >= ?", nano(query.Since))
	}
	if !query.Until.IsZero() {
		ask("at < ?", nano(query.Until))
	}
	for _, exact := range [][2]string{{"actor", query.Actor}, {"object", query.Object}} {
		if exact[1] != "" {
			ask(exact[0]+" = ?", exact[1])
		}
	}
	if query.Action != "" {
		ask("substr(action, 1, ?) = ?", utf8.RuneCountInString(query.Action), query.Action)
	}
	if query.Pool != "" {
		// Rows have the name; whoever has the id may ask by that.
		ask("(pool = ? OR pool = (SELECT p.name FROM pools p WHERE p.id = ?))", query.Pool, query.Pool)
	}
	limit := query.Limit
	if limit <= 0 || limit > MaxAuditPage {
		limit = MaxAuditPage
	}
	items, err := collect(ctx, s.reader, scanAudit, "SELECT id, at, actor, token, action, pool, object, state, detail FROM audit WHERE "+
		strings.Join(where, " AND ")+" ORDER BY id LIMIT ?", append(args, limit)...)
	page := hubv1.AuditPage{Items: items}
	if len(items) == limit {
		page.Next = items[limit-1].ID
	}
	return page, err
}

func scanAudit(row scanner) (hubv1.AuditRecord, error) {
	var r hubv1.AuditRecord
	var at int64
	err := row.Scan(&r.ID, &at, &r.Actor, &r.Token, &r.Action, &r.Pool, &r.Object, &r.State, &r.Detail)
	r.At = time.Unix(0, at).UTC()
	return r, err
}
