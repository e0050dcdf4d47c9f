"""Commands for maintenance: doctor, audit, config, redis-acl, archive, worker."""
