"""Replay a sweep's events and report what does not add up."""
