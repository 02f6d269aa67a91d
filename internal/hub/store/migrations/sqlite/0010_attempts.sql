-- Each time that a run came back from the runner that had it; the last time, after
-- which it did not, is the run itself.
CREATE TABLE run_attempts (
    run_id     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- Counts from 1 over all attempts of the run: one may be handed out again.
    n          INTEGER NOT NULL,
    attempt    INTEGER NOT NULL,
    -- No reference: the runner's row goes before the run's.
    runner_id  TEXT NOT NULL,
    handed_at  INTEGER NOT NULL,
    started_at INTEGER,
    ended_at   INTEGER NOT NULL,
    reason     TEXT NOT NULL,
    -- How Kubernetes says that the runner's Pod ended.
    pod_end    TEXT,
    PRIMARY KEY (run_id, n)
) STRICT, WITHOUT ROWID;
CREATE INDEX run_attempts_runner ON run_attempts (runner_id);

-- The project's place in the order in which projects were made, from 0, by which
-- other clients of the API name it. A hub that is older makes projects without.
ALTER TABLE projects ADD COLUMN idx INTEGER;
UPDATE projects SET idx = (SELECT COUNT(*) FROM projects p WHERE p.created_at < projects.created_at
    OR p.created_at = projects.created_at AND p.id < projects.id);
CREATE UNIQUE INDEX projects_idx ON projects (idx);
CREATE TRIGGER projects_number AFTER INSERT ON projects WHEN NEW.idx IS NULL
BEGIN UPDATE projects SET idx = (SELECT COALESCE(MAX(idx), -1) + 1 FROM projects) WHERE id = NEW.id; END;

-- Who made the project; empty where that was before anybody wrote it down.
ALTER TABLE projects ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE projects SET owner = COALESCE((SELECT a.actor FROM audit a WHERE a.object = projects.id AND a.action = 'project.create' ORDER BY a.id LIMIT 1), '');

-- The member that the runner has its watch open at; empty: none that is known.
ALTER TABLE runners ADD COLUMN heard_by TEXT NOT NULL DEFAULT '';

-- Events of forges that were acted on: hashes of what tells one from another.
CREATE TABLE webhook_deliveries (
    sync        TEXT NOT NULL,
    identity    TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (sync, identity)
) STRICT, WITHOUT ROWID;
CREATE INDEX webhook_deliveries_age ON webhook_deliveries (received_at);
