"""Explain why a sweep is not running, and what the user should do."""
