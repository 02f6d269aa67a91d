-- What a sync has kept although its repository lacks it (JSON; NULL: nothing), and the
-- revision of which somebody has said that it may go; '': of none.
ALTER TABLE syncs ADD COLUMN prune_waits TEXT;
ALTER TABLE syncs ADD COLUMN approved_prune TEXT NOT NULL DEFAULT '';
