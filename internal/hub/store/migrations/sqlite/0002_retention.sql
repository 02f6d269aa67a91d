-- What has ended for long is removed.

-- The runner that held the run last, once that runner's row is gone.
ALTER TABLE runs ADD COLUMN former_runner TEXT NOT NULL DEFAULT '';
-- When the run's log was given up; its chunks are removed in batches after that.
ALTER TABLE runs ADD COLUMN log_pruned_at INTEGER CHECK (log_pruned_at IS NULL OR settled_at IS NOT NULL);

-- Logs that were given up and still have chunks.
CREATE TABLE pruned_logs (
    run_id TEXT PRIMARY KEY REFERENCES runs (id)
) STRICT, WITHOUT ROWID;

-- A runner can be removed only where no run refers to it, settled ones included.
DROP INDEX runs_runner;
CREATE INDEX runs_runner ON runs (runner_id) WHERE runner_id IS NOT NULL;
CREATE INDEX runs_settled ON runs (project_id, settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX runs_logged ON runs (settled_at) WHERE settled_at IS NOT NULL AND log_pruned_at IS NULL AND log_bytes > 0;
CREATE INDEX runners_retired ON runners (retired_at) WHERE state = 'retired';
CREATE INDEX credentials_revoked ON credentials (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX audit_work ON audit (at) WHERE action GLOB 'run*';

-- Nothing that is not over is ever removed, whatever the code says.
CREATE TRIGGER runs_kept BEFORE DELETE ON runs WHEN OLD.settled_at IS NULL
BEGIN SELECT RAISE(ABORT, 'a run that is not settled is not removed'); END;

CREATE TRIGGER runners_kept BEFORE DELETE ON runners WHEN OLD.state <> 'retired'
BEGIN SELECT RAISE(ABORT, 'a runner that is not retired is not removed'); END;

CREATE TRIGGER credentials_kept BEFORE DELETE ON credentials WHEN OLD.revoked_at IS NULL
BEGIN SELECT RAISE(ABORT, 'a credential that is not revoked is not removed'); END;

CREATE TRIGGER run_logs_kept BEFORE DELETE ON run_logs
WHEN NOT EXISTS (SELECT 1 FROM pruned_logs WHERE run_id = OLD.run_id)
BEGIN SELECT RAISE(ABORT, 'a log that is not given up is not removed'); END;
