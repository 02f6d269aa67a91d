-- What pools and their controllers say beyond the definition.

-- How the pool is installed, as hubv1.InstallHints; empty: nobody said.
ALTER TABLE pools ADD COLUMN install TEXT NOT NULL DEFAULT '';
-- When a controller used the credential last, to the minute.
ALTER TABLE credentials ADD COLUMN used_at BIGINT;

-- Which ExecutorPool the controller serves: "namespace/name", and its UID, by
-- which it is told from another's of that name. One process may serve several.
CREATE TABLE controllers_of_pools (
    credential_id     TEXT NOT NULL REFERENCES credentials (id),
    instance          TEXT NOT NULL,
    executor_pool     TEXT NOT NULL,
    executor_pool_uid TEXT NOT NULL,
    build             TEXT NOT NULL,
    features          TEXT NOT NULL CHECK (features::json IS NOT NULL),
    last_contact      BIGINT NOT NULL,
    PRIMARY KEY (credential_id, instance, executor_pool_uid)
);
INSERT INTO controllers_of_pools
    SELECT credential_id, instance, '', '', build, features, last_contact FROM controllers;
DROP TABLE controllers;
ALTER TABLE controllers_of_pools RENAME TO controllers;

-- Whose data the runner's volume has, and the project that it is kept for: it
-- gets no other's run.
ALTER TABLE runners ADD COLUMN holds TEXT NOT NULL DEFAULT '';
ALTER TABLE runners ADD COLUMN holds_project TEXT REFERENCES projects (id);
