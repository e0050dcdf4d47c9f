"""What readers typed into the site's search, and the page that they looked for."""

SEARCHED = {
    "out of memory": "guides/troubleshooting.md",
    "resume": "guides/checkpoints.md",
    "preempt": "guides/checkpoints.md",
    "GPU": "guides/multi-gpu.md",
    "multiple GPUs": "guides/multi-gpu.md",
    "conda": "guides/environments.md",
    "virtual environment": "guides/environments.md",
    "slurm": "tutorial/slurm.md",
    "sweep held": "guides/troubleshooting.md",
    "early stopping": "guides/early-stopping.md",
    "stop a trial": "guides/early-stopping.md",
    "delete": "guides/checkpoints.md",
    "nan": "guides/early-stopping.md",
}
