-- How a busy runner's controller says that its Pod has ended, while the runner has
-- its watch open and has not spoken since.
ALTER TABLE runners ADD COLUMN pod_end TEXT;
