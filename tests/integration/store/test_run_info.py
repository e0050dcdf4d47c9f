"""What a script sets beside numbers: from the batch that brings it to the trial and the sweep."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hpq.domain.attempt import ReportBatch
from hpq.domain.trial import Json, TrialId, TrialState, TrialView

LEASE = 30_000


def test_the_first_project_that_a_run_names_is_its_sweeps(
    store, reader, who, sweep_of, take
) -> None:
    sid = sweep_of(2).id
    claim = take()
    told = []
    for seq, info in enumerate(({"name": "a"}, {"project": "b"}, {"project": "c"}), 1):
        batch = ReportBatch(seq=seq, run_info=json.dumps(info))
        store.beat(claim, who, batch, lease_ms=LEASE)
        told.append(reader.sweeps.get(sid).project)
    assert told == ["", "b", "b"]
    assert reader.trials.get(claim.trial).run_info == {"project": "c"}
    of_file = replace(reader.sweeps.get(sid), spec={"project": "of the file"})
    assert of_file.project == "of the file"


@pytest.mark.parametrize("info", ['{"project":', "[]", '{"project":{"a":1}}', "[" * 2_000, "3"])
def test_odd_info_leaves_the_beat_and_the_sweep_as_they_are(
    store, reader, who, sweep_of, take, redis, keys, info: str
) -> None:
    sid = sweep_of(1).id
    claim = take()
    store.beat(claim, who, ReportBatch(seq=1, step=7, run_info=info), lease_ms=LEASE)
    assert reader.sweeps.get(sid).project == ""
    assert redis.hget(keys.trial(claim.trial), "step") == b"7"


RULES = {"val/*": "epoch", "val/acc": "samples", "*": "tokens"}
ODD: list[Json] = [None, 3, [], {}, {"loss": 3}, {"loss": None}, {"loss": "loss"}]


def test_a_metrics_axis_is_that_of_its_name_then_of_the_first_start_of_it() -> None:
    trial = TrialView(id=TrialId(sweep="s-00000", number=1), state=TrialState.RUNNING, params={})
    ruled = replace(trial, run_info={"axes": RULES})
    axes = {name: ruled.axis_of(name) for name in ("val/acc", "val/loss", "loss", "tokens")}
    assert axes == {"val/acc": "samples", "val/loss": "epoch", "loss": "tokens", "tokens": ""}
    assert {replace(trial, run_info={"axes": odd}).axis_of("loss") for odd in ODD} == {""}
    assert trial.axis_of("loss") == ""


def test_a_runs_name_group_and_tags_are_texts_whatever_the_record_holds() -> None:
    trial = TrialView(id=TrialId(sweep="s-00000", number=1), state=TrialState.RUNNING, params={})
    odd = replace(trial, run_info={"name": 3, "group": ["g"], "tags": ["a", 3, None]})
    assert (odd.run_name, odd.run_group, odd.run_tags) == ("", "", ("a",))
    assert replace(trial, run_info={"tags": "a"}).run_tags == ()
