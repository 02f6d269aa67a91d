package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
)

// querier is what reads need: the read pool, a read transaction or a Tx.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// view runs fn on one consistent snapshot of the database.
func (s *Store) view(ctx context.Context, fn func(querier) error) error {
	ctx, stop := s.reader.pulse.watched(ctx)
	defer stop()
	tx, err := s.reader.snapshot(ctx, s.engine.snapshot())
	if err != nil {
		return &accessError{"read", err}
	}
	// Nothing was written, so there is nothing to keep.
	defer func() { _ = tx.Rollback() }()
	return fn(bound{q: tx, bind: s.reader.bind, ctx: ctx})
}

// watchedBy bounds one query that is made outside of a transaction.
func watchedBy(ctx context.Context, q querier) (context.Context, func()) {
	if r, alone := q.(reader); alone {
		return r.pulse.watched(ctx)
	}
	return ctx, func() {}
}

// collect runs a query and scans every row.
func collect[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	ctx, stop := watchedBy(ctx, q)
	defer stop()
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, &accessError{"read", err}
	}
	defer func() { _ = rows.Close() }()
	out := []T{}
	for rows.Next() {
		item, err := scan(rows)
		if err != nil {
			return nil, &accessError{"read a row of", err}
		}
		out = append(out, item)
	}
	if err := rows.Err(); err != nil {
		return nil, &accessError{"read", err}
	}
	return out, nil
}

// first returns the first row; found is false where there is none.
func first[T any](ctx context.Context, q querier, scan func(scanner) (T, error), query string, args ...any) (item T, found bool, err error) {
	ctx, stop := watchedBy(ctx, q)
	defer stop()
	item, err = scan(q.QueryRowContext(ctx, query, args...))
	if errors.Is(err, sql.ErrNoRows) {
		return item, false, nil
	}
	if err != nil {
		return item, false, &accessError{"read", err}
	}
	return item, true, nil
}

// places are the placeholders of a list of n values, of which there is one at
// least.
func places(n int) string { return strings.Repeat(", ?", n)[2:] }

type scanner interface{ Scan(...any) error }

func scanText(row scanner) (string, error) {
	var text string
	err := row.Scan(&text)
	return text, err
}

func scanInt(row scanner) (int64, error) {
	var n int64
	err := row.Scan(&n)
	return n, err
}

func nano(t time.Time) int64 { return t.UnixNano() }

// flag is a truth as a column keeps it.
func flag(set bool) int {
	if set {
		return 1
	}
	return 0
}

func fromNano(n int64) time.Time { return time.Unix(0, n).UTC() }

func optionalTime(n sql.NullInt64) *time.Time {
	if !n.Valid {
		return nil
	}
	t := fromNano(n.Int64)
	return &t
}

// asJSON encodes a value that always can be: our own types.
func asJSON(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", value, err))
	}
	return string(data)
}

func fromJSON(text string, out any) error {
	if err := json.Unmarshal([]byte(text), out); err != nil {
		return fmt.Errorf("decode a %T of the hub's database: %w", out, err)
	}
	return nil
}

var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// newID makes an id such as "pool_k3…". The underscore keeps ids apart from
// names of pools, which have none.
func newID(kind string) string {
	var raw [10]byte
	_, _ = rand.Read(raw[:])
	return kind + "_" + idEncoding.EncodeToString(raw[:])
}

func typeName(value any) string { return fmt.Sprintf("%T", value) }
