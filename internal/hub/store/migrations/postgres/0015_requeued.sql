-- When a run came back into the queue, the last time. NULL: it waits, or has waited,
-- since queued_at.
ALTER TABLE runs ADD COLUMN requeued_at BIGINT;
