-- Times are Unix nanoseconds. Hashes are hex SHA-256. JSON columns hold the
-- hubv1 types of the same name. No table holds a credential in clear.

CREATE TABLE admin_tokens (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    hash       TEXT NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT;

CREATE TABLE pools (
    id                TEXT PRIMARY KEY,
    name              TEXT NOT NULL UNIQUE,
    state             TEXT NOT NULL CHECK (state IN ('active', 'draining', 'revoked')),
    -- Who and what made the pool leave 'active'; empty while it is active.
    state_by          TEXT NOT NULL DEFAULT '',
    state_reason      TEXT NOT NULL DEFAULT '',
    definition        TEXT NOT NULL CHECK (json_valid(definition)),
    cordon_reason     TEXT,
    cordon_by         TEXT,
    cordon_at         INTEGER,
    -- Git's cordon stands beside the operator's: when Git has no opinion any
    -- more, what the operator said holds again.
    git_cordon_reason TEXT,
    git_cordon_at     INTEGER,
    source_sync       TEXT,
    source            TEXT CHECK (source IS NULL OR json_valid(source)),
    -- revision counts changes of the definition and is the ETag; feed counts
    -- every change that a watcher of the pool may see.
    revision          INTEGER NOT NULL,
    feed              INTEGER NOT NULL,
    created_at        INTEGER NOT NULL,
    CHECK ((source IS NULL) = (source_sync IS NULL)),
    CHECK ((cordon_reason IS NULL) = (cordon_at IS NULL))
) STRICT;

CREATE TABLE credentials (
    id           TEXT PRIMARY KEY,
    pool_id      TEXT NOT NULL REFERENCES pools (id),
    hash         TEXT NOT NULL UNIQUE,
    created_at   INTEGER NOT NULL,
    revoked_at   INTEGER,
    -- What keeps this credential's controller from starting runners.
    refusal      TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX credentials_pool ON credentials (pool_id);

CREATE TABLE controllers (
    credential_id TEXT NOT NULL REFERENCES credentials (id),
    instance      TEXT NOT NULL,
    build         TEXT NOT NULL,
    features      TEXT NOT NULL CHECK (json_valid(features)),
    last_contact  INTEGER NOT NULL,
    PRIMARY KEY (credential_id, instance)
) STRICT, WITHOUT ROWID;

CREATE TABLE runners (
    id               TEXT PRIMARY KEY,
    pool_id          TEXT NOT NULL REFERENCES pools (id),
    credential_id    TEXT NOT NULL REFERENCES credentials (id),
    key              TEXT NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('starting', 'idle', 'busy', 'retiring', 'retired')),
    token_hash       TEXT NOT NULL UNIQUE,
    token_expires_at INTEGER NOT NULL,
    session_hash     TEXT UNIQUE,
    name             TEXT NOT NULL DEFAULT '',
    build            TEXT NOT NULL DEFAULT '',
    created_at       INTEGER NOT NULL,
    enrolled_at      INTEGER,
    -- When the hub stops waiting for a silent runner: lease and margin.
    lost_at          INTEGER,
    retired_at       INTEGER,
    reason           TEXT NOT NULL DEFAULT '',
    revision         INTEGER NOT NULL,
    UNIQUE (credential_id, key),
    CHECK ((state = 'retired') = (retired_at IS NOT NULL)),
    CHECK (state IN ('starting', 'retired') OR session_hash IS NOT NULL)
) STRICT;
CREATE INDEX runners_live ON runners (pool_id, state) WHERE state <> 'retired';

CREATE TABLE projects (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    remote      TEXT NOT NULL,
    default_ref TEXT NOT NULL,
    pool_id     TEXT REFERENCES pools (id),
    created_at  INTEGER NOT NULL
) STRICT;

CREATE TABLE runs (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    project_id   TEXT NOT NULL REFERENCES projects (id),
    pool_id      TEXT NOT NULL REFERENCES pools (id),
    ref          TEXT NOT NULL,
    commit_hash  TEXT NOT NULL DEFAULT '',
    command      TEXT NOT NULL CHECK (json_valid(command)),
    state        TEXT NOT NULL CHECK (state IN ('queued', 'handed', 'running', 'cancelling',
                                                'succeeded', 'failed', 'cancelled', 'lost')),
    reason       TEXT NOT NULL DEFAULT '',
    exit_code    INTEGER,
    signal       TEXT NOT NULL DEFAULT '',
    attempt      INTEGER NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    -- How often this attempt was handed to a runner.
    hand_offs    INTEGER NOT NULL DEFAULT 0,
    failover     TEXT NOT NULL CHECK (failover IN ('once', 'never')),
    -- The runner that holds the run, or held it last.
    runner_id    TEXT REFERENCES runners (id),
    started_by   TEXT NOT NULL,
    -- Bytes stored over all attempts, and the offset that this attempt's runner
    -- goes on from; they part when an attempt is repeated or the log is full.
    log_bytes    INTEGER NOT NULL DEFAULT 0,
    log_next     INTEGER NOT NULL DEFAULT 0,
    log_full     INTEGER NOT NULL DEFAULT 0,
    revision     INTEGER NOT NULL,
    queued_at    INTEGER NOT NULL,
    handed_at    INTEGER,
    started_at   INTEGER,
    first_log_at INTEGER,
    settled_at   INTEGER,
    -- When the hub stops waiting for the start or for the cancellation.
    deadline     INTEGER,
    CHECK ((state IN ('succeeded', 'failed', 'cancelled', 'lost')) = (settled_at IS NOT NULL)),
    CHECK (state NOT IN ('handed', 'running', 'cancelling') OR runner_id IS NOT NULL)
) STRICT;
CREATE INDEX runs_live ON runs (pool_id, state, seq) WHERE settled_at IS NULL;
CREATE INDEX runs_project ON runs (project_id, seq);
CREATE INDEX runs_runner ON runs (runner_id) WHERE settled_at IS NULL;

CREATE TABLE run_logs (
    run_id TEXT NOT NULL REFERENCES runs (id),
    start  INTEGER NOT NULL,
    data   BLOB NOT NULL,
    PRIMARY KEY (run_id, start)
) STRICT;

CREATE TABLE syncs (
    name           TEXT PRIMARY KEY,
    repository     TEXT NOT NULL,
    path           TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('pending', 'ready', 'failed')),
    message        TEXT NOT NULL DEFAULT '',
    last_attempted TEXT NOT NULL DEFAULT '',
    last_applied   TEXT NOT NULL DEFAULT '',
    pools          TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(pools)),
    last_run       INTEGER,
    revision       INTEGER NOT NULL
) STRICT;

