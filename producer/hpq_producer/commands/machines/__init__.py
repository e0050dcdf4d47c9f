"""Commands that bring machines: connect, drain, join, manifests, slurm, worker."""
