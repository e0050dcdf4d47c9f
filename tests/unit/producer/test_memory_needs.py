"""Which parameter separates the trials that ran out of memory."""

from __future__ import annotations

import pytest

from hpq.domain.trial import Failure, FailureKind, TrialState
from hpq_producer.analysis.memory import MemoryNeeds
from tests.support.views import trial_view

FULL = {"gpu.memory_gb": 23.5, "gpu.size_gb": 24.0}


def needs(ended: list[dict], failed: list[dict], **usage: float) -> str:
    found = MemoryNeeds(("batch_size", "lr", "optimizer"))
    failure = Failure(kind=FailureKind.OUT_OF_MEMORY, message="m")
    for params, is_failed in [*((p, False) for p in ended), *((p, True) for p in failed)]:
        found.add(
            trial_view(
                state=TrialState.FAILED if is_failed else TrialState.FINISHED,
                params=params,
                failure=failure if is_failed else None,
                usage=usage,
            )
        )
    return found.cause


@pytest.mark.parametrize(
    ("ended", "failed", "cause"),
    [
        ([(64, 1), (256, 3)], [(512, 2), (1024, 2)], "batch_size ≥ 512 needs more than 24 GB"),
        ([(64, 1), (256, 3)], [(8, 2), (16, 2)], "batch_size ≤ 16 needs more than 24 GB"),
        ([(64, 1), (512, 3)], [(512, 2)], "seen to use at most 23.5 GB of a GPU"),
        ([(64, 1)], [(512, 2)], "seen to use at most 23.5 GB of a GPU"),  # either may be chance
        ([], [(512, 2)], "seen to use at most 23.5 GB of a GPU"),
        ([(64, 1)], [], ""),
    ],
)
def test_a_number_is_named_if_it_alone_separates_the_trials(ended, failed, cause) -> None:
    sets = [[{"batch_size": b, "lr": lr} for b, lr in some] for some in (ended, failed)]
    assert needs(*sets, **FULL) == cause


def test_a_size_that_the_trials_did_not_fill_is_not_named() -> None:
    ended, failed = [{"batch_size": 1}], [{"batch_size": 2}]
    assert needs(ended, failed, **FULL | {"gpu.memory_gb": 1.0}).endswith("more than was free")


def test_text_and_truth_values_separate_nothing() -> None:
    ended = [{"optimizer": "sgd", "batch_size": True}]
    assert needs(ended, [{"optimizer": "adam", "batch_size": False}]) == ""
