-- What a run asks of its runner: .cloop/sandbox.yaml at its commit. NULL: nobody
-- has read it, so its runner must.
ALTER TABLE runs ADD COLUMN requirements TEXT;
-- How Kubernetes says that the Pod of the run's runner ended.
ALTER TABLE runs ADD COLUMN pod_end TEXT;
-- Whether the runner finds out by itself what a project asks for.
ALTER TABLE runners ADD COLUMN checks INTEGER NOT NULL DEFAULT 0;
-- What the project's default ref asked for when it was looked at last, and the
-- last run that left the queue because it could never be handed out.
ALTER TABLE projects ADD COLUMN requirements TEXT;
ALTER TABLE projects ADD COLUMN dropped TEXT;
-- What kind of trouble the refusal is.
ALTER TABLE credentials ADD COLUMN refusal_kind TEXT NOT NULL DEFAULT '';
