-- How many runs of a user and of a project wait is counted whenever one is queued,
-- in the index alone: a row with a long command takes pages of its own.
CREATE INDEX runs_waiting_user ON runs (started_by, state, settled_at) WHERE settled_at IS NULL AND state = 'queued';
CREATE INDEX runs_waiting_project ON runs (project_id, state, settled_at) WHERE settled_at IS NULL AND state = 'queued';
