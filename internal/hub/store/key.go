package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/token"
)

// Key is a request's Idempotency-Key; empty for none. It is kept with the change
// that the request makes, so a request that was refused may be tried again with it.
type Key string

// keysKept is how long a repeated request is recognised.
const keysKept = 24 * time.Hour

// keyed is a request with its key, and who asks.
type keyed struct {
	actor   string
	key     Key
	request any
}

type keyedKey struct{}

// WithKey makes the change that is made under the context a request's: it is made
// unless the same request has made it with the same key. What makes something and
// answers a repetition with that takes its key itself.
func WithKey(ctx context.Context, actor string, key Key, request any) context.Context {
	return context.WithValue(ctx, keyedKey{}, keyed{actor, key, request})
}

func keyedIn(ctx context.Context) keyed {
	k, _ := ctx.Value(keyedKey{}).(keyed)
	return k
}

// once is update for what people ask for: a request that has done it already, by
// its key, does it no more. What it refuses whoever may not ask comes before once
// in a change, which uses tx.once then.
func (s *Store) once(ctx context.Context, do func(*Tx) error) error {
	return s.update(ctx, func(tx *Tx) error {
		_, err := tx.once(keyedIn(ctx), func() error { return do(tx) })
		return err
	})
}

// once does something unless the same request has done it with the same key.
func (tx *Tx) once(k keyed, do func() error) (repeated bool, err error) {
	if _, repeated, err := tx.repeats(k.actor, k.key, k.request); err != nil || repeated {
		return repeated, err
	}
	if err := do(); err != nil {
		return false, err
	}
	return false, tx.remember(k.actor, k.key, k.request, "")
}

// Repeated says whether the request of the context has been carried out before, by
// its key: for what looks elsewhere before it changes anything.
func (s *Store) Repeated(ctx context.Context) (repeated bool, err error) {
	k := keyedIn(ctx)
	err = s.update(ctx, func(tx *Tx) error {
		_, repeated, err = tx.repeats(k.actor, k.key, k.request)
		return err
	})
	return repeated, err
}

// forgetKeys removes keys that are over, as many as it is asked to.
const forgetKeys = "DELETE FROM idempotency WHERE (actor, key) IN (SELECT actor, key FROM idempotency WHERE created_at < ? ORDER BY created_at LIMIT ?)"

// keysForgotten is how many keys that are over go whenever one is used.
const keysForgotten = 100

// forgetKeys removes the key if it is over, and some others with it: not all at once,
// since every other change waits.
func (tx *Tx) forgetKeys(actor string, key Key) error {
	if tx.store.unsettled() {
		return nil // one of a moment ago may look a day old
	}
	over := nano(tx.now.Add(-keysKept))
	if _, err := tx.exec("DELETE FROM idempotency WHERE actor = ? AND key = ? AND created_at < ?", tx.keeper(actor), string(key), over); err != nil {
		return err
	}
	_, err := tx.exec(forgetKeys, over, keysForgotten)
	return err
}

// repeats finds what an earlier request with the key made. The same key with
// another request is a conflict.
func (tx *Tx) repeats(actor string, key Key, request any) (object string, repeated bool, err error) {
	if key == "" {
		return "", false, nil
	}
	if err := tx.forgetKeys(actor, key); err != nil {
		return "", false, err
	}
	var was string
	err = tx.QueryRowContext(context.Background(), "SELECT request, object FROM idempotency WHERE actor = ? AND key = ?", tx.keeper(actor), string(key)).
		Scan(&was, &object)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", false, nil
	case err != nil:
		return "", false, err
	case was != fingerprint(request):
		return "", false, problem.New(hubv1.CodeConflict, "the Idempotency-Key was used for another request")
	}
	return object, true, nil
}

// undone refuses to say that something was made which was taken away again: who
// repeats the request may want it once more, and would believe it to be there.
func undone(what string) *hubv1.Problem {
	p := problem.New(hubv1.CodeConflict, "%s, which the request with this Idempotency-Key made, was removed since", what)
	p.Remedy = "to make it again, ask with another Idempotency-Key"
	return p
}

// orUndone is err, or undone where err says that what a request made is not there.
func orUndone(err error, what string) error {
	var missing *hubv1.Problem
	if errors.As(err, &missing) {
		return undone(what)
	}
	return err
}

// keeper is whose keys are told apart: a user's tokens share theirs, but what was
// made with another one is not for a token that is bounded.
func (tx *Tx) keeper(actor string) string {
	if tx.caller != nil && tx.caller.bounded() {
		return actor + " with " + tx.caller.Token.ID
	}
	return actor
}

func (tx *Tx) remember(actor string, key Key, request any, object string) error {
	if key == "" {
		return nil
	}
	return tx.send("INSERT INTO idempotency (actor, key, request, object, created_at) VALUES (?, ?, ?, ?, ?)",
		tx.keeper(actor), string(key), fingerprint(request), object, nano(tx.now))
}

// fingerprint tells requests apart by type and content.
func fingerprint(request any) string {
	data, err := json.Marshal(request)
	if err != nil {
		panic(err) // our own request types always encode
	}
	return token.Hash(typeName(request) + string(data))
}
