package store

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/token"
	"cloop.dev/cloop/internal/secret"
)

// tokenRow is a user's token; its hash is read by nobody.
type tokenRow struct{ hubv1.Token }

const selectTokens = `SELECT id, user_name, name, scopes, ceiling, created_by, created_at, expires_at, revoked_at, last_used_at FROM tokens`

func scanToken(row scanner) (tokenRow, error) {
	var (
		t                      tokenRow
		scopes                 string
		ceiling                sql.NullString
		created                int64
		expires, revoked, used sql.NullInt64
	)
	if err := row.Scan(&t.ID, &t.User, &t.Name, &scopes, &ceiling, &t.CreatedBy, &created, &expires, &revoked, &used); err != nil {
		return t, err
	}
	t.CreatedAt = fromNano(created)
	t.ExpiresAt, t.RevokedAt, t.LastUsedAt = optionalTime(expires), optionalTime(revoked), optionalTime(used)
	if ceiling.Valid {
		t.Ceiling = &hubv1.Ceiling{}
		if err := fromJSON(ceiling.String, t.Ceiling); err != nil {
			return t, err
		}
	}
	return t, fromJSON(scopes, &t.Scopes)
}

// maxTokens bounds how many live tokens a user has.
const maxTokens = 200

// insertToken stores a token's hash and says so in the audit trail.
func (tx *Tx) insertToken(actor string, text secret.String, t hubv1.Token) error {
	var ceiling, expires any
	if t.Ceiling != nil {
		ceiling = asJSON(t.Ceiling)
	}
	if t.ExpiresAt != nil {
		expires = nano(*t.ExpiresAt)
	}
	scopes := t.Scopes
	if scopes == nil {
		scopes = []hubv1.Permission{}
	}
	if _, err := tx.exec(`INSERT INTO tokens (id, user_name, name, hash, scopes, ceiling, created_by, created_at, expires_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		t.ID, t.User, t.Name, token.Hash(text.Reveal()), asJSON(scopes), ceiling, t.CreatedBy, nano(tx.now), expires); err != nil {
		return err
	}
	bounds := struct {
		Scopes    []hubv1.Permission `json:"scopes,omitempty"`
		Ceiling   *hubv1.Ceiling     `json:"ceiling,omitempty"`
		ExpiresAt *time.Time         `json:"expiresAt,omitempty"`
	}{t.Scopes, t.Ceiling, t.ExpiresAt}
	return tx.audit(record{actor: actor, action: ActionTokenCreate, object: t.ID, state: "live", detail: access.User(t.User) + " " + t.Name + " " + asJSON(bounds)})
}

// CreateToken makes a token, which is shown this once. A repeated request gets
// the first one's record.
func (s *Store) CreateToken(ctx context.Context, caller Caller, key Key, request hubv1.CreateTokenRequest) (out hubv1.Token, err error) {
	if request.User == "" {
		request.User = caller.User
	}
	actor := caller.Actor()
	err = s.update(ctx, func(tx *Tx) error {
		bg := context.Background()
		tx.caller = &caller
		if err := tx.renewCaller(); err != nil {
			return err
		}
		if request.User != caller.User {
			if err := tx.caller.mayGive(access.Grant{Permissions: []hubv1.Permission{hubv1.PermissionAccessManage}}, "a token for somebody else"); err != nil {
				return err
			}
		}
		if id, repeated, err := tx.repeats(actor, key, request); err != nil {
			return err
		} else if repeated {
			row, found, err := first(bg, tx, scanToken, selectTokens+" WHERE id = ?", id)
			if err == nil && (!found || row.RevokedAt != nil) {
				err = undone("token " + id)
			}
			out = row.Token
			return err
		}
		if _, err := findUser(bg, tx, request.User); err != nil {
			return err
		}
		scopes, err := tx.tokenScopes(request)
		if err != nil {
			return err
		}
		live, _, err := first(bg, tx, scanInt, "SELECT COUNT(*) FROM tokens WHERE user_name = ? AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)",
			request.User, nano(tx.now))
		if err != nil {
			return err
		}
		if live >= maxTokens {
			p := problem.New(hubv1.CodeConflict, "user %s has %s, which is as many as one may have", request.User, count.Of(live, "token"))
			p.Remedy = "revoke those that nobody uses: `cloop hub token list`"
			return p
		}
		text := token.New(token.User)
		out = hubv1.Token{
			ID: newID("token"), Name: request.Name, User: request.User, Scopes: scopes, Ceiling: request.Ceiling,
			CreatedBy: actor, CreatedAt: tx.now, ExpiresAt: request.ExpiresAt,
		}
		if err := tx.insertToken(actor, text, out); err != nil {
			return err
		}
		if err := tx.remember(actor, key, request, out.ID); err != nil {
			return err
		}
		out.Secret = text.Reveal()
		return nil
	})
	if err != nil {
		return hubv1.Token{}, err
	}
	return out, nil
}

// tokenScopes are the scopes of a token to make. It never gives more than its
// maker has, for as long as that one's token lasts.
func (tx *Tx) tokenScopes(request hubv1.CreateTokenRequest) ([]hubv1.Permission, error) {
	caller, scopes, now := *tx.caller, request.Scopes, tx.now
	forbidden := func(remedy, format string, args ...any) error {
		p := problem.New(hubv1.CodeForbidden, format, args...)
		p.Remedy = remedy
		return p
	}
	mine := caller.Token
	switch until := request.ExpiresAt; {
	case mine.Ceiling != nil:
		return nil, forbidden("use a token without one", "token %s has a ceiling and makes no tokens", mine.ID)
	case until != nil && !until.After(now):
		return nil, problem.New(hubv1.CodeInvalid, "the token would have expired at %s already", until.UTC().Format(time.RFC3339))
	case mine.ExpiresAt != nil && (until == nil || until.After(*mine.ExpiresAt)):
		return nil, forbidden("let it expire no later, or use a token that lasts longer",
			"token %s, which asks, expires at %s, and makes none that lasts longer", mine.ID, mine.ExpiresAt.Format(time.RFC3339))
	}
	if request.User == caller.User {
		if len(scopes) == 0 {
			return mine.Scopes, nil
		}
		for _, p := range scopes {
			if !caller.Rights.MayAnywhere(p) {
				return nil, caller.mayGive(access.Grant{Permissions: []hubv1.Permission{p}}, "the token")
			}
		}
		return scopes, nil
	}
	if err := tx.mayActAs(request.User); err != nil {
		return nil, err
	}
	if len(scopes) == 0 {
		scopes = caller.Rights.Everywhere()
	}
	return scopes, caller.mayGive(access.Grant{Permissions: scopes}, "the token")
}

// maxTokensPage is the most tokens of one page.
const maxTokensPage = 1000

// ListTokens is a page of a user's tokens, newest first, or of everybody's where
// no user is named; those that are over only where asked for. The cursor is
// hubv1.TokenList.Next of the page before. A user who is not there and has left
// none is an error: the name may be wrong.
func (s *Store) ListTokens(ctx context.Context, user string, over bool, cursor string) (page hubv1.TokenList, err error) {
	page.Items = []hubv1.Token{}
	where, args := " WHERE (? = '' OR user_name = ?)", []any{user, user}
	if !over {
		where += " AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)"
		args = append(args, nano(s.clock.Now()))
	}
	if cursor != "" {
		created, id, err := tokenPlace(cursor)
		if err != nil {
			return page, err
		}
		where += " AND (created_at < ? OR created_at = ? AND id > ?)"
		args = append(args, created, created, id)
	}
	const order = " ORDER BY created_at DESC, id LIMIT ?"
	err = s.viewPage(ctx, func(q querier) error {
		sizes, err := collect(ctx, q, scanTokenSize, "SELECT created_at, id, octet_length(scopes) + COALESCE(octet_length(ceiling), 0) FROM tokens"+where+order,
			append(args, maxTokensPage+1)...)
		if err != nil {
			return err
		}
		if len(sizes) == 0 {
			if user != "" && cursor == "" {
				_, err = findUser(ctx, q, user)
			}
			return err
		}
		n := fitting(sizes[:min(len(sizes), maxTokensPage)], func(p tokenSize) int64 { return p.bytes })
		if n < len(sizes) {
			page.Next = fmt.Sprintf("%d.%s", sizes[n-1].created, sizes[n-1].id)
		}
		rows, err := collect(ctx, q, scanToken, selectTokens+where+order, append(args, n)...)
		for _, row := range rows {
			page.Items = append(page.Items, row.Token)
		}
		return err
	})
	return page, err
}

// tokenSize is where a token is in the list, and how much of a page it takes.
type tokenSize struct {
	created int64
	id      string
	bytes   int64
}

func scanTokenSize(row scanner) (p tokenSize, err error) {
	return p, row.Scan(&p.created, &p.id, &p.bytes)
}

// tokenPlace reads hubv1.TokenList.Next.
func tokenPlace(cursor string) (created int64, id string, err error) {
	text, id, _ := strings.Cut(cursor, ".")
	if created, err = strconv.ParseInt(text, 10, 64); err != nil {
		p := problem.New(hubv1.CodeInvalid, "the list does not go on there")
		p.Errors = []hubv1.FieldError{{Location: "query.cursor", Message: "must be next of the page before"}}
		return 0, "", p
	}
	return created, id, nil
}

// RevokeToken ends a token at once: nothing is written for it afterwards. One
// who is not to see other people's tokens finds only its own.
func (s *Store) RevokeToken(ctx context.Context, caller Caller, id string) error {
	return s.update(ctx, func(tx *Tx) error {
		row, found, err := first(context.Background(), tx, scanToken, selectTokens+" WHERE id = ?", id)
		if err != nil {
			return err
		}
		tx.caller = &caller
		if err := tx.renewCaller(); err != nil {
			return err
		}
		if !found || row.User != caller.User && !tx.caller.Rights.May(hubv1.PermissionAccessManage, "") {
			return problem.New(hubv1.CodeNotFound, "there is no token %q", id)
		}
		_, err = tx.once(keyedIn(ctx), func() error {
			if row.RevokedAt != nil {
				return nil
			}
			if err := tx.mayRevoke(row); err != nil {
				return err
			}
			return tx.revokeToken(caller.Actor(), row, "")
		})
		return err
	})
}

func (tx *Tx) revokeToken(actor string, t tokenRow, why string) error {
	tx.store.tokenUses.forget(t.ID)
	if _, err := tx.exec("UPDATE tokens SET revoked_at = ? WHERE id = ?", nano(tx.now), t.ID); err != nil {
		return err
	}
	return tx.audit(record{actor: actor, action: ActionTokenRevoke, object: t.ID, state: "revoked", detail: why})
}

// adminUser is the user that the hub makes at its first start.
const adminUser = "admin"

// EnsureAdmin makes the first user, with the role that may do everything, and
// its token, unless there is a user already. It gives the token to deliver
// before it commits: a token that could not be delivered, or whose hub dies
// meanwhile, was never made.
func (s *Store) EnsureAdmin(ctx context.Context, deliver func(secret.String) error) error {
	made := false
	err := s.update(ctx, func(tx *Tx) error {
		n, _, err := first(context.Background(), tx, scanInt, "SELECT COUNT(*) FROM users")
		if made = err == nil && n == 0; !made {
			return err
		}
		return tx.makeAdmin(actorHub, deliver)
	})
	if err != nil || !made {
		return err
	}
	// From here on the file alone says that it is not a new hub's.
	return s.engine.persist(ctx)
}

// Blank says whether nothing was ever done with the database.
func (s *Store) Blank(ctx context.Context) (bool, error) {
	n, _, err := first(ctx, s.reader, scanInt, "SELECT (SELECT COUNT(*) FROM users) + (SELECT COUNT(*) FROM pools) + (SELECT COUNT(*) FROM audit)")
	return n == 0, err
}

// ResetAdmin replaces the tokens of the first user by a new one and gives it its
// role back: for whoever holds the hub's machine and has lost every token.
func (s *Store) ResetAdmin(ctx context.Context, deliver func(secret.String) error) error {
	return s.update(ctx, func(tx *Tx) error {
		live, err := collect(context.Background(), tx, scanToken, selectTokens+" WHERE user_name = ? AND revoked_at IS NULL", adminUser)
		if err != nil {
			return err
		}
		for _, t := range live {
			if err := tx.revokeToken(actorOperator, t, "the admin token was reset at the hub's machine"); err != nil {
				return err
			}
		}
		return tx.makeAdmin(actorOperator, deliver)
	})
}

// makeAdmin makes what is missing of the first user, and a token for it.
func (tx *Tx) makeAdmin(actor string, deliver func(secret.String) error) error {
	made, err := tx.exec(insertUser, adminUser, nano(tx.now))
	if err != nil {
		return err
	}
	subject := access.User(adminUser)
	if made > 0 {
		if err := tx.audit(record{actor: actor, action: ActionUserCreate, object: subject, state: "live"}); err != nil {
			return err
		}
	}
	given, err := tx.exec(`INSERT INTO role_bindings (subject, role, project_id, created_at) VALUES (?, ?, '', ?)
		ON CONFLICT (subject, role, project_id) DO NOTHING`, subject, access.RoleAdmin, nano(tx.now))
	if err != nil {
		return err
	}
	if given > 0 {
		if err := tx.audit(record{actor: actor, action: ActionRoleGive, object: access.Role(access.RoleAdmin), detail: subject}); err != nil {
			return err
		}
	}
	text := token.New(token.Admin)
	if err := tx.insertToken(actor, text, hubv1.Token{ID: newID("token"), Name: "admin", User: adminUser, CreatedBy: actor}); err != nil {
		return err
	}
	return deliver(text)
}
