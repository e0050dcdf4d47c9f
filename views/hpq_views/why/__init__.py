"""Why a sweep waits, and what it needs."""
