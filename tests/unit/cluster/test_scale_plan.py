"""Which pods go when there are to be fewer."""

from __future__ import annotations

from hpq.domain.trial import TrialId, TrialState, TrialView
from hpq_producer.cluster.objects import Pod
from hpq_producer.cluster.scale.plan import pods_removed_before, pods_to_remove

NOW_MS = 10**13


def pod(name: str, **more: object) -> Pod:
    told = {"phase": "Running", "node": "n", "is_ready": True, "made": "2026-01-01T00:00:00Z"}
    return Pod(name=name, **{**told, **more})  # type: ignore[arg-type]


def trial(ran_s: int) -> TrialView:
    """A trial that was claimed so many seconds ago."""
    return TrialView(
        id=TrialId(sweep="s", number=1),
        params={},
        state=TrialState.RUNNING,
        claimed_ms=NOW_MS - 1000 * ran_s,
    )


def busy(**seconds: int) -> dict[str, list[TrialView]]:
    return {name: [trial(one)] for name, one in seconds.items()}


def names(pods: list[Pod]) -> str:
    return " ".join(one.name for one in pods)


def test_idle_pods_go_first_and_then_those_whose_trial_is_the_youngest() -> None:
    pods = [pod(name) for name in ("old", "idle", "young", "two")]
    running = {**busy(old=9000, young=30), "two": [trial(9000), trial(45)]}
    assert names(pods_to_remove(pods, running, 0)) == "idle young two old"
    assert names(pods_to_remove(pods, running, 2)) == "idle young"
    assert pods_to_remove(pods, running, 4) == pods_to_remove(pods, running, 9) == []


def test_what_is_not_ready_goes_before_what_is_as_the_replica_set_has_it() -> None:
    pods = [
        pod("idle"),
        pod("busy-unready", is_ready=False),
        pod("pending", phase="Pending", is_ready=False, node=""),
        pod("going", phase="Terminating"),
    ]
    running = busy(**{"busy-unready": 500})
    assert names(pods_to_remove(pods, running, 0)) == "pending busy-unready idle"


def test_drained_pods_go_before_other_idle_ones() -> None:
    pods = [pod(name) for name in "abcd"]
    assert names(pods_to_remove(pods, {}, 2, first={"b", "c"})) in ("b c", "c b")


def test_a_pod_that_nothing_is_known_of_goes_after_the_idle_ones() -> None:
    pods = [pod(name) for name in ("dark", "idle", "busy")]
    running = {"dark": [], **busy(busy=60)}
    assert names(pods_to_remove(pods, running, 0)) == "idle dark busy"


def test_pods_that_never_came_up_go_before_drained_ones_and_are_counted() -> None:
    pending = pod("pending", phase="Pending", is_ready=False, node="")
    pods = [pod("idle"), pending, pod("drained"), pod("going", phase="Terminating")]
    assert names(pods_removed_before(pods, {"drained"})) == "pending"
    assert pods_removed_before(pods, {"pending"}) == pods_removed_before(pods, {"gone"}) == []
    assert names(pods_to_remove(pods, {}, 3 - 1 - 1, first={"drained"})) == "pending drained"
