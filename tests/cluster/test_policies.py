"""Who reaches whom: workers Redis and DNS, nobody else either of them; and Pod Security is kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from hpq_ops.manifests.objects import folder
from tests.cluster.kube import DEADLINE_S, REDIS, Cluster, wait_for
from tests.cluster.place import Namespace

API = ("10.96.0.1", 443)
# What is open takes a connection, what is not there refuses it, what a policy forbids says nothing.
TRY = "timeout 3 bash -c '</dev/tcp/{}/{}' 2>/dev/null; echo $?"
MEANS = {"0": "open", "1": "refused", "124": "silent"}


def pod(name: str, *command: str) -> str:
    """A pod for a namespace without Pod Security."""
    main = {"name": "main", "image": REDIS, "command": command, "securityContext": {"runAsUser": 0}}
    made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}}
    return yaml.safe_dump(
        {**made, "spec": {"terminationGracePeriodSeconds": 0, "containers": [main]}}
    )


class Network:
    """A namespace with hpq in it, and pods of another namespace."""

    def __init__(self, ours: Namespace, outside: str) -> None:
        self._cluster, self.ours, self.outside = ours.cluster, ours, outside
        self.worker = ""

    def address(self, name: str, namespace: str) -> str:
        """A pod's IP address, once it is ready."""
        ready = ("wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={DEADLINE_S:.0f}s")
        self._cluster.kubectl("-n", namespace, *ready)
        return str(self._cluster.get("-n", namespace, "pod", name)["status"]["podIP"])

    def meets(self, who: str, host: str, port: int, namespace: str = "") -> str:
        """What a pod meets there."""
        words = ("exec", who, "--", "bash", "-c", TRY.format(host, port))
        said = self._cluster.kubectl("-n", namespace or self.ours.name, *words)
        return MEANS.get(said.strip(), said)

    def wait_meets(self, what: str, who: str, host: str, port: int, namespace: str = "") -> None:
        """Wait until it does: a policy is enforced a moment after it, or its pod, was made."""
        wait_for(
            lambda: self.meets(who, host, port, namespace) == what,
            f"{who} meets {what} at {host}:{port}",
        )


@pytest.fixture(scope="module")
def elsewhere(shared: Namespace, cluster: Cluster) -> Iterator[Network]:
    outside = f"{shared.name}-outside"
    cluster.kubectl("create", "namespace", outside)
    site = pod("site", "redis-server", "--port", "443", "--protected-mode", "no", "--save", "")
    for text in (pod("stranger", "sleep", "3600"), site):
        cluster.kubectl("-n", outside, "create", "-f", "-", given=text)
    made = Network(shared, outside)
    # The measure works: where no policy is, what is open is open, and what is not refuses.
    there = made.address("site", outside)
    made.address("stranger", outside)
    made.wait_meets("open", "stranger", there, 443, outside)
    made.wait_meets("refused", "stranger", there, 444, outside)  # a busy pod seems silent
    yield made
    cluster.kubectl("delete", "namespace", outside, "--wait=false")


@pytest.fixture
def network(elsewhere: Network, namespace: Namespace) -> Network:
    """It, with the worker that is there now."""
    (elsewhere.worker,) = namespace.ready()
    return elsewhere


def test_a_stranger_reaches_neither_redis_nor_a_worker(network: Network) -> None:
    ours = network.ours.name
    redis = network.address("hpq-redis-0", ours)
    worker = network.address(network.worker, ours)
    for host, port in ((redis, 6379), (f"hpq-redis.{ours}", 6379), (worker, 9108)):
        network.wait_meets("silent", "stranger", host, port, network.outside)


def test_a_worker_reaches_redis_and_dns_and_nothing_else(network: Network) -> None:
    network.wait_meets("open", network.worker, "hpq-redis", 6379)  # by its name, so DNS answers
    site = network.address("site", network.outside)
    for host, port in ((site, 443), (site, 53), API, ("1.1.1.1", 443)):
        network.wait_meets("silent", network.worker, host, port)
    network.wait_meets("silent", "hpq-redis-0", site, 443)


def test_with_egress_a_worker_reaches_port_443_alone(network: Network) -> None:
    site = network.address("site", network.outside)
    policy = (folder() / "components/egress/network.yaml").read_text("utf-8")
    network.ours.kubectl("apply", "-f", "-", given=policy)
    try:
        network.wait_meets("open", network.worker, site, 443)
        assert network.meets(network.worker, site, 444) == "silent"
        assert network.meets("hpq-redis-0", site, 443) == "silent"
    finally:
        network.ours.kubectl("delete", "-f", "-", given=policy)


def test_a_pod_that_could_do_more_than_ours_is_refused(namespace: Namespace) -> None:
    done: Any = namespace.cluster.run(
        *("kubectl", "-n", namespace.name, "create", "-f", "-"),
        given=pod("bold", "sleep", "1"),
        ok=False,
    )
    assert done.returncode != 0 and 'violates PodSecurity "restricted' in done.stderr


def test_no_pod_has_a_token_of_the_api_server(network: Network) -> None:
    for name in (network.worker, "hpq-redis-0"):
        words = ("exec", name, "--", "ls", "/var/run/secrets")
        assert "kubernetes.io" not in network.ours.kubectl(*words, ok=False)
