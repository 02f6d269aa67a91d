-- Each time that a run came back from the runner that had it; the last time, after
-- which it did not, is the run itself.
CREATE TABLE run_attempts (
    run_id     TEXT NOT NULL REFERENCES runs (id) ON DELETE CASCADE,
    -- Counts from 1 over all attempts of the run: one may be handed out again.
    n          BIGINT NOT NULL,
    attempt    BIGINT NOT NULL,
    -- No reference: the runner's row goes before the run's.
    runner_id  TEXT NOT NULL,
    handed_at  BIGINT NOT NULL,
    started_at BIGINT,
    ended_at   BIGINT NOT NULL,
    reason     TEXT NOT NULL,
    -- How Kubernetes says that the runner's Pod ended.
    pod_end    TEXT,
    PRIMARY KEY (run_id, n)
);
CREATE INDEX run_attempts_runner ON run_attempts (runner_id);

-- The project's place in the order in which projects were made, from 0, by which
-- other clients of the API name it. A hub that is older makes projects without.
ALTER TABLE projects ADD COLUMN idx BIGINT;
UPDATE projects SET idx = (SELECT COUNT(*) FROM projects p WHERE p.created_at < projects.created_at
    OR p.created_at = projects.created_at AND p.id < projects.id);
CREATE UNIQUE INDEX projects_idx ON projects (idx);
CREATE FUNCTION number_project() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    SELECT COALESCE(MAX(p.idx), -1) + 1 INTO NEW.idx FROM projects p;
    RETURN NEW;
END $$;
CREATE TRIGGER projects_number BEFORE INSERT ON projects FOR EACH ROW
    WHEN (NEW.idx IS NULL) EXECUTE FUNCTION number_project();

-- Who made the project; empty where that was before anybody wrote it down.
ALTER TABLE projects ADD COLUMN owner TEXT NOT NULL DEFAULT '';
UPDATE projects SET owner = COALESCE((SELECT a.actor FROM audit a WHERE a.object = projects.id AND a.action = 'project.create' ORDER BY a.id LIMIT 1), '');

-- The member that the runner has its watch open at; empty: none that is known.
ALTER TABLE runners ADD COLUMN heard_by TEXT NOT NULL DEFAULT '';

-- Events of forges that were acted on: hashes of what tells one from another.
CREATE TABLE webhook_deliveries (
    sync        TEXT NOT NULL,
    identity    TEXT NOT NULL,
    received_at BIGINT NOT NULL,
    PRIMARY KEY (sync, identity)
);
CREATE INDEX webhook_deliveries_age ON webhook_deliveries (received_at);
