-- Times are Unix nanoseconds. Hashes are hex SHA-256. Columns that are checked to
-- be JSON hold the hubv1 types of the same name. No table holds a credential in clear.

CREATE TABLE admin_tokens (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    hash       TEXT NOT NULL UNIQUE,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);

CREATE TABLE pools (
    id                TEXT PRIMARY KEY,
    name              TEXT NOT NULL UNIQUE,
    state             TEXT NOT NULL CHECK (state IN ('active', 'draining', 'revoked')),
    -- Who and what made the pool leave 'active'; empty while it is active.
    state_by          TEXT NOT NULL DEFAULT '',
    state_reason      TEXT NOT NULL DEFAULT '',
    definition        TEXT NOT NULL CHECK (definition::json IS NOT NULL),
    cordon_reason     TEXT,
    cordon_by         TEXT,
    cordon_at         BIGINT,
    -- Git's cordon stands beside the operator's: when Git has no opinion any
    -- more, what the operator said holds again.
    git_cordon_reason TEXT,
    git_cordon_at     BIGINT,
    source_sync       TEXT,
    source            TEXT CHECK (source IS NULL OR source::json IS NOT NULL),
    -- revision counts changes of the definition and is the ETag; feed counts
    -- every change that a watcher of the pool may see.
    revision          BIGINT NOT NULL,
    feed              BIGINT NOT NULL,
    created_at        BIGINT NOT NULL,
    CHECK ((source IS NULL) = (source_sync IS NULL)),
    CHECK ((cordon_reason IS NULL) = (cordon_at IS NULL))
);

CREATE TABLE credentials (
    id           TEXT PRIMARY KEY,
    pool_id      TEXT NOT NULL REFERENCES pools (id),
    hash         TEXT NOT NULL UNIQUE,
    created_at   BIGINT NOT NULL,
    revoked_at   BIGINT,
    -- What keeps this credential's controller from starting runners.
    refusal      TEXT NOT NULL DEFAULT ''
);
CREATE INDEX credentials_pool ON credentials (pool_id);

CREATE TABLE controllers (
    credential_id TEXT NOT NULL REFERENCES credentials (id),
    instance      TEXT NOT NULL,
    build         TEXT NOT NULL,
    features      TEXT NOT NULL CHECK (features::json IS NOT NULL),
    last_contact  BIGINT NOT NULL,
    PRIMARY KEY (credential_id, instance)
);

CREATE TABLE runners (
    id               TEXT PRIMARY KEY,
    pool_id          TEXT NOT NULL REFERENCES pools (id),
    credential_id    TEXT NOT NULL REFERENCES credentials (id),
    key              TEXT NOT NULL,
    state            TEXT NOT NULL CHECK (state IN ('starting', 'idle', 'busy', 'retiring', 'retired')),
    token_hash       TEXT NOT NULL UNIQUE,
    token_expires_at BIGINT NOT NULL,
    session_hash     TEXT UNIQUE,
    name             TEXT NOT NULL DEFAULT '',
    build            TEXT NOT NULL DEFAULT '',
    created_at       BIGINT NOT NULL,
    enrolled_at      BIGINT,
    -- When the hub stops waiting for a silent runner: lease and margin.
    lost_at          BIGINT,
    retired_at       BIGINT,
    reason           TEXT NOT NULL DEFAULT '',
    revision         BIGINT NOT NULL,
    UNIQUE (credential_id, key),
    CHECK ((state = 'retired') = (retired_at IS NOT NULL)),
    CHECK (state IN ('starting', 'retired') OR session_hash IS NOT NULL)
);
CREATE INDEX runners_live ON runners (pool_id, state) WHERE state <> 'retired';

CREATE TABLE projects (
    id          TEXT PRIMARY KEY,
    name        TEXT NOT NULL UNIQUE,
    remote      TEXT NOT NULL,
    default_ref TEXT NOT NULL,
    pool_id     TEXT REFERENCES pools (id),
    created_at  BIGINT NOT NULL
);

