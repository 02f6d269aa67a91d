-- What happens to pools, their credentials and their runners is audited under
-- executor_pool.
UPDATE audit SET action = 'executor_' || action WHERE action LIKE 'pool.%';
UPDATE audit SET action = 'executor_pool.' || action WHERE action LIKE 'credential.%' OR action LIKE 'runner.%';

DROP INDEX audit_work;
CREATE INDEX audit_work ON audit (at) WHERE substr(action, 1, 4) = 'run.' OR substr(action, 1, 21) = 'executor_pool.runner.';
