"""Which pods go when there are to be fewer."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from producer.cluster.objects import Pod
from producer.cluster.victims import Agreement, Stake, cost, in_front, unknown, victims


def pod(name: str, **more: object) -> Pod:
    told = {"phase": "Running", "node": "n", "is_ready": True, "made": "2026-01-01T00:00:00Z"}
    return Pod(name=name, **{**told, **more})  # type: ignore[arg-type]


def stake(unsaved_s: int, ran_s: int = 0) -> Stake:
    return Stake(
        trial="s/1",
        ran_ms=1000 * max(ran_s, unsaved_s),
        unsaved_ms=1000 * unsaved_s,
        has_checkpoint=ran_s > unsaved_s,
    )


def names(pods: list[Pod]) -> str:
    return " ".join(one.name for one in pods)


def test_idle_pods_go_first_and_then_those_that_lose_least() -> None:
    pods = [pod(name) for name in ("long", "idle", "saved", "fresh")]
    stakes = {"long": [stake(9000)], "saved": [stake(60, ran_s=90_000)], "fresh": [stake(30)]}
    assert names(victims(pods, stakes, 0)) == "idle fresh saved long"
    assert names(victims(pods, stakes, 2)) == "idle fresh"
    assert victims(pods, stakes, 4) == victims(pods, stakes, 9) == []


def test_what_is_not_ready_goes_before_what_is_as_the_replica_set_has_it() -> None:
    pods = [
        pod("idle"),
        pod("busy-unready", is_ready=False),
        pod("pending", phase="Pending", is_ready=False, node=""),
        pod("going", phase="Terminating"),
    ]
    assert names(victims(pods, {"busy-unready": [stake(500)]}, 0)) == "pending busy-unready idle"


def test_drained_pods_go_before_other_idle_ones() -> None:
    pods = [pod(name) for name in "abcd"]
    assert names(victims(pods, {}, 2, first={"b", "c"})) in ("b c", "c b")


def test_a_pod_that_nothing_is_known_of_goes_after_the_idle_ones() -> None:
    pods = [pod(name) for name in ("dark", "idle", "busy")]
    stakes = {"dark": [unknown("dark")], "busy": [stake(60)]}
    assert names(victims(pods, stakes, 0)) == "idle dark busy"


def test_pods_that_never_came_up_go_before_drained_ones_and_are_counted() -> None:
    pending = pod("pending", phase="Pending", is_ready=False, node="")
    pods = [pod("idle"), pending, pod("drained"), pod("going", phase="Terminating")]
    assert names(in_front(pods, {"drained"})) == "pending"
    assert in_front(pods, {"pending"}) == in_front(pods, {"gone"}) == []
    assert names(victims(pods, {}, 3 - 1 - 1, first={"drained"})) == "pending drained"


@given(st.lists(st.integers(0, 10**9), max_size=3), st.lists(st.integers(0, 10**9), max_size=3))
def test_costs_order_as_what_is_lost_and_fit_the_annotation(
    one: list[int], other: list[int]
) -> None:
    low, high = sorted((one, other), key=sum)
    costs = [cost([stake(s) for s in many]) for many in (low, high)]
    assert all(0 <= c < 2**31 for c in costs)
    assert not low or not high or sum(high) - sum(low) < 2 or costs[0] <= costs[1]
    assert cost([]) == 0 < cost([stake(0)])


def test_who_agreed_to_stop_a_trial_agreed_to_its_pods_next_one_that_loses_less() -> None:
    agreed = Agreement()
    agreed.add({"a": [stake(13)], "b": [unknown("b")]})
    later = replace(stake(2), trial="s/2")
    assert agreed.covers_all({"a": [later], "b": [unknown("b")]})
    assert agreed.covers("a", [stake(500)])  # the one that was named, whatever it loses by now
    assert not agreed.covers("a", [replace(stake(14), trial="s/2")])
    assert not agreed.covers("b", [later]) and not agreed.covers("c", [later])
    assert not agreed.covers("a", [unknown("a")])
