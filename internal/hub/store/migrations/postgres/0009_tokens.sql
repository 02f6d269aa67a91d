-- Tokens of users that are over for long are removed, and then users who were
-- removed themselves. As of everything else, the database removes none that is
-- not over.
CREATE INDEX tokens_over ON tokens (COALESCE(revoked_at, expires_at));

CREATE TRIGGER tokens_kept BEFORE DELETE ON tokens FOR EACH ROW
    WHEN (OLD.revoked_at IS NULL AND OLD.expires_at IS NULL) EXECUTE FUNCTION refuse_removal('a token that does not end');
CREATE TRIGGER users_kept BEFORE DELETE ON users FOR EACH ROW
    WHEN (OLD.removed_at IS NULL) EXECUTE FUNCTION refuse_removal('a user who was not removed');
