package store

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/access"
	"cloop.dev/cloop/internal/hub/problem"
)

// Which pools, projects and runs a ceiling lets one reach. A pool that it hides
// is not there, and neither are the projects that are bound to it and the runs
// that are for it.

// reaches refuses to change a pool that is out of the reach of the caller's
// token: by its name as if it were not there, by the rest with a word.
func (tx *Tx) reaches(pool poolRow) error {
	if tx.caller == nil {
		return nil
	}
	if !access.Sees(tx.caller.Ceiling(), pool.Name) {
		// In the words of who asks: its id is not to tell the name.
		return noPool(cmp.Or(pool.ref, pool.Name))
	}
	return beyond(tx.caller.Ceiling(), pool, "token "+tx.caller.Token.ID, "ask who made the token for another one")
}

// beyond refuses a pool that is not within a ceiling, and says whose it is and what
// of it is beyond; remedy is what to do about that. What an override makes of a pool
// for a time neither puts it out of reach nor within it: what Git says counts.
func beyond(ceiling hubv1.Ceiling, pool poolRow, holder, remedy string) error {
	is, as := pool.PoolDefinition, "as it is at the hub"
	if pool.Override != nil {
		is, as = pool.Override.Git, "as Git says"
	}
	texts := exceeding(ceiling, pool.Name, is)
	if texts == "" {
		return nil
	}
	whose := "belongs to " + cmp.Or(is.Owner, "nobody")
	if is.Owner == "" && pool.Source != nil {
		whose = "is managed by " + pool.Source.String()
	}
	p := problem.New(hubv1.CodeForbidden, "pool %s %s and is, %s, beyond the ceiling of %s (%s)", pool.Name, whose, as, holder, texts)
	p.Remedy = remedy
	return p
}

// exceeding says what of a definition is beyond a ceiling; empty: nothing is.
func exceeding(ceiling hubv1.Ceiling, name string, definition hubv1.PoolDefinition) string {
	var texts []string
	for _, field := range access.Exceeds(ceiling, name, definition) {
		texts = append(texts, field.Location+": "+field.Message)
	}
	return strings.Join(texts, "; ")
}

// reachesOverride refuses to end, to replace or to make lasting an override that
// gives a pool more than the ceiling of the caller's token does.
func (tx *Tx) reachesOverride(pool poolRow) error {
	over := pool.Override
	if tx.caller == nil || over == nil {
		return nil
	}
	texts := exceeding(tx.caller.Ceiling(), pool.Name, pool.PoolDefinition)
	if texts == "" {
		return nil
	}
	p := problem.New(hubv1.CodeForbidden, "pool %s is, as %s has overridden it until %s, beyond the ceiling of token %s (%s)",
		pool.Name, over.By, over.Until.UTC().Format(time.RFC3339), tx.caller.Token.ID, texts)
	p.Remedy = fmt.Sprintf("wait for the end of the override, or have somebody end it who may: `cloop executor pool end-override %s`", pool.Name)
	return p
}

// within refuses a definition that goes beyond the ceiling of the caller's
// token, and names each field.
func (tx *Tx) within(name string, definition hubv1.PoolDefinition) error {
	if tx.caller == nil {
		return nil
	}
	exceeded := access.Exceeds(tx.caller.Ceiling(), name, definition)
	if len(exceeded) == 0 {
		return nil
	}
	p := problem.New(hubv1.CodeForbidden, "the definition of pool %s is beyond the ceiling of token %s", name, tx.caller.Token.ID)
	p.Remedy = "stay within the ceiling, or ask who made the token for another one"
	for _, field := range exceeded {
		p.Errors = append(p.Errors, hubv1.FieldError{Location: "body." + field.Location, Message: field.Message})
	}
	return p
}

// hidden says whether a project is bound to a pool that a ceiling hides.
func (p projectRow) hidden(ctx context.Context, q querier, ceiling hubv1.Ceiling) (bool, error) {
	if p.poolID == "" {
		return false, nil
	}
	return hides(ctx, q, ceiling, p.poolID)
}

// veil takes out of a project that is shown what is about pools that a ceiling
// hides: the run that was dropped may have been for another pool than the one
// that the project is bound to now.
func (p *projectRow) veil(ctx context.Context, q querier, ceiling hubv1.Ceiling) error {
	if p.Dropped == nil || len(ceiling.Names) == 0 {
		return nil
	}
	pool, _, err := first(ctx, q, scanText, "SELECT pool_id FROM runs WHERE id = ?", p.Dropped.Run)
	if err != nil {
		return err
	}
	hidden, err := hides(ctx, q, ceiling, pool)
	if hidden {
		p.Dropped = nil
	}
	return err
}

// hides says whether a ceiling hides a pool, by its id.
func hides(ctx context.Context, q querier, ceiling hubv1.Ceiling, pool string) (bool, error) {
	if len(ceiling.Names) == 0 {
		return false, nil
	}
	name, _, err := first(ctx, q, scanText, "SELECT name FROM pools WHERE id = ?", pool)
	return err == nil && !access.Sees(ceiling, name), err
}

// poolsWithin are the ids of the pools that a ceiling does not hide, revoked ones
// too.
func poolsWithin(ctx context.Context, q querier, ceiling hubv1.Ceiling) ([]string, error) {
	names, err := collect(ctx, q, scanText, "SELECT name FROM pools ORDER BY name")
	if err != nil {
		return nil, err
	}
	var seen []any
	for _, name := range names {
		if access.Sees(ceiling, name) {
			seen = append(seen, name)
		}
	}
	if len(seen) == 0 {
		return nil, nil
	}
	return collect(ctx, q, scanText, "SELECT id FROM pools WHERE name IN ("+places(len(seen))+")", seen...)
}

// seesProject and seesRun refuse what is about a pool that the ceiling of the
// caller's token hides. The request was let in before; the project may have been
// bound to another pool since.
func (tx *Tx) seesProject(p projectRow) error {
	if tx.caller == nil {
		return nil
	}
	hidden, err := p.hidden(context.Background(), tx, tx.caller.Ceiling())
	if err == nil && hidden {
		err = NoProject(cmp.Or(p.ref, p.Name))
	}
	return err
}

func (tx *Tx) seesRun(r runRow) error {
	if tx.caller == nil {
		return nil
	}
	hidden, err := hides(context.Background(), tx, tx.caller.Ceiling(), r.PoolID)
	if err == nil && hidden {
		err = noRun(r.ID)
	}
	return err
}

// leaves refuses to bind a project away from a pool out of the caller's reach,
// whose queue would lose the project's runs.
func (tx *Tx) leaves(p projectRow) error {
	if err := tx.seesProject(p); err != nil || tx.caller == nil || p.poolID == "" {
		return err
	}
	pool, err := findPool(context.Background(), tx, p.poolID)
	if err != nil || pool.State == hubv1.PoolRevoked {
		return err
	}
	return tx.reaches(pool)
}
