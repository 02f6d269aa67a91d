-- Several hubs, the members, may share one database where that is PostgreSQL.
-- SQLite has one member: there these tables are empty.

-- What the definition says, where queries can use it.
ALTER TABLE pools ADD COLUMN max_runners INTEGER GENERATED ALWAYS AS (json_extract(definition, '$.maxRunners')) VIRTUAL;

DROP INDEX audit_work;
CREATE INDEX audit_work ON audit (at) WHERE substr(action, 1, 3) = 'run';

-- By how much leases and deadlines have followed a clock that was set, ever:
-- whoever sees that the clock was set knows by it what is left to follow.
CREATE TABLE hub_clock (
    one      INTEGER PRIMARY KEY CHECK (one = 1),
    followed INTEGER NOT NULL
) STRICT;
INSERT INTO hub_clock (one, followed) VALUES (1, 0);

CREATE TABLE members (
    id         TEXT PRIMARY KEY,
    build      TEXT NOT NULL,
    features   TEXT NOT NULL CHECK (json_valid(features)),
    address    TEXT NOT NULL DEFAULT '',
    started_at INTEGER NOT NULL,
    -- A member that was not seen for a while is dead.
    seen_at    INTEGER NOT NULL
) STRICT;

-- Controllers' processes with a watch open at a member, and what each serves. No
-- reference to the credential: that may be removed while a watch ends.
CREATE TABLE watches (
    credential_id     TEXT NOT NULL,
    instance          TEXT NOT NULL,
    executor_pool_uid TEXT NOT NULL,
    member_id         TEXT NOT NULL REFERENCES members (id) ON DELETE CASCADE,
    executor_pool     TEXT NOT NULL,
    hub_pool          TEXT NOT NULL,
    pool_created      INTEGER NOT NULL,
    PRIMARY KEY (credential_id, instance, executor_pool_uid, member_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX watches_member ON watches (member_id);

-- Work that one member at a time does, until then.
CREATE TABLE duties (
    name      TEXT PRIMARY KEY,
    member_id TEXT NOT NULL,
    until     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
