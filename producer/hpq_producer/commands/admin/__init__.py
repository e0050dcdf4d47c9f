"""Commands of who keeps an installation: archive, audit, data, doctor, redis-acl, user."""
