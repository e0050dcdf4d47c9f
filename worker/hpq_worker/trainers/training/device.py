"""The one place that decides where the trainers compute, and how.

Threads are not set here: torch takes OMP_NUM_THREADS, which the worker sets for each runner.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import nn

from hpq_worker.trainers.training.trial_context import DeviceUnusable

# CUDA takes half precision images with float32 weights in these alone, in LayerNorm for one not.
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_OWN_SHARE = 0.95  # of a GPU's memory, at most; the rest is for the CUDA contexts of the sharers
_CONTEXT = 600 * 2**20  # bytes of one of them, with the libraries' code
_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4  # of glibc's mallopt


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a device computes. Nothing here changes what a hyperparameter means.

    `dtype` is of images, weights, gradients and velocities; statistics and weights of batch
    norms stay float32, logits are made float32 for the loss, and sums are float64.
    """

    dtype: torch.dtype = torch.float32
    channels_last: bool = True
    graph: bool = False  # the training step is one CUDA graph
    whole_epoch: bool = False  # an epoch is augmented at once, not batch by batch
    fill: int = 0  # channels that images are filled up to with zeros; 0 leaves them
    compiled: bool = False  # the step goes through torch.compile


def pick() -> torch.device:
    """The GPU that CUDA_VISIBLE_DEVICES leaves first, else the CPU.

    Raises:
        DeviceUnusable: this process was given a GPU that torch cannot use.
    """
    return _pick(os.environ.get("CUDA_VISIBLE_DEVICES", ""))


@cache
def _pick(given: str) -> torch.device:
    if torch.cuda.is_available():
        _prepare_gpu(os.environ)
        return torch.device("cuda")
    if given.split(",")[0].strip() not in ("", "-1"):
        raise DeviceUnusable(
            f"GPU {given}: torch {torch.__version__} cannot use it ({why_no_gpu()}); install a"
            " torch that fits its driver, or set CUDA_VISIBLE_DEVICES= to train on the CPU"
        )
    _keep_memory()
    return torch.device("cpu")


def why_no_gpu() -> str:
    """Why torch uses none, in a few words."""
    if torch.version.cuda is None:
        return "built without CUDA"
    try:
        torch.cuda.init()
    except Exception as error:  # torch says no driver, an old one, and no such GPU in many ways
        first, *_ = re.split(r"\.\s+(?=[A-Z])|\n", str(error).strip())  # advice follows
        return first.rstrip(".")[:100]
    return "it finds none"


def _prepare_gpu(environ: Mapping[str, str]) -> None:
    major, minor = torch.cuda.get_device_capability()
    built = [int(arch[3:].rstrip("af")) for arch in torch.cuda.get_arch_list() if arch[:3] == "sm_"]
    if built and 10 * major + minor < min(built):
        raise DeviceUnusable(
            f"{torch.cuda.get_device_name()}: compute capability {major}.{minor} is too old for"
            f" torch {torch.__version__} (from {min(built) / 10:g}); install an older torch,"
            " or set CUDA_VISIBLE_DEVICES= to train on the CPU"
        )
    torch.backends.cudnn.benchmark = True
    sharing = environ.get("HPQ_TRIALS_PER_GPU", "")
    if sharing.isdigit() and int(sharing) > 1:
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(share(int(sharing), total))


def share(trials: int, total: int) -> float:
    """The part of a GPU's `total` bytes that each of so many trials may take for its tensors."""
    return max(0.01, min(_OWN_SHARE / trials, 1 / trials - _CONTEXT / total))


def _keep_memory() -> None:
    # glibc gives large blocks back to the kernel as soon as they are freed, and a step frees and
    # asks for the same ones: without this, a fifth of a step on a CPU goes into page faults.
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # musl has none
        if mallopt is not None:
            mallopt(_M_MMAP_MAX, 0)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def plan(place: torch.device) -> Plan:
    """How the shipped trainers compute there."""
    if place.type == "cuda":
        return Plan(dtype=torch.half, graph=True, whole_epoch=True, fill=8)
    return Plan()


def _odd_channels(model: nn.Module, plan: Plan) -> list[int]:
    if not plan.fill:
        return []
    channels = {m.out_channels for m in model.modules() if isinstance(m, nn.Conv2d)}
    return sorted(number for number in channels if number % plan.fill)


def placed(model: nn.Module, place: torch.device, plan: Plan) -> nn.Module:
    """The network there, in the plan's formats; says it where these make it slow."""
    if odd := _odd_channels(model, plan):
        print(
            f"hpq: convolutions of {', '.join(map(str, odd))} channels are right, and may be slow"
            f" on a GPU, whose tensor cores take {plan.fill} at a time; choose multiples of"
            f" {plan.fill}",
            file=sys.stderr,
        )
    layout = torch.channels_last if plan.channels_last else torch.contiguous_format
    model = model.to(place, plan.dtype, memory_format=layout)
    if plan.dtype in (torch.half, torch.bfloat16):
        for module in model.modules():
            if isinstance(module, _NORMS):
                module.float()
    return model