CREATE TABLE runs (
    seq          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           TEXT NOT NULL UNIQUE,
    project_id   TEXT NOT NULL REFERENCES projects (id),
    pool_id      TEXT NOT NULL REFERENCES pools (id),
    ref          TEXT NOT NULL,
    commit_hash  TEXT NOT NULL DEFAULT '',
    command      TEXT NOT NULL CHECK (command::json IS NOT NULL),
    state        TEXT NOT NULL CHECK (state IN ('queued', 'handed', 'running', 'cancelling',
                                                'succeeded', 'failed', 'cancelled', 'lost')),
    reason       TEXT NOT NULL DEFAULT '',
    exit_code    BIGINT,
    signal       TEXT NOT NULL DEFAULT '',
    attempt      BIGINT NOT NULL DEFAULT 1 CHECK (attempt >= 1),
    -- How often this attempt was handed to a runner.
    hand_offs    BIGINT NOT NULL DEFAULT 0,
    failover     TEXT NOT NULL CHECK (failover IN ('once', 'never')),
    -- The runner that holds the run, or held it last.
    runner_id    TEXT REFERENCES runners (id),
    started_by   TEXT NOT NULL,
    -- Bytes stored over all attempts, and the offset that this attempt's runner
    -- goes on from; they part when an attempt is repeated or the log is full.
    log_bytes    BIGINT NOT NULL DEFAULT 0,
    log_next     BIGINT NOT NULL DEFAULT 0,
    log_full     BIGINT NOT NULL DEFAULT 0,
    revision     BIGINT NOT NULL,
    queued_at    BIGINT NOT NULL,
    handed_at    BIGINT,
    started_at   BIGINT,
    first_log_at BIGINT,
    settled_at   BIGINT,
    -- When the hub stops waiting for the start or for the cancellation.
    deadline     BIGINT,
    CHECK ((state IN ('succeeded', 'failed', 'cancelled', 'lost')) = (settled_at IS NOT NULL)),
    CHECK (state NOT IN ('handed', 'running', 'cancelling') OR runner_id IS NOT NULL)
);
CREATE INDEX runs_live ON runs (pool_id, state, seq) WHERE settled_at IS NULL;
CREATE INDEX runs_project ON runs (project_id, seq);
CREATE INDEX runs_runner ON runs (runner_id) WHERE settled_at IS NULL;

CREATE TABLE run_logs (
    run_id TEXT NOT NULL REFERENCES runs (id),
    start  BIGINT NOT NULL,
    data   BYTEA NOT NULL,
    PRIMARY KEY (run_id, start)
);

CREATE TABLE syncs (
    name           TEXT PRIMARY KEY,
    repository     TEXT NOT NULL,
    path           TEXT NOT NULL,
    state          TEXT NOT NULL CHECK (state IN ('pending', 'ready', 'failed')),
    message        TEXT NOT NULL DEFAULT '',
    last_attempted TEXT NOT NULL DEFAULT '',
    last_applied   TEXT NOT NULL DEFAULT '',
    pools          TEXT NOT NULL DEFAULT '[]' CHECK (pools::json IS NOT NULL),
    last_run       BIGINT,
    revision       BIGINT NOT NULL
);

CREATE TABLE audit (
    id     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at     BIGINT NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    pool   TEXT NOT NULL DEFAULT '',
    object TEXT NOT NULL DEFAULT '',
    state  TEXT NOT NULL DEFAULT '',
    detail TEXT NOT NULL DEFAULT ''
);
CREATE INDEX audit_object ON audit (object, id);

CREATE TABLE idempotency (
    actor      TEXT NOT NULL,
    key        TEXT NOT NULL,
    request    TEXT NOT NULL,
    object     TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    PRIMARY KEY (actor, key)
);

-- Every transition that docs/states.md draws; the triggers refuse any other.
CREATE TABLE transitions (
    kind TEXT NOT NULL,
    was  TEXT NOT NULL,
    now  TEXT NOT NULL,
    PRIMARY KEY (kind, was, now)
);
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

CREATE FUNCTION refuse_transition() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM transitions t WHERE t.kind = TG_ARGV[0] AND t.was = OLD.state AND t.now = NEW.state) THEN
        RAISE EXCEPTION 'no such transition of a %', TG_ARGV[0] USING ERRCODE = 'check_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER pools_state BEFORE UPDATE OF state ON pools FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION refuse_transition('pool');
CREATE TRIGGER runners_state BEFORE UPDATE OF state ON runners FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION refuse_transition('runner');
CREATE TRIGGER runs_state BEFORE UPDATE OF state ON runs FOR EACH ROW
    WHEN (OLD.state <> NEW.state) EXECUTE FUNCTION refuse_transition('run');
