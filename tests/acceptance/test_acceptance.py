"""What three kinds of users type on the first day, the second day and the bad day.

laptop.sh runs here; kubernetes.sh needs the test cluster, and slurm.sh the test Slurm.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from tests.cluster.conftest import Images, cluster, images
from tests.cluster.kube import Cluster
from tests.cluster.place import Namespace
from tests.slurm.conftest import slurm
from tests.support.pages import typed

__all__ = ["cluster", "images", "slurm"]  # fixtures

HERE = Path(__file__).parent
LIMIT_S = 1200.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def acceptance(name: str, folder: Path, env: Mapping[str, str]) -> None:
    """Type a script of this directory in an empty home; every command must end as it says."""
    text = (HERE / "words.sh").read_text("utf-8") + (HERE / name).read_text("utf-8")
    bins = f"{Path(sys.executable).parent}{os.pathsep}{env.get('PATH', os.environ['PATH'])}"
    common = {"LANG": "C.UTF-8", "USER": "ana", "OMP_NUM_THREADS": "1"}
    typed(text, folder, {**env, **common, "PATH": bins}, LIMIT_S)


def test_a_researcher_with_a_laptop(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    acceptance("laptop.sh", tmp_path, {})


@pytest.fixture
def empty(cluster: Cluster, images: Images, tmp_path: Path) -> Iterator[Namespace]:
    """The namespace `hpq`, which the script creates; it is deleted afterwards."""
    if cluster.kubectl("get", "namespace", "hpq", "--ignore-not-found"):
        pytest.skip("the cluster has a namespace hpq, which is not this test's")
    assert images.worker  # built before the test's time begins
    made = Namespace(cluster, "hpq", tmp_path)
    yield made
    made.delete()


def test_a_lab_on_kubernetes(empty: Namespace, images: Images, tmp_path: Path) -> None:
    try:
        acceptance("kubernetes.sh", tmp_path, {**empty.cluster.env, "IMAGE": images.worker})
    except AssertionError as error:
        raise AssertionError(f"{error}\n{empty.tell()}") from None
    finally:
        stop = [Path(sys.executable).parent / "hpq", "connect", "--stop"]
        home = {"HOME": str(tmp_path / "home")}
        subprocess.run(stop, env={**empty.cluster.env, **home}, capture_output=True, check=False)


def test_a_lab_on_slurm(slurm: dict[str, str], tmp_path: Path) -> None:
    try:
        acceptance("slurm.sh", tmp_path, slurm)
    finally:
        log = (tmp_path / "page.log").read_text()
        jobs = re.findall(r"^\+ (?:redis|array|again)=(\d+)$", log, re.MULTILINE)
        if jobs:
            subprocess.run(["scancel", *jobs], env={**os.environ, **slurm}, check=False)
