"""Whether torch's CUDA and the driver's go together, by what each of the two says."""

from __future__ import annotations

import pytest

from hpq.gpus import compare_cuda

_HEADER = """\
Mon Mar  3 10:21:07 2025
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI {driver:<22} Driver Version: {driver:<14} CUDA {word}Version: {cuda:<9}|
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
"""
_VERSION_PY = """\
from typing import Optional

__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip', 'rocm', 'xpu']
__version__ = '{version}'
debug = False
cuda: Optional[str] = {cuda}
git_version = 'cf30153c4c131c8164ee7798e5022d810682e2cb'
hip: Optional[str] = None
"""
CPU = _VERSION_PY.format(version="2.13.0+cpu", cuda="None")
CUDA_12 = _VERSION_PY.format(version="2.7.0+cu126", cuda="'12.6'")
CUDA_13 = _VERSION_PY.format(version="2.13.0", cuda="'13.0'")
OLD_TORCH = "__version__ = '2.0.1+cu118'\ncuda = '11.8'\n"
DRIVER_12 = _HEADER.format(driver="550.54.15", cuda="12.4", word="")
DRIVER_13 = _HEADER.format(driver="580.65.06", cuda="13.0", word="")
DRIVER_13_UMD = _HEADER.format(driver="590.44.01", cuda="13.1", word="UMD ")


@pytest.mark.parametrize(
    ("torch", "driver"),
    [
        (CUDA_12, DRIVER_12),  # a newer minor version: CUDA runs it
        (CUDA_12, DRIVER_13),
        (CUDA_13, DRIVER_13),
        (CUDA_13, DRIVER_13_UMD),
        (OLD_TORCH, DRIVER_12),
        (CUDA_13, ""),  # nvidia-smi failed: nothing is known
        (CUDA_13, DRIVER_12.replace("12.4", "N/A ")),
    ],
)
def test_a_driver_runs_each_cuda_of_its_major_version_and_older_ones(
    torch: str, driver: str
) -> None:
    assert compare_cuda(torch, driver) == ""


@pytest.mark.parametrize(
    ("torch", "driver", "names"),
    [(CUDA_13, DRIVER_12, ("13.0", "12.4")), (CPU, DRIVER_13, ()), (CPU, "", ())],
)
def test_a_torch_that_cannot_use_the_gpus_is_named(
    torch: str, driver: str, names: tuple[str, ...]
) -> None:
    told = compare_cuda(torch, driver)
    assert told and all(name in told for name in names)
