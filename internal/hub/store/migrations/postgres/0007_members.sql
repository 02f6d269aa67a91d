-- Several hubs, the members, share one database.

-- What the definition says, where queries can use it.
ALTER TABLE pools ADD COLUMN max_runners BIGINT GENERATED ALWAYS AS ((definition::jsonb ->> 'maxRunners')::BIGINT) STORED;

-- By how much leases and deadlines have followed a clock that was set, ever:
-- whoever sees that the clock was set knows by it what is left to follow.
CREATE TABLE hub_clock (
    one      BIGINT PRIMARY KEY CHECK (one = 1),
    followed BIGINT NOT NULL
);
INSERT INTO hub_clock (one, followed) VALUES (1, 0);

CREATE TABLE members (
    id         TEXT PRIMARY KEY,
    build      TEXT NOT NULL,
    features   TEXT NOT NULL CHECK (features::json IS NOT NULL),
    address    TEXT NOT NULL DEFAULT '',
    started_at BIGINT NOT NULL,
    -- A member that was not seen for a while is dead.
    seen_at    BIGINT NOT NULL
);

-- Controllers' processes with a watch open at a member, and what each serves. No
-- reference to the credential: that may be removed while a watch ends.
CREATE TABLE watches (
    credential_id     TEXT NOT NULL,
    instance          TEXT NOT NULL,
    executor_pool_uid TEXT NOT NULL,
    member_id         TEXT NOT NULL REFERENCES members (id) ON DELETE CASCADE,
    executor_pool     TEXT NOT NULL,
    hub_pool          TEXT NOT NULL,
    pool_created      BIGINT NOT NULL,
    PRIMARY KEY (credential_id, instance, executor_pool_uid, member_id)
);
CREATE INDEX watches_member ON watches (member_id);

-- Work that one member at a time does, until then.
CREATE TABLE duties (
    name      TEXT PRIMARY KEY,
    member_id TEXT NOT NULL,
    until     BIGINT NOT NULL
);

-- Begins a change: at most one at a time is in progress, over all members, and
-- its time is the database's, read once nobody else changes anything.
CREATE FUNCTION hub_begin(OUT at BIGINT, OUT followed BIGINT) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(4877012285021413);
    SELECT (EXTRACT(EPOCH FROM clock_timestamp()) * 1000000)::BIGINT * 1000, c.followed INTO at, followed FROM hub_clock c;
END $$;
