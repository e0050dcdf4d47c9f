"""Where the trainers compute, and in which number formats.

torch's threads are those of OMP_NUM_THREADS, which the worker sets for each runner.
"""

from __future__ import annotations

import os
import re
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import nn

from hpq.errors import DeviceUnusable
from hpq_worker.trainers.step import Plan

_CONTEXT = 600 * 2**20  # bytes of a CUDA context, with the libraries' code


def plan(**changes: Any) -> Plan:
    """Return how this machine computes; `changes` to the plan of a GPU are ignored on a CPU.

    A GPU has captured steps, float32 weights, and bfloat16 autocast if it computes in bfloat16.
    """
    if pick().type == "cpu":
        return Plan()
    has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    return replace(Plan(autocast=torch.bfloat16 if has_bf16 else None, graph=True), **changes)


def placed(model: nn.Module, plan: Plan) -> nn.Module:
    """Move a network to the device, channels last; batch norms of half a network stay float32."""
    model = model.to(pick(), plan.dtype, memory_format=torch.channels_last)
    for module in model.modules() if plan.dtype in (torch.half, torch.bfloat16) else ():
        if isinstance(module, nn.BatchNorm2d):
            module.float()
    return model


@cache
def pick() -> torch.device:
    """Return the first GPU of CUDA_VISIBLE_DEVICES, else the CPU.

    Raises:
        DeviceUnusable: this process was given a GPU that torch cannot use.
    """
    if torch.cuda.is_available():
        _prepare_gpu()
        return torch.device("cuda")
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    if given.split(",")[0].strip() not in ("", "-1"):
        raise DeviceUnusable(
            f"GPU {given}: torch {torch.__version__} cannot use it ({why_no_gpu()}); install a"
            " torch that fits its driver, or set CUDA_VISIBLE_DEVICES= to train on the CPU"
        )
    return torch.device("cpu")


def why_no_gpu() -> str:
    """Return why torch uses no GPU, in a few words."""
    if torch.version.cuda is None:
        return "built without CUDA"
    try:
        torch.cuda.init()
    except Exception as error:  # torch reports no driver, an old one, and no such GPU in many ways
        return re.split(r"\.(?:\s|$)|\n", str(error).strip())[0][:100]  # advice follows
    return "it finds none"


def _prepare_gpu() -> None:
    major, minor = torch.cuda.get_device_capability()
    built = [int(arch[3:].rstrip("af")) for arch in torch.cuda.get_arch_list() if arch[:3] == "sm_"]
    if built and 10 * major + minor < min(built):
        raise DeviceUnusable(
            f"{torch.cuda.get_device_name()}: compute capability {major}.{minor} is too old for"
            f" torch {torch.__version__} (from {min(built) / 10:g}); install an older torch,"
            " or set CUDA_VISIBLE_DEVICES= to train on the CPU"
        )
    torch.backends.cudnn.benchmark = True
    sharing = os.environ.get("HPQ_TRIALS_PER_GPU", "")
    if sharing.isdigit() and int(sharing) > 1:
        total = torch.cuda.get_device_properties(torch.cuda.current_device()).total_memory
        torch.cuda.set_per_process_memory_fraction(share(int(sharing), total))


def share(trials: int, total: int) -> float:
    """Return the part of a GPU's `total` bytes that each of N trials may take for its tensors."""
    return max(0.01, min(0.95 / trials, 1 / trials - _CONTEXT / total))
