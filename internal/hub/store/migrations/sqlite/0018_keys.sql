-- Keys that are over are found by their age, not by a look at all of them.
CREATE INDEX idempotency_created ON idempotency (created_at);
