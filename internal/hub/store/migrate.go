package store

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

//go:embed migrations/sqlite/*.sql
var migrations embed.FS

// ErrNewer says that the database was written by a newer hub.
var ErrNewer = errors.New("the database was written by a newer hub: run that build, or restore a copy from before the upgrade")

// migrate applies the migrations that the database has not seen, each in a
// transaction of its own. The files' order is their version, counted from 1.
func migrate(ctx context.Context, db *sql.DB) error {
	if _, err := db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL) STRICT"); err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	var have int
	if err := db.QueryRowContext(ctx, "SELECT COALESCE(MAX(version), 0) FROM schema_version").Scan(&have); err != nil {
		return fmt.Errorf("read the schema's version: %w", err)
	}
	files, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	if err != nil {
		return err
	}
	if have > len(files) {
		return fmt.Errorf("schema version %d, this build knows %d: %w", have, len(files), ErrNewer)
	}
	for i := have; i < len(files); i++ {
		if err := apply(ctx, db, i+1, files[i]); err != nil {
			return fmt.Errorf("migration %s: %w", files[i], err)
		}
	}
	return nil
}

func apply(ctx context.Context, db *sql.DB, version int, file string) error {
	text, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // nothing once it is committed
	if _, err := tx.ExecContext(ctx, string(text)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO schema_version (version, name) VALUES (?, ?)", version, file); err != nil {
		return err
	}
	return tx.Commit()
}
