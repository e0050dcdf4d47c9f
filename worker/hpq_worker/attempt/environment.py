"""The environment variables of training code, and its MASTER_PORT.

Locally a program inherits the environment without hpq's secrets. In a pod it gets an allow-list and
the names of the sweep's pass_env that HPQ_PASS_ENV permits. Mounted secret files stay readable.
CUDA_VISIBLE_DEVICES is that of the worker (process/devices.py).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import hpq
from hpq import process_start as hpq_process
from hpq.domain.sweep import RunnableSweep, Wandb
from hpq.domain.trial import Claim
from hpq.reporting import AGENT
from hpq.settings import Settings
from hpq_worker.files.workdir import AttemptPaths
from hpq_worker.process.secrets import in_pods

ADDRESS = "127.0.0.1"


_ROOT = Path(hpq.__file__).parent
# The directory on a program's path in which `import wandb` finds the shim, in any Python.
_SHIMS = {
    Wandb.STAND_IN: str(_ROOT / "wandb_shim" / "stub"),
    Wandb.TEE: str(_ROOT / "wandb_shim" / "tee"),
}
# A worker may itself be a rank of a group, or run in the trial of an agent; its trials are others.
_OF_ANOTHER = {AGENT} | frozenset(
    "RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK OMPI_COMM_WORLD_RANK".split()
)

# Caches of torch.compile and Triton under HPQ_HOME: later trials share them, and they survive a
# restart of the machine, unlike the defaults under /tmp.
_COMPILED = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}

# For built-in trainers alone, since processes become larger: glibc keeps large blocks that a step
# has freed. On a CPU, page faults are else an eighth of the time.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**31 - 1)}


@contextmanager
def reserved_port() -> Iterator[int]:
    """Reserve a free port for one attempt.

    The port is bound without a listener: the kernel assigns it to no other process, and a process
    that names it with SO_REUSEADDR, as torch's store does, may listen there.

    Raises:
        OSError: no port is free.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind((ADDRESS, 0))
        yield int(bound.getsockname()[1])


def runner_environment(
    settings: Settings, pass_env: Collection[str], environ: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a runner: without hpq's secrets; in a pod, the allow-list.

    Compile caches and data sets lie under HPQ_HOME unless the user has set their directories.
    """
    ours = hpq_process.ours(environ)
    env = {n: v for n, v in environ.items() if n not in ours | _OF_ANOTHER}
    if settings.in_pod:
        passed = set(pass_env) & set(settings.pass_env)
        env = {n: v for n, v in env.items() if n in passed or in_pods(n)}
    env["PYTHONUNBUFFERED"] = "1"
    if settings.data.exists():
        env["HPQ_DATA"] = str(settings.data.absolute())
    if not env.get("TORCHINDUCTOR_CACHE_DIR"):  # else torch puts Triton's cache under it
        for name, folder in _COMPILED.items():
            env[name] = env.get(name) or str(settings.cache / folder)
    return env


def group_environment(gpus: int, port: int) -> dict[str, str]:
    """Return where the processes of one trial meet; each trial has its own port."""
    return {
        "MASTER_ADDR": ADDRESS,
        "MASTER_PORT": str(port),
        "HPQ_GPUS_PER_TRIAL": str(gpus),
    }


def program_environment(
    runner: Mapping[str, str],
    sweep: RunnableSweep,
    claim: Claim,
    paths: AttemptPaths,
    *,
    seed: int,
    gpus: int,
    port: int,
) -> dict[str, str]:
    """Return the environment of a program: its runner's, and the variables of its trial.

    `import hpq` works in any Python; `import wandb` imports what the sweep asks for.
    """
    shim = _SHIMS.get(sweep.launch.wandb or Wandb.REAL, "")
    entries = [str(paths.python_path), shim, runner.get("PYTHONPATH", "")]
    return {
        "PYTHONFAULTHANDLER": "1",  # stacks in the log where it crashes or is aborted as stalled
        # Defaults of torchrun's options; options in the sweep's `command` take precedence.
        "PET_MASTER_PORT": str(port),
        "PET_LOG_DIR": str(paths.work / "ranks"),
        # Each line of several ranks names its rank: only metrics of rank 0 count.
        **({"PET_TEE": "3"} if gpus > 1 else {}),
        **runner,
        **group_environment(gpus, port),
        "PYTHONPATH": os.pathsep.join(entry for entry in entries if entry),
        **trial_environment(sweep, claim, paths, seed),
    }


def trial_environment(
    sweep: RunnableSweep, claim: Claim, paths: AttemptPaths, seed: int
) -> dict[str, str]:
    """Return the variables of a trial: its ids, its parameters, its directories."""
    return {
        **_for_wandb(sweep, claim, paths),
        "HPQ_SWEEP_ID": claim.trial.sweep,
        "HPQ_TRIAL_ID": str(claim.trial),
        "HPQ_SEED": str(seed),
        "HPQ_ATTEMPT": str(claim.attempt),
        "HPQ_ATTEMPT_ID": f"{claim.trial}/{claim.attempt}",
        "HPQ_PARAMS": str(paths.params),
        "HPQ_OUT": str(paths.out),
        "HPQ_CHECKPOINT_DIR": str(paths.checkpoint),
        "HPQ_REPORT": paths.socket,
    }


def _for_wandb(sweep: RunnableSweep, claim: Claim, paths: AttemptPaths) -> dict[str, str]:
    """Return the variables that W&B's agent sets: parameters for the real wandb, ids for the shim.

    The stand-in reads parameters from HPQ_PARAMS. A process that removes WANDB_RUN_ID from its
    environment gets, as with W&B, a run of its own.
    """
    if sweep.launch.wandb is Wandb.STAND_IN:
        run = f"{claim.trial.sweep}-{claim.trial.number}"
        return {"WANDB_RUN_ID": run, "WANDB_SWEEP_ID": claim.trial.sweep}
    if sweep.launch.wandb is None:
        return {}
    values = {name: {"value": value} for name, value in claim.params.items()}
    import yaml  # noqa: PLC0415  it takes 1 MB of each worker

    file = paths.work / "wandb-params.yaml"
    file.write_text(yaml.safe_dump({"wandb_version": 1, **values}, sort_keys=False), "utf-8")
    return {"WANDB_SWEEP_PARAM_PATH": str(file)}
