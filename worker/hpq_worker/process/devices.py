"""Assign the GPUs of this machine to slots, and refuse to start with fewer than asked for.

supervisor.py starts one worker process per slot with its CUDA_VISIBLE_DEVICES.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from hpq.errors import SettingsError, UserError
from hpq.gpus import AMD
from hpq.notice import plural


def check(gpus: Sequence[str], environ: Mapping[str, str], pod_gpus: str) -> str:
    """Return a note about GPUs that this worker was given and that cannot be counted; else "".

    `pod_gpus` is RESOURCE=N of a pod, "" outside one. CUDA_VISIBLE_DEVICES, also an empty one,
    says which GPUs are meant, so nothing is missing then.

    Raises:
        UserError: the worker was given GPUs, or HPQ_GPUS_PER_TRIAL asks for some, and it sees
            fewer; trials would train on the CPU.
    """
    if "CUDA_VISIBLE_DEVICES" in environ:
        return ""
    resource, _, number = pod_gpus.partition("=")
    if resource.startswith("nvidia.com/"):
        if len(gpus) < _least(environ):
            text = f"the pod was given {number} {resource}, but nvidia-smi shows {len(gpus)}"
            remedy = "its queue may need `pod: {runtimeClassName: nvidia}`"
            raise UserError(f"{text}; {remedy}", code="no-gpu")
    elif resource == "amd.com/gpu":
        if not AMD.exists():
            text = f"the pod was given {number} {resource}, but has no {AMD}"
            raise UserError(f"{text}; install AMD's device plugin", code="no-gpu")
    elif resource:
        return f"hpq cannot check that this pod has its {number} {resource}"
    elif not gpus and environ.get("HPQ_GPUS_PER_TRIAL") and not AMD.exists():
        text = "--gpus (HPQ_GPUS_PER_TRIAL) asks for GPUs, but nvidia-smi shows none; leave it out"
        raise UserError(f"{text}, or set CUDA_VISIBLE_DEVICES= for CPUs", code="no-gpu")
    return ""


def _least(environ: Mapping[str, str]) -> int:
    """Return how many devices a pod that was given NVIDIA's must see.

    The number of the resource does not say: two shares of a GPU are one device. The device plugin
    names whole GPUs, if the runtime reads their names from the environment.
    """
    names = environ.get("NVIDIA_VISIBLE_DEVICES", "").split(",")
    return max(1, len({name for name in names if name.startswith("GPU-")}))


def slots(gpus: Sequence[str], per_trial: int, trials_per_gpu: int) -> list[str]:
    """Return CUDA_VISIBLE_DEVICES of each slot; one slot without a GPU if there is none.

    Raises:
        UserError: a trial needs more GPUs than are visible, or both settings are above 1.
    """
    if per_trial > 1 and trials_per_gpu > 1:
        raise SettingsError(
            "--gpus (HPQ_GPUS_PER_TRIAL) and --trials-per-gpu (HPQ_TRIALS_PER_GPU) are both above"
            " 1; leave out one"
        )
    if not gpus:
        return [""]
    if per_trial > len(gpus):
        visible = f"{len(gpus)} {plural(len(gpus), 'GPU is', 'GPUs are')} visible"
        text = f"each trial needs {per_trial} GPUs by --gpus (HPQ_GPUS_PER_TRIAL), but {visible}"
        text += f"; write --gpus {len(gpus)} or less"
        raise UserError(text, code="gpus-missing")
    groups = len(gpus) // per_trial
    each = [",".join(gpus[i * per_trial : (i + 1) * per_trial]) for i in range(groups)]
    return [group for group in each for _ in range(trials_per_gpu)]


def share(gpus: Sequence[str], per_trial: int, trials_per_gpu: int) -> float:
    """Return how many GPUs a trial takes; 1 without a GPU, as budgets count."""
    return per_trial / trials_per_gpu if gpus else 1.0


def idle(gpus: Sequence[str], per_trial: int) -> str:
    """Return a warning about GPUs that no slot uses; "" if each is used."""
    left = len(gpus) % per_trial
    if not left:
        return ""
    divisor = f"--gpus {per_trial} (HPQ_GPUS_PER_TRIAL) does not divide {len(gpus)}"
    return f"{left} of {len(gpus)} GPUs {plural(left, 'stays', 'stay')} idle: {divisor}"


def threads(processes: int, environ: Mapping[str, str], cpus: int = 0) -> str:
    """Return OMP_NUM_THREADS of each training process: an even share, unless the user has set it.

    A trial of several GPUs has a process for each. `cpus` is the CPU request of a pod, which sees
    all cores of its node.
    """
    if chosen := environ.get("OMP_NUM_THREADS"):
        return chosen
    cores = len(os.sched_getaffinity(0))
    return str(max(1, min(cores, cpus or cores) // max(1, processes)))
