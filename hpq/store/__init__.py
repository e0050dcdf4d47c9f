"""The data in Redis: writers, readers, keys, scripts and the wire format; hpq.redis connects."""
