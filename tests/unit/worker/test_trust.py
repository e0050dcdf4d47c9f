"""Which rows of a sweep that no key of this worker signed are run."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from hpq.domain.identity import ParameterSet
from hpq.domain.sweep import Launch, RunnableSweep
from hpq.domain.trial import ALTERED, Checkpoint, Claim, Start, TrialId
from hpq.settings import read
from hpq.store.wire.row import encode_new
from hpq_worker.attempt.trust import TrustPolicy


def test_an_unsigned_row_that_names_a_start_is_refused_and_another_one_opened(tmp_path) -> None:
    bundles: Any = SimpleNamespace()
    policy = TrustPolicy(read({"HPQ_HOME": str(tmp_path)}), bundles)
    sweep = RunnableSweep(id="s-00000", launch=Launch(trainer="digits"), metric=None)
    claim = Claim(trial=TrialId(sweep=sweep.id, number=2), attempt=1, nonce="n")
    params = ParameterSet({"epochs": 2})
    start = Start(trial=1, checkpoint=Checkpoint(store="s", path="hpq/s-00000/1/1-n/checkpoint-1"))
    for given, expected in ((params, "opened"), (params.started_at(start), ALTERED)):
        row = encode_new(given, 0).params.encode()
        found = policy.open(sweep, replace(claim, row=row))
        assert ("opened" if isinstance(found, Claim) else found) == expected
