package store

import (
	"context"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/token"
)

// Caller is a user who has proved who it is with a token.
type Caller struct {
	// User is the user's name.
	User string
	// Token is the one in hand, without its secret.
	Token hubv1.Token
	// Rights are what the user may do with it.
	Rights access.Rights
	standing
}

// Actor is the caller's name in the audit trail.
func (c Caller) Actor() string { return access.User(c.User) }

// Ceiling bounds which pools there are for the caller.
func (c Caller) Ceiling() hubv1.Ceiling {
	if c.Token.Ceiling == nil {
		return hubv1.Ceiling{}
	}
	return *c.Token.Ceiling
}

// Unscoped are the rights that the caller's user has without the token's scopes.
func (c Caller) Unscoped() access.Rights { return access.Of(c.grants, nil) }

// KeepsTokens says whether the token in hand is good for its user's other tokens
// too: one with a ceiling never is, and one with scopes where they have what
// others' tokens need.
func (c Caller) KeepsTokens(p hubv1.Permission) bool {
	return c.Token.Ceiling == nil && (len(c.Token.Scopes) == 0 || c.Rights.May(p, ""))
}

// bounded says whether the token in hand gives less than its user has.
func (c Caller) bounded() bool { return c.Token.Ceiling != nil || len(c.Token.Scopes) > 0 }

// standing is what somebody is: its groups and the roles that it has itself or
// by them.
type standing struct {
	groups []string
	grants []access.Grant
}

type callerKey struct{}

// WithCaller makes what is done under the context the caller's: it is held to the
// ceiling of its token, and changes are not made once that is revoked.
func WithCaller(ctx context.Context, caller Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, &caller)
}

// ceilingIn bounds which pools there are for whoever asks under the context.
func ceilingIn(ctx context.Context) hubv1.Ceiling {
	if caller, _ := ctx.Value(callerKey{}).(*Caller); caller != nil {
		return caller.Ceiling()
	}
	return hubv1.Ceiling{}
}

// as runs a change for the caller of the context, if there is one. What was
// checked before the change may have been taken back since: after a token is
// revoked nothing is written for it any more.
func as(ctx context.Context, fn func(*Tx) error) func(*Tx) error {
	caller, _ := ctx.Value(callerKey{}).(*Caller)
	if caller == nil {
		return fn
	}
	return func(tx *Tx) error {
		tx.caller = caller
		row, found, err := first(context.Background(), tx, scanToken, selectTokens+" WHERE id = ?", caller.Token.ID)
		switch {
		case err != nil:
			return err
		case !found:
			return revokedToken()
		}
		if err := row.usable(tx.now); err != nil {
			return err
		}
		return fn(tx)
	}
}

func revokedToken() error {
	return problem.New(hubv1.CodeUnauthenticated, "the token is revoked or was never issued")
}

// usable says why a token is not accepted any more.
func (t tokenRow) usable(now time.Time) error {
	switch {
	case t.RevokedAt != nil:
		return revokedToken()
	case t.ExpiresAt != nil && !now.Before(*t.ExpiresAt):
		return problem.New(hubv1.CodeUnauthenticated, "the token %s of user:%s has expired at %s", t.ID, t.User, t.ExpiresAt.Format(time.RFC3339))
	}
	return nil
}

// AuthUser finds the caller of a bearer token. The token is looked up by its
// SHA-256: what can be learnt from the time that an index takes says something
// about hashes, which nobody can choose tokens for, and nothing about tokens.
func (s *Store) AuthUser(ctx context.Context, text string) (Caller, error) {
	if token.Check(token.Admin, text) != nil && token.Check(token.User, text) != nil {
		return Caller{}, problem.New(hubv1.CodeUnauthenticated, "the bearer token is no token of a user")
	}
	return s.caller(ctx, "hash", token.Hash(text))
}

// Renewed is the caller as it is now: what it may do has changed since, or its
// token is not accepted any more.
func (s *Store) Renewed(ctx context.Context, caller Caller) (Caller, error) {
	return s.caller(ctx, "id", caller.Token.ID)
}

func (s *Store) caller(ctx context.Context, column, value string) (c Caller, err error) {
	now := s.clock.Now().UTC()
	err = s.view(ctx, func(q querier) error {
		row, found, err := first(ctx, q, scanToken, selectTokens+" WHERE "+column+" = ?", value)
		if err != nil {
			return err
		}
		if !found {
			return revokedToken()
		}
		if err := row.usable(now); err != nil {
			return err
		}
		c.User, c.Token = row.User, row.Token
		c.standing, err = standingOf(ctx, q, row.User)
		c.Rights = access.Of(c.grants, row.Scopes)
		return err
	})
	if err == nil {
		s.usedToken(ctx, c.Token, now)
	}
	return c, err
}

// standingOf reads the groups and roles of a user, who may be gone and has none
// then.
func standingOf(ctx context.Context, q querier, user string) (standing, error) {
	var out standing
	var err error
	if out.groups, err = collect(ctx, q, scanText, "SELECT group_name FROM group_members WHERE user_name = ? ORDER BY group_name", user); err != nil {
		return out, err
	}
	out.grants, err = grantsOfUser(ctx, q, user)
	return out, err
}

const selectGrants = "SELECT b.role, b.project_id, COALESCE(r.permissions, '') FROM role_bindings b LEFT JOIN roles r ON r.name = b.role"

// grantsOfUser reads the roles that a user has itself or by its groups.
func grantsOfUser(ctx context.Context, q querier, user string) ([]access.Grant, error) {
	return collect(ctx, q, scanGrant, selectGrants+` WHERE b.subject = ? OR b.subject IN
		(SELECT 'group:' || m.group_name FROM group_members m WHERE m.user_name = ?) ORDER BY b.role, b.project_id`, access.User(user), user)
}

// grantsOf reads the roles that subjects have.
func grantsOf(ctx context.Context, q querier, subjects ...any) ([]access.Grant, error) {
	return collect(ctx, q, scanGrant, selectGrants+" WHERE b.subject IN ("+places(len(subjects))+") ORDER BY b.role, b.project_id", subjects...)
}

func scanGrant(row scanner) (access.Grant, error) {
	var g access.Grant
	var permissions string
	if err := row.Scan(&g.Role, &g.Project, &permissions); err != nil {
		return g, err
	}
	if role, found := access.FindBuiltIn(g.Role); found {
		g.Permissions = role.Permissions
		return g, nil
	}
	if permissions == "" {
		return g, nil // a role of an older build
	}
	return g, fromJSON(permissions, &g.Permissions)
}

// usedToken keeps when a token was last used, to the minute. Who asks is let in
// all the same where that cannot be written.
func (s *Store) usedToken(ctx context.Context, t hubv1.Token, now time.Time) {
	if !s.tokenUses.note(t.ID, now) {
		return
	}
	_ = s.update(ctx, func(tx *Tx) error {
		_, err := tx.exec("UPDATE tokens SET last_used_at = ? WHERE id = ?", nano(now), t.ID)
		return err
	})
}
