-- The documents of the newest revision that are only compared, as a list of
-- hubv1.Observed.
ALTER TABLE syncs ADD COLUMN observed TEXT NOT NULL DEFAULT '[]';
