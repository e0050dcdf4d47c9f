"""What `hpq get` says of a store that only pods see."""

from __future__ import annotations

from pathlib import Path

import pytest

from producer.cluster.tunnel import Tunnel
from producer.commands.get import _in_the_cluster


def test_a_file_on_a_clusters_volume_is_named_with_the_command_that_fetches_it_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))  # the API server is not asked
    there = Tunnel(
        name="t", pid=1, port=1, context="lab", namespace="ml", service="hpq-redis",
        user="hpq-producer", prefix="hpq", password_file="p",
    )  # fmt: skip
    said = _in_the_cluster(there, "hpq/s-1/1/artifacts/my model.txt", Path("model.txt"))
    words = "kubectl --context lab -n ml exec deploy/hpq-worker -- cat"
    assert f"{words} '/store/hpq/s-1/1/artifacts/my model.txt' > model.txt;" in said