CREATE TABLE audit (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    at     INTEGER NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    pool   TEXT NOT NULL DEFAULT '',
    object TEXT NOT NULL DEFAULT '',
    state  TEXT NOT NULL DEFAULT '',
    detail TEXT NOT NULL DEFAULT ''
) STRICT;
CREATE INDEX audit_object ON audit (object, id);

CREATE TABLE idempotency (
    actor      TEXT NOT NULL,
    key        TEXT NOT NULL,
    request    TEXT NOT NULL,
    object     TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    PRIMARY KEY (actor, key)
) STRICT, WITHOUT ROWID;

-- Every transition that docs/states.md draws; the triggers refuse any other.
CREATE TABLE transitions (
    kind TEXT NOT NULL,
    was  TEXT NOT NULL,
    now  TEXT NOT NULL,
    PRIMARY KEY (kind, was, now)
) STRICT, WITHOUT ROWID;
INSERT INTO transitions (kind, was, now) VALUES
    ('pool', 'active', 'draining'),
    ('pool', 'active', 'revoked'),
    ('pool', 'draining', 'revoked'),
    ('pool', 'revoked', 'active'),
    ('runner', 'starting', 'idle'),
    ('runner', 'starting', 'retired'),
    ('runner', 'idle', 'busy'),
    ('runner', 'idle', 'retiring'),
    ('runner', 'idle', 'retired'),
    ('runner', 'busy', 'retiring'),
    ('runner', 'busy', 'retired'),
    ('runner', 'retiring', 'retired'),
    ('run', 'queued', 'handed'),
    ('run', 'queued', 'cancelled'),
    ('run', 'handed', 'running'),
    ('run', 'handed', 'queued'),
    ('run', 'handed', 'cancelling'),
    ('run', 'handed', 'succeeded'),
    ('run', 'handed', 'failed'),
    ('run', 'handed', 'cancelled'),
    ('run', 'running', 'queued'),
    ('run', 'running', 'cancelling'),
    ('run', 'running', 'succeeded'),
    ('run', 'running', 'failed'),
    ('run', 'running', 'cancelled'),
    ('run', 'running', 'lost'),
    ('run', 'cancelling', 'succeeded'),
    ('run', 'cancelling', 'failed'),
    ('run', 'cancelling', 'cancelled');

CREATE TRIGGER pools_state BEFORE UPDATE OF state ON pools
WHEN OLD.state <> NEW.state AND NOT EXISTS
    (SELECT 1 FROM transitions WHERE kind = 'pool' AND was = OLD.state AND now = NEW.state)
BEGIN SELECT RAISE(ABORT, 'no such transition of a pool'); END;

CREATE TRIGGER runners_state BEFORE UPDATE OF state ON runners
WHEN OLD.state <> NEW.state AND NOT EXISTS
    (SELECT 1 FROM transitions WHERE kind = 'runner' AND was = OLD.state AND now = NEW.state)
BEGIN SELECT RAISE(ABORT, 'no such transition of a runner'); END;

CREATE TRIGGER runs_state BEFORE UPDATE OF state ON runs
WHEN OLD.state <> NEW.state AND NOT EXISTS
    (SELECT 1 FROM transitions WHERE kind = 'run' AND was = OLD.state AND now = NEW.state)
BEGIN SELECT RAISE(ABORT, 'no such transition of a run'); END;
