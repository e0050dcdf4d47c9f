"""GPUs of this machine, and whether torch and the driver agree; torch is not imported."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

AMD = Path("/dev/kfd")  # of AMD's driver
_MIG = re.compile(r"^\s+MIG .*\(UUID: (MIG-[^)]+)\)", re.MULTILINE)
_DRIVER = re.compile(r"CUDA (?:UMD )?Version\s*: *([0-9]+\.[0-9]+)")
_BUILD = re.compile(r"^cuda\b[^=\n]*= *'([0-9.]+)'", re.MULTILINE)


@cache
def gpu_names() -> tuple[str, ...]:
    """Return the GPUs that the driver shows, with the driver's version; empty if there is none."""
    text = _nvidia_smi("--query-gpu=name,driver_version", "--format=csv,noheader")
    return tuple(line.strip() for line in text.splitlines())


@cache
def gpu_ids() -> tuple[str, ...]:
    """Return the devices of this machine, as CUDA_VISIBLE_DEVICES names them.

    These are the slices of MIG if there are any, and the indexes of the GPUs if not: CUDA sees no
    GPU that is sliced.
    """
    count = len(gpu_names())
    slices = _MIG.findall(_nvidia_smi("-L")) if count else []
    return tuple(slices) or tuple(map(str, range(count)))


def visible(environ: Mapping[str, str]) -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    names = environ.get("CUDA_VISIBLE_DEVICES")
    if names is None:
        return list(gpu_ids())
    return [name.strip() for name in names.split(",") if name.strip() not in ("", "-1")]


def describe_device(device: str) -> str:
    """Return the display name of one or more devices: the first GPU's name, or cpu."""
    names = gpu_names()
    if not device or not names:
        return "cpu"
    first = device.split(",")[0]
    name = names[int(first)] if first.isdigit() and int(first) < len(names) else names[0]
    return f"{name.split(',')[0]} [{device}]"


def device_line(environ: Mapping[str, str]) -> str:
    """Return in one line what trials on this machine run on."""
    gpus = visible(environ)
    if gpus and gpu_names():
        return f"device {describe_device(','.join(gpus))}"
    if AMD.exists() and environ.get("CUDA_VISIBLE_DEVICES") is None:
        return f"device: AMD GPUs of {AMD}"
    if environ.get("CUDA_VISIBLE_DEVICES") is not None and gpu_names():
        return "device cpu: CUDA_VISIBLE_DEVICES selects no GPU"
    return "device cpu: nvidia-smi shows no GPU here"


def cuda_mismatch() -> str:
    """Return why the torch installed here cannot use the GPUs of this machine; "" if it can."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None or not gpu_names():
        return ""
    version = Path(spec.origin).with_name("version.py")
    return compare_cuda(version.read_text("utf-8"), _nvidia_smi()) if version.is_file() else ""


def compare_cuda(torch_version: str, nvidia_smi: str) -> str:
    """Compare torch/version.py with what nvidia-smi printed; "" if torch can use the GPUs.

    A driver runs every CUDA of its own major version and of older ones.
    """
    build, driver = _BUILD.search(torch_version), _DRIVER.search(nvidia_smi)
    if build is None:
        return "torch is a build without CUDA: trainers use the CPU"
    if driver is None or int(build[1].split(".")[0]) <= int(driver[1].split(".")[0]):
        return ""
    return (
        f"torch is built for CUDA {build[1]}, and the driver supports CUDA {driver[1]} at most:"
        " trainers use the CPU"
    )


def _nvidia_smi(*options: str) -> str:
    """Return the output of nvidia-smi; "" if it is missing or fails."""
    try:
        done = subprocess.run(
            ["nvidia-smi", *options], capture_output=True, text=True, timeout=20, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""
