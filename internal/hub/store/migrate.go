package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

//go:embed migrations/*/*.sql
var migrations embed.FS

// ErrNewer says that the database was written by a newer hub.
var ErrNewer = errors.New("the database was written by a newer hub: run that build, or restore a copy from before the upgrade")

// migration is one step of the schema. Its version is the number that its file's
// name begins with.
type migration struct {
	version int
	name    string
	text    string
}

// migrationsOf are an engine's migrations in the order of their versions.
func migrationsOf(engine string) ([]migration, error) {
	files, err := fs.Glob(migrations, "migrations/"+engine+"/*.sql")
	if err != nil {
		return nil, err
	}
	out := make([]migration, 0, len(files))
	for _, file := range files {
		name := path.Base(file)
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.Atoi(number)
		if err != nil {
			return nil, fmt.Errorf("migration %s: its name does not begin with its number", file)
		}
		text, err := migrations.ReadFile(file)
		if err != nil {
			return nil, err
		}
		out = append(out, migration{version, name, string(text)})
	}
	slices.SortStableFunc(out, func(a, b migration) int { return a.version - b.version })
	return out, nil
}

// createVersions makes the table of the migrations that a database has seen.
const createVersions = "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL)"

// migrate applies the migrations that the database has not seen, in one
// transaction each, while no other hub does.
func migrate(ctx context.Context, e engine) error {
	known, err := migrationsOf(e.migrations())
	if err != nil {
		return err
	}
	return e.inTurn(ctx, func(conn *sql.Conn) error {
		if _, err := conn.ExecContext(ctx, createVersions); err != nil {
			return fmt.Errorf("read the schema's version: %w", err)
		}
		seen, err := collect(ctx, conn, scanInt, "SELECT version FROM schema_version ORDER BY version")
		if err != nil {
			return fmt.Errorf("read the schema's version: %w", err)
		}
		for _, version := range seen {
			if !slices.ContainsFunc(known, func(m migration) bool { return int64(m.version) == version }) {
				return fmt.Errorf("the schema is at version %d, this build knows them up to %d: %w", seen[len(seen)-1], known[len(known)-1].version, ErrNewer)
			}
		}
		for _, m := range known {
			if slices.Contains(seen, int64(m.version)) {
				continue
			}
			if err := m.apply(ctx, conn); err != nil {
				return fmt.Errorf("migration %s: %w", m.name, err)
			}
		}
		return nil
	})
}

func (m migration) apply(ctx context.Context, conn *sql.Conn) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing once it is committed
	if _, err := tx.ExecContext(ctx, m.text); err != nil {
		return err
	}
	// The name is this package's own, so it needs no argument, which databases
	// spell in different ways.
	if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO schema_version (version, name) VALUES (%d, '%s')", m.version, m.name)); err != nil {
		return err
	}
	return tx.Commit()
}
