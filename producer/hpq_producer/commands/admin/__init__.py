"""Commands for maintenance: doctor, audit, config, schema, redis-acl, archive, worker."""
