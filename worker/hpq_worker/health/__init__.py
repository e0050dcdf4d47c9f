"""Health of a worker, and what its trial uses."""
