"""Encode objects for Redis and decode them; no other package does."""
