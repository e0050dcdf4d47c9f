"""Commands for clusters: connect, drain, manifests, slurm."""
