"""What a capture that broke off left is taken back once, by whatever of it torch left."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from hpq_worker.trainers.training import step
from hpq_worker.trainers.training.step import clear_up

pytestmark = pytest.mark.torch
POOL = (0, 7)


class Allocator:
    """torch's, by what its versions do with a pool whose capture broke off, and its generator."""

    def __init__(self, *, ends: bool, releases: bool, in_use: int = 0) -> None:
        self.is_routed, self.owners, self.in_use = not ends, 1, in_use
        self.releases, self.states = releases, 0

    def end(self, device: int, pool: tuple[int, int]) -> None:
        if not self.is_routed:
            raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
        self.is_routed = False

    def release(self, device: int, pool: tuple[int, int]) -> None:
        assert pool == POOL and self.owners == 1, "given back twice"
        self.owners = 0

    def reset(self) -> None:
        """Of the graph."""
        if self.releases:
            self.owners = 0

    def snapshot(self) -> list[dict[str, Any]]:
        other = {"segment_pool_id": (0, 0), "allocated_size": 5}
        own = {"segment_pool_id": POOL, "allocated_size": self.in_use}
        return [other, own] if self.owners or self.in_use else [other]

    def graphsafe_set_state(self, state: object) -> None:
        """Of the generator."""
        self.states += 1


def cleared(patch: pytest.MonkeyPatch, allocator: Allocator) -> Allocator:
    patch.setattr(torch._C, "_cuda_endAllocateToPool", allocator.end, raising=False)
    patch.setattr(torch._C, "_cuda_releasePool", allocator.release, raising=False)
    patch.setattr(torch.cuda, "memory_snapshot", allocator.snapshot)
    patch.setattr(torch.cuda, "current_device", lambda: 0)
    patch.setattr(torch.cuda, "empty_cache", lambda: None)
    patch.setattr(torch.cuda, "default_generators", (allocator,))
    patch.setattr(torch, "Generator", lambda device: None)
    patch.setattr(step, "_asked", [])
    clear_up(allocator, POOL, RuntimeError())  # type: ignore[arg-type]
    assert step._asked == [allocator]
    assert (allocator.is_routed, allocator.states) == (False, 1)
    return allocator


@pytest.mark.parametrize(
    ("ends", "releases"),
    [(False, False), (True, False), (True, True)],
    ids=["torch takes nothing back", "it ends the routing", "it gives the pool back, too"],
)
def test_the_memory_of_a_broken_capture_is_given_back_once(ends, releases, monkeypatch) -> None:
    assert cleared(monkeypatch, Allocator(ends=ends, releases=releases)).owners == 0


@pytest.mark.parametrize("releases", [False, True])
def test_memory_that_is_still_in_use_is_not_given_back_a_second_time(releases, monkeypatch) -> None:
    allocator = cleared(monkeypatch, Allocator(ends=True, releases=releases, in_use=3))
    assert allocator.owners == (not releases)


def test_what_the_frames_of_the_error_and_of_its_cause_hold_is_let_go(monkeypatch) -> None:
    freed = []

    class Held:
        def __del__(self) -> None:
            freed.append(1)

    def captured() -> None:
        tensor = Held()
        assert tensor
        raise ValueError("not permitted when stream is capturing")

    def ended() -> None:
        graph = Held()
        assert graph
        try:
            captured()
        finally:
            raise RuntimeError("capture invalidated")

    monkeypatch.setattr(step, "_asked", [])
    monkeypatch.setattr(torch.cuda, "current_device", lambda: len(freed))
    try:
        ended()
    except RuntimeError as error:
        with pytest.raises(IndexError):  # nothing is captured here: it gets no further
            monkeypatch.setattr(torch.cuda, "default_generators", ())
            monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
            monkeypatch.setattr(torch.cuda, "memory_snapshot", list)
            clear_up(torch, POOL, error)  # type: ignore[arg-type]
    assert freed == [1, 1]
