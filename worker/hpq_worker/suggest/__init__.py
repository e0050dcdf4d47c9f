"""Makes the sets of late-bound sweeps, in a process of its own beside a worker."""
