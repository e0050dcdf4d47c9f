"""The cluster blocks of README and the tutorial, typed on a machine with a kubeconfig."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import LIMIT_S, Images
from tests.cluster.kube import Cluster
from tests.cluster.place import Namespace
from tests.support.pages import PAGES, blocks, script, typed

WITH_BLOCKS = [page for page in PAGES if any(b.machine == "cluster" for b in blocks(page))]
# The node has no GPU. In a pod of 256Mi, README's sweep did not end: its suggester, which imports
# torch, needs 320 MB.
NO_GPU = "--gpus 0"
ASK = "\nhpq wait --json >{folder}/sweep.json\n"


@pytest.fixture
def empty(cluster: Cluster, tmp_path: Path) -> Iterator[Namespace]:
    """The namespace `hpq`, which the pages create; it is deleted afterwards."""
    if cluster.kubectl("get", "namespace", "hpq", "--ignore-not-found"):
        pytest.skip("the cluster has a namespace hpq, which is not this test's")
    made = Namespace(cluster, "hpq", tmp_path)
    yield made
    made.delete()


@pytest.fixture
def image(images: Images) -> str:
    """The worker's image: a fixture, since the limit of a test leaves no time to build it."""
    return images.worker


@pytest.mark.parametrize("page", WITH_BLOCKS, ids=lambda path: path.stem)
def test_the_cluster_blocks_of_a_page_work_as_they_are_printed(
    page: Path, empty: Namespace, image: str, tmp_path: Path
) -> None:
    """Their sweep finishes; its results are read before the page deletes the namespace."""
    env = empty.cluster.env | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "USER": "ana",
    }  # fmt: skip
    changed = {
        "--image REGISTRY/hpq-worker:1": f"--image {image} {NO_GPU}",
        "hpq wait\n": f"hpq wait{ASK.format(folder=tmp_path)}",
    }
    text = script(blocks(page), tmp_path, cluster=True, changed=changed)
    try:
        typed(f"{text}\nhpq connect --stop || true\n", tmp_path, env, LIMIT_S - 60)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{empty.tell()}") from None
    assert json.loads((tmp_path / "sweep.json").read_text())["state"] == "finished"
