-- Who may do what: users, groups, roles and tokens. Names are as in audiences,
-- without user:, group: or role: before them.

CREATE TABLE users (
    name       TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL,
    -- Kept once it is removed: a run of it that comes back from a lost runner
    -- must not start again.
    removed_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE user_groups (
    name       TEXT PRIMARY KEY,
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE group_members (
    user_name  TEXT NOT NULL REFERENCES users (name),
    group_name TEXT NOT NULL REFERENCES user_groups (name),
    PRIMARY KEY (user_name, group_name)
) STRICT, WITHOUT ROWID;
CREATE INDEX group_members_group ON group_members (group_name);

-- The roles that people made; the hub's own are in its code.
CREATE TABLE roles (
    name        TEXT PRIMARY KEY,
    permissions TEXT NOT NULL CHECK (json_valid(permissions)),
    created_at  INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- subject is user:<name> or group:<name>; an empty project_id is the whole hub.
CREATE TABLE role_bindings (
    subject    TEXT NOT NULL,
    role       TEXT NOT NULL,
    project_id TEXT NOT NULL DEFAULT '',
    created_at INTEGER NOT NULL,
    PRIMARY KEY (subject, role, project_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX role_bindings_role ON role_bindings (role);

CREATE TABLE tokens (
    id           TEXT PRIMARY KEY,
    user_name    TEXT NOT NULL REFERENCES users (name),
    name         TEXT NOT NULL,
    hash         TEXT NOT NULL UNIQUE,
    scopes       TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(scopes)),
    ceiling      TEXT CHECK (ceiling IS NULL OR json_valid(ceiling)),
    created_by   TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    expires_at   INTEGER,
    revoked_at   INTEGER,
    -- Coarse: it is not written with each use.
    last_used_at INTEGER
) STRICT;
CREATE INDEX tokens_user ON tokens (user_name, created_at);

-- Until now every token was an administrator's.
INSERT INTO users (name, created_at) SELECT name, created_at FROM admin_tokens;
INSERT INTO role_bindings (subject, role, project_id, created_at)
    SELECT 'user:' || name, 'admin', '', created_at FROM admin_tokens WHERE revoked_at IS NULL;
INSERT INTO tokens (id, user_name, name, hash, created_by, created_at, revoked_at)
    SELECT id, name, 'first', hash, 'hub', created_at, revoked_at FROM admin_tokens;
DROP TABLE admin_tokens;

-- The token that the actor used; empty for the hub, controllers and runners.
ALTER TABLE audit ADD COLUMN token TEXT NOT NULL DEFAULT '';
