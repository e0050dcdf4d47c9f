"""Commands for care: doctor, audit, config, schema, redis-acl, archive, worker."""
