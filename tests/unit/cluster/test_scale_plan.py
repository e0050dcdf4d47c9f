"""Which pods go when there are to be fewer."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hpq.domain.trial import TrialId, TrialState, TrialView
from hpq_producer.cluster.objects import Pod
from hpq_producer.cluster.scale.plan import deletion_cost, pods_removed_before, pods_to_remove

NOW_MS = 10**13


def pod(name: str, **more: object) -> Pod:
    told = {"phase": "Running", "node": "n", "is_ready": True, "made": "2026-01-01T00:00:00Z"}
    return Pod(name=name, **{**told, **more})  # type: ignore[arg-type]


def trial(ran_s: int, saved_s: int | None = None) -> TrialView:
    """A trial that was claimed and whose checkpoint was published so many seconds ago."""
    return TrialView(
        id=TrialId(sweep="s", number=1),
        params={},
        state=TrialState.RUNNING,
        claimed_ms=NOW_MS - 1000 * ran_s,
        checkpoint_ms=0 if saved_s is None else NOW_MS - 1000 * saved_s,
    )


def costs(**trials: TrialView) -> dict[str, int]:
    return {name: deletion_cost([one], NOW_MS) for name, one in trials.items()}


def names(pods: list[Pod]) -> str:
    return " ".join(one.name for one in pods)


def test_idle_pods_go_first_and_then_those_with_the_newest_checkpoint_or_start() -> None:
    pods = [pod(name) for name in ("long", "idle", "saved", "fresh", "resumed")]
    busy = costs(long=trial(9000), saved=trial(90_000, 60), fresh=trial(30), resumed=trial(45, 800))
    assert names(pods_to_remove(pods, busy, 0)) == "idle fresh resumed saved long"
    assert names(pods_to_remove(pods, busy, 3)) == "idle fresh"
    assert pods_to_remove(pods, busy, 5) == pods_to_remove(pods, busy, 9) == []


def test_what_is_not_ready_goes_before_what_is_as_the_replica_set_has_it() -> None:
    pods = [
        pod("idle"),
        pod("busy-unready", is_ready=False),
        pod("pending", phase="Pending", is_ready=False, node=""),
        pod("going", phase="Terminating"),
    ]
    busy = costs(**{"busy-unready": trial(500)})
    assert names(pods_to_remove(pods, busy, 0)) == "pending busy-unready idle"


def test_drained_pods_go_before_other_idle_ones() -> None:
    pods = [pod(name) for name in "abcd"]
    assert names(pods_to_remove(pods, {}, 2, first={"b", "c"})) in ("b c", "c b")


def test_a_pod_that_nothing_is_known_of_goes_after_the_idle_ones() -> None:
    pods = [pod(name) for name in ("dark", "idle", "busy")]
    dark = {"dark": deletion_cost([], NOW_MS)}
    assert names(pods_to_remove(pods, {**dark, **costs(busy=trial(60))}, 0)) == "idle dark busy"


def test_pods_that_never_came_up_go_before_drained_ones_and_are_counted() -> None:
    pending = pod("pending", phase="Pending", is_ready=False, node="")
    pods = [pod("idle"), pending, pod("drained"), pod("going", phase="Terminating")]
    assert names(pods_removed_before(pods, {"drained"})) == "pending"
    assert pods_removed_before(pods, {"pending"}) == pods_removed_before(pods, {"gone"}) == []
    assert names(pods_to_remove(pods, {}, 3 - 1 - 1, first={"drained"})) == "pending drained"


@given(st.lists(st.integers(0, 10**9), max_size=3), st.lists(st.integers(0, 10**9), max_size=3))
def test_costs_order_as_what_is_lost_and_fit_the_annotation(
    one: list[int], other: list[int]
) -> None:
    low, high = (
        deletion_cost([trial(s) for s in many], NOW_MS) for many in sorted((one, other), key=sum)
    )
    assert 0 < low <= high < 2**31
