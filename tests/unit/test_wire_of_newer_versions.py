"""Records of a newer version: its words and fields are passed over, rubbish is still refused."""

from __future__ import annotations

import json

import pytest

from hpq import wire, wire_metric
from hpq.errors import DecodeError
from hpq.sweep import Goal, Launch, Metric, Take
from hpq.trial import FailureKind, TrialId, TrialState

TRIAL = TrialId(sweep="s", number=1)


def trial_of(**fields: str):
    row = {name.encode(): text.encode() for name, text in fields.items()}
    return wire.decode_trial("key", TRIAL, row, {}, dropped=False)


def test_a_state_of_a_newer_version_is_open_and_shown_by_its_word() -> None:
    trial = trial_of(state="suspended", attempt="2", paint="blue")
    assert trial.state is TrialState.QUEUED and trial.attempt == 2
    assert trial.phase == "suspended (a newer hpq's word)"


def test_a_failure_kind_of_a_newer_version_is_told_in_the_message() -> None:
    failure = trial_of(state="failed", kind="evicted", error="by the cluster").failure
    assert failure is not None and failure.kind is FailureKind.USER_ERROR
    assert failure.message == "evicted: by the cluster"


@pytest.mark.parametrize("field", ["state", "kind"])
def test_what_is_no_word_at_all_names_key_and_field(field: str) -> None:
    with pytest.raises(DecodeError, match=f"key: field {field}"):
        trial_of(**{field: "{\x1b"})


def test_a_launch_record_loses_the_fields_that_are_not_known() -> None:
    launch = Launch(program="train.py", command=("a",))
    text = json.dumps(json.loads(wire.encode_launch(launch)) | {"sandbox": "x"})
    assert wire.decode_launch(text) == launch


def test_a_metric_with_a_goal_of_a_newer_version_ranks_nothing() -> None:
    text = json.loads(wire_metric.encode(Metric(name="loss")))
    assert wire_metric.decode(json.dumps(text | {"goal": "pareto"})) is None
    metric = wire_metric.decode(json.dumps(text | {"take": "median", "unit": "%"}))
    assert metric == Metric(name="loss", goal=Goal.MINIMIZE, take=Take.LAST)
