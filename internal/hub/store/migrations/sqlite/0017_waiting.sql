-- How many runs of a user and of a project wait is counted whenever one is queued.
CREATE INDEX runs_waiting_user ON runs (started_by) WHERE settled_at IS NULL AND state = 'queued';
CREATE INDEX runs_waiting_project ON runs (project_id) WHERE settled_at IS NULL AND state = 'queued';
