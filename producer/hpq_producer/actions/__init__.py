"""Change a sweep for a user: what the commands and the dashboard do, and ask first."""
