"""The connection to Redis: its URL and password, TLS, users, and what its errors mean."""
