"""Fixtures on the test cluster: the cluster, images of this checkout, a namespace, a laptop.

Run serially (`make cluster`). Where ../shared/k8s/testcluster or root is absent everything here is
skipped. A cluster that was up stays up, and what a test makes in it is deleted.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

from tests.cluster import kube
from tests.cluster.kube import Cluster
from tests.cluster.place import SETTINGS, Laptop, Namespace

HERE = Path(__file__).parent
# What a program may have of these, where its sweep asks for both of the first word.
PASSING = {
    "HPQ_PASS_ENV": "ASKED_AND_PASSED,PASSED_ONLY",
    "ASKED_AND_PASSED": "1",
    "ASKED_ONLY": "1",
    "PASSED_ONLY": "1",
}
LIMIT_S = 600  # of a test, without what its fixtures build


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is of the cluster, and slow by nature."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(LIMIT_S, func_only=True))


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A Kubernetes; one that was not up goes down again afterwards."""
    if not kube.TESTCLUSTER.exists():
        pytest.skip("no test cluster: ../shared/k8s/testcluster is not beside the checkout")
    if os.geteuid() != 0:
        pytest.skip("the test cluster needs root")
    found = kube.connect()
    was_up = kube.is_up(found)
    if not was_up or not found.has_image(kube.REDIS):  # else somebody's build is not waited for
        with kube.alone():
            was_up = kube.is_up(found)
            if not was_up:
                found.testcluster("up")
            if not found.has_image(kube.REDIS):
                found.testcluster("redis")
    found.recycle()
    yield found
    if not was_up:
        found.testcluster("down")


@dataclass(frozen=True)
class Images:
    """The images of this checkout; each is built when it is first asked for.

    CLUSTER_WORKER_IMAGE names one that is there, for whoever writes tests and no code.
    """

    cluster: Cluster

    @cached_property
    def worker(self) -> str:
        """With torch for CPUs, its whole name."""
        if named := os.environ.get("CLUSTER_WORKER_IMAGE"):
            return named
        return kube.build(self.cluster, f"hpq-worker:{kube.content_tag()}", "--target", "worker")

    @cached_property
    def cli(self) -> str:
        """The command line."""
        return kube.build(self.cluster, f"hpq-cli:{kube.content_tag()}", "--target", "cli")


@pytest.fixture(scope="session")
def images(cluster: Cluster) -> Images:
    """The images of this checkout, as it is now."""
    return Images(cluster)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """HPQ_HOME of whoever sets the cluster up, where the code key is made."""
    return tmp_path_factory.mktemp("home")


MakeNamespace = Callable[[], Namespace]


@pytest.fixture(scope="module")
def make_namespace(cluster: Cluster, home: Path) -> Iterator[MakeNamespace]:
    """Makes namespaces of names that nobody has, for tests that need one apart.

    Nothing is in them before `deploy`.
    """
    made: list[Namespace] = []

    def make() -> Namespace:
        made.append(Namespace(cluster, f"hpq-test-{secrets.token_hex(3)}", home))
        return made[-1]

    yield make
    for one in made:
        one.delete()


@pytest.fixture(scope="session")
def shared(cluster: Cluster, home: Path, images: Images) -> Iterator[Namespace]:
    """One namespace for most tests: Redis, a volume for checkpoints, CPU workers."""
    made = Namespace(cluster, f"hpq-test-{secrets.token_hex(3)}", home)
    try:
        made.deploy(images.worker, keys="store: {}", settings=SETTINGS | PASSING)
        yield made
    finally:
        made.delete()


@pytest.fixture(scope="session")
def shared_laptop(shared: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laptop]:
    """Somebody's machine that reaches the Redis of `shared`."""
    made = Laptop(shared, tmp_path_factory.mktemp("laptop"))
    yield made
    made.close()


@pytest.fixture
def namespace(shared: Namespace) -> Namespace:
    """The shared namespace with one worker, ready, as each test finds it."""
    shared.scale(1)
    shared.wait_ready(1)
    return shared


@pytest.fixture
def laptop(namespace: Namespace, shared_laptop: Laptop) -> Laptop:
    """Somebody's machine that reaches the Redis of `namespace`; its directory is empty."""
    shared_laptop.forward()
    for left in shared_laptop.code.iterdir():
        left.unlink() if left.is_file() else shutil.rmtree(left)
    return shared_laptop


@pytest.fixture(scope="module")
def make_laptop(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Callable[[Namespace], Laptop]]:
    """Makes a laptop for a namespace of the test's own."""
    made: list[Laptop] = []

    def make(namespace: Namespace) -> Laptop:
        made.append(Laptop(namespace, tmp_path_factory.mktemp("laptop")))
        return made[-1]

    yield make
    for one in made:
        one.close()
