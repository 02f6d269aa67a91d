-- Since when the hub wants the run back from the runner that holds it. Nobody
-- else gets it until that runner has let go of it, or its lease is over: until
-- then the command may be running.
ALTER TABLE runs ADD COLUMN recalled_at BIGINT CHECK (recalled_at IS NULL OR state IN ('handed', 'running', 'cancelling'));
