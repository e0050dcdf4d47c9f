"""`hpq doctor --cluster`, and what workers says of pods that do not work."""

from __future__ import annotations

import json
from pathlib import Path

from tests.cluster.kube import wait_for
from tests.cluster.outside import Outside
from tests.cluster.place import Namespace
from tests.support.ids import ids


def findings(outside: Outside) -> tuple[int, dict[str, str]]:
    """The exit code, and the level of each finding."""
    done = outside.hpq("doctor", "--cluster", "-n", outside.namespace.name, "--json")
    return done.returncode, {f["what"]: f["level"] for f in json.loads(done.stdout)}


def test_the_doctor_finds_all_well_and_then_the_one_pod_whose_image_is_not_there(
    namespace: Namespace, tmp_path: Path
) -> None:
    outside = Outside(namespace, tmp_path)
    outside.ok("connect", "-n", namespace.name)
    code, found = findings(outside)
    assert code == 0 and "wrong" not in found.values(), found
    assert any("data-hpq-redis-0" in what for what in found)
    assert any("Redis 7" in what for what in found)

    namespace.kubectl("set", "image", "deployment/hpq-worker", "worker=nowhere.invalid/hpq:1")
    try:
        why = "image nowhere.invalid/hpq:1"
        said = wait_for(
            lambda: why in (told := outside.hpq("workers").stderr) and told, "the pod's reason"
        )
        assert ids(said) == ["pod-trouble"] and "0 of 1" in said
        code, found = findings(outside)
        assert code == 3
        assert any(why in what and level == "wrong" for what, level in found.items()), found
    finally:
        outside.hpq("connect", "--stop")
        namespace.kubectl("rollout", "undo", "deployment/hpq-worker")
        namespace.rolled_out("deployment/hpq-worker")
