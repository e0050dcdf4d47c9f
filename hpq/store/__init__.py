"""Everything that talks to Redis: writers, readers, keys, scripts and the wire format."""
