-- What Git says of a pool and somebody has set aside for a time, as
-- hubv1.Override, and until when.
ALTER TABLE pools ADD COLUMN override TEXT;
ALTER TABLE pools ADD COLUMN override_until INTEGER;
CREATE INDEX pools_override ON pools (override_until) WHERE override_until IS NOT NULL;

-- The documents of the newest revision that are not applied, as a list of
-- hubv1.HeldBack.
ALTER TABLE syncs ADD COLUMN held_back TEXT NOT NULL DEFAULT '[]';
