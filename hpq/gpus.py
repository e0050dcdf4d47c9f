"""GPUs of this machine, counted and named without torch or CUDA; workers and doctor ask."""

from __future__ import annotations

import subprocess
from functools import cache


@cache
def gpu_names() -> tuple[str, ...]:
    """The GPUs that the driver shows, with the driver's version; empty where there is none."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    return tuple(line.strip() for line in done.stdout.splitlines()) if done.returncode == 0 else ()
