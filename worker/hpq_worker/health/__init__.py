"""Health and metrics of a worker."""
