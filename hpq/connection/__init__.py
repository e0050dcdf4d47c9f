"""Connect to Redis: URL, TLS, user and password."""
