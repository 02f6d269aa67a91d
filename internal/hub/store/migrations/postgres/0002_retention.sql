-- What has ended for long is removed.

-- The runner that held the run last, once that runner's row is gone.
ALTER TABLE runs ADD COLUMN former_runner TEXT NOT NULL DEFAULT '';
-- When the run's log was given up; its chunks are removed in batches after that.
ALTER TABLE runs ADD COLUMN log_pruned_at BIGINT CHECK (log_pruned_at IS NULL OR settled_at IS NOT NULL);

-- Logs that were given up and still have chunks.
CREATE TABLE pruned_logs (
    run_id TEXT PRIMARY KEY REFERENCES runs (id)
);

-- A runner can be removed only where no run refers to it, settled ones included.
DROP INDEX runs_runner;
CREATE INDEX runs_runner ON runs (runner_id) WHERE runner_id IS NOT NULL;
CREATE INDEX runs_settled ON runs (project_id, settled_at) WHERE settled_at IS NOT NULL;
CREATE INDEX runs_logged ON runs (settled_at) WHERE settled_at IS NOT NULL AND log_pruned_at IS NULL AND log_bytes > 0;
CREATE INDEX runners_retired ON runners (retired_at) WHERE state = 'retired';
CREATE INDEX credentials_revoked ON credentials (revoked_at) WHERE revoked_at IS NOT NULL;
CREATE INDEX audit_work ON audit (at) WHERE substr(action, 1, 3) = 'run';

-- Nothing that is not over is ever removed, whatever the code says.
CREATE FUNCTION refuse_removal() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is not removed', TG_ARGV[0] USING ERRCODE = 'check_violation';
END $$;

CREATE TRIGGER runs_kept BEFORE DELETE ON runs FOR EACH ROW
    WHEN (OLD.settled_at IS NULL) EXECUTE FUNCTION refuse_removal('a run that is not settled');
CREATE TRIGGER runners_kept BEFORE DELETE ON runners FOR EACH ROW
    WHEN (OLD.state <> 'retired') EXECUTE FUNCTION refuse_removal('a runner that is not retired');
CREATE TRIGGER credentials_kept BEFORE DELETE ON credentials FOR EACH ROW
    WHEN (OLD.revoked_at IS NULL) EXECUTE FUNCTION refuse_removal('a credential that is not revoked');

CREATE FUNCTION refuse_log_removal() RETURNS TRIGGER LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT 1 FROM pruned_logs p WHERE p.run_id = OLD.run_id) THEN
        RAISE EXCEPTION 'a log that is not given up is not removed' USING ERRCODE = 'check_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER run_logs_kept BEFORE DELETE ON run_logs FOR EACH ROW EXECUTE FUNCTION refuse_log_removal();
