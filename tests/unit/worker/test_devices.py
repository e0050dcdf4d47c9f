"""How GPUs and cores are divided among slots."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpq import gpus
from hpq.errors import UserError
from hpq_worker.process import devices
from tests.support.ids import raises


def test_gpus_are_dealt_out_to_slots() -> None:
    assert devices.slots(["0", "1", "2", "3"], 2, 1) == ["0,1", "2,3"]
    assert devices.slots(["0", "1"], 1, 2) == ["0", "0", "1", "1"]
    assert devices.slots([], 1, 1) == [""]


@pytest.mark.parametrize(("gpus", "per", "share"), [(["0"], 2, 1), (["0", "1"], 2, 2)])
def test_gpus_that_cannot_be_dealt_out_are_refused(gpus: list[str], per: int, share: int) -> None:
    with pytest.raises(UserError, match="HPQ_GPUS_PER_TRIAL"):
        devices.slots(gpus, per, share)


def test_the_option_is_named_that_asks_for_too_many_gpus() -> None:
    with raises("gpus-missing", "--gpus 2"):
        devices.slots(["0", "1"], 4, 1)


def test_hidden_gpus_are_not_counted() -> None:
    assert gpus.visible({"CUDA_VISIBLE_DEVICES": ""}) == []
    assert gpus.visible({"CUDA_VISIBLE_DEVICES": "2, 3"}) == ["2", "3"]


PER_TRIAL = {"HPQ_GPUS_PER_TRIAL": "1"}


@pytest.mark.parametrize(
    ("gpus", "environ", "pod_gpus"),
    [
        ([], {}, "nvidia.com/gpu=1"),
        (["0"], {"NVIDIA_VISIBLE_DEVICES": "GPU-4f1c,GPU-9a3e"}, "nvidia.com/gpu=2"),
        ([], {}, "nvidia.com/mig-1g.10gb=2"),
        ([], {}, "amd.com/gpu=1"),
        ([], PER_TRIAL, ""),
    ],
)
def test_a_worker_that_lacks_the_gpus_it_was_given_does_not_start(
    gpus: list[str], environ: dict[str, str], pod_gpus: str, monkeypatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(devices, "AMD", tmp_path / "kfd")
    with raises("no-gpu"):
        devices.check(gpus, environ, pod_gpus)


def test_a_worker_starts_with_its_gpus_or_where_cpus_are_meant(monkeypatch, tmp_path: Path) -> None:
    (tmp_path / "kfd").touch()
    monkeypatch.setattr(devices, "AMD", tmp_path / "kfd")
    assert devices.check(["0", "1"], {}, "nvidia.com/gpu=2") == ""
    # Two slices, or two shares, of one GPU.
    slices = {"NVIDIA_VISIBLE_DEVICES": "MIG-5c2d,MIG-77e0"}
    shares = {"NVIDIA_VISIBLE_DEVICES": "GPU-4f1c,GPU-4f1c"}
    assert devices.check(["0"], slices, "nvidia.com/mig-1g.10gb=2") == ""
    assert devices.check(["0"], shares, "nvidia.com/gpu.shared=2") == ""
    assert devices.check(["0"], {"NVIDIA_VISIBLE_DEVICES": "all"}, "nvidia.com/gpu=2") == ""
    assert devices.check([], {}, "amd.com/gpu=1") == ""
    assert devices.check([], {}, "") == ""
    assert devices.check(["0"], PER_TRIAL, "") == ""
    assert devices.check([], PER_TRIAL | {"CUDA_VISIBLE_DEVICES": ""}, "") == ""
    assert "habana.ai/gaudi" in devices.check([], {}, "habana.ai/gaudi=8")  # cannot be counted


SMI = """#!/bin/sh
case "$1" in
  -L) cat "$0.list" ;;
  --query-gpu*) echo "NVIDIA A100-SXM4-40GB, 535.54" ;;
esac
"""
SLICED = """GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-4f1c)
  MIG 1g.10gb     Device  0: (UUID: MIG-5c2d)
  MIG 1g.10gb     Device  1: (UUID: MIG-77e0)
"""


@pytest.mark.parametrize(
    ("listed", "seen"),
    [(SLICED, ["MIG-5c2d", "MIG-77e0"]), (SLICED.splitlines()[0], ["0"])],
)
def test_a_sliced_gpu_counts_by_its_slices(
    listed: str, seen: list[str], monkeypatch, tmp_path: Path
) -> None:
    smi = tmp_path / "nvidia-smi"
    smi.write_text(SMI)
    smi.chmod(0o755)
    smi.with_name("nvidia-smi.list").write_text(listed)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    gpus.gpu_names.cache_clear()
    gpus.gpu_ids.cache_clear()
    try:
        assert gpus.visible({}) == seen
        assert devices.slots(gpus.visible({}), 1, 1) == seen
        assert "cpu" not in gpus.device_line({})
        assert "device cpu" in gpus.device_line({"CUDA_VISIBLE_DEVICES": ""})
    finally:
        gpus.gpu_names.cache_clear()
        gpus.gpu_ids.cache_clear()


def test_cores_are_shared_by_slots_unless_the_user_has_said() -> None:
    cores = len(os.sched_getaffinity(0))
    assert devices.threads(1000, {}) == "1"
    assert devices.threads(1, {}) == str(cores)
    assert devices.threads(1, {"OMP_NUM_THREADS": "7"}) == "7"
    assert devices.threads(1, {}, cpus=1) == "1"  # a pod's request, not the node's cores
    assert devices.threads(1, {}, cpus=10_000) == str(cores)
