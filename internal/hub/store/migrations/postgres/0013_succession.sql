-- The credential whose holder has shown this one, too: the same controller after a
-- rotation, which goes on with the runners of both. NULL: nobody has.
ALTER TABLE credentials ADD COLUMN succeeded_by TEXT;
