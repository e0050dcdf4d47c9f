"""Words and fields that hpq does not write: fields are passed over, words are refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hpq.domain.attempt import Outcome
from hpq.domain.sweep import SCHEMA, Goal, Launch, Metric, ObjectiveValue, SweepView
from hpq.domain.trial import Artifacts, Claim, Failure, FailureKind, TrialId, TrialState
from hpq.errors import DecodeError
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq.store.wire import sweep as sweep_codec
from hpq.store.wire import trial as trial_codec
from hpq_worker.lease.spool import Spool

TRIAL = TrialId(sweep="s", number=1)


def trial_of(**fields: str):
    row = {name.encode(): text.encode() for name, text in fields.items()}
    return trial_codec.decode_trial("key", TRIAL, row, {}, dropped=False)


def read_sweep(**fields: str) -> SweepView:
    row = {name.encode(): text.encode() for name, text in {"state": "open", **fields}.items()}
    return sweep_codec.decode_sweep("key", "s", row, 0, 0, 0)


WORDS = ("suspended", "No Word", "{\x1b")


@pytest.mark.parametrize("word", WORDS)
def test_an_unknown_state_or_kind_of_failure_makes_the_trial_unreadable(word: str) -> None:
    """test_odd_records: views show an unreadable trial as one row."""
    with pytest.raises(DecodeError):
        trial_of(state=word, attempt="2", paint="blue")
    with pytest.raises(DecodeError):
        trial_of(state="failed", kind=word, error="by the cluster")


def test_a_launch_record_loses_the_fields_that_are_not_known() -> None:
    launch = Launch(program="train.py", command=("a",))
    text = json.dumps(json.loads(sweep_codec.encode_launch(launch)) | {"sandbox": "x"})
    assert read_sweep(launch=text).launch == launch


def test_a_metric_with_a_goal_that_is_none_makes_the_sweep_unreadable() -> None:
    """A wrong ranking would mislead."""
    sweep = SweepView(id="s", name="s", digest="d", launch=Launch(), metric=Metric(name="loss"))
    text = json.loads(sweep_codec.encode_sweep(sweep)["metric"])
    with pytest.raises(DecodeError):
        read_sweep(metric=json.dumps(text | {"goal": "pareto"}))
    metric = read_sweep(metric=json.dumps(text | {"unit": "%"})).metric
    assert metric == Metric(name="loss", goal=Goal.MINIMIZE, take=ObjectiveValue.LAST)


@pytest.mark.parametrize("word", ["", *WORDS])
def test_a_state_or_cause_that_is_not_known_makes_the_sweep_unreadable(word: str) -> None:
    """No script starts a trial of it, so a view must not show that it runs."""
    with pytest.raises(DecodeError, match="field state"):
        read_sweep(state=word)
    with pytest.raises(DecodeError, match="field why"):
        read_sweep(state="held", why=f"{word} text")


def test_a_sweep_of_a_greater_schema_is_refused_by_name() -> None:
    assert read_sweep(schema=str(SCHEMA)).name == ""
    with pytest.raises(DecodeError) as caught:
        read_sweep(schema=str(SCHEMA + 1))
    assert caught.value.code == "hpq-too-old"


def test_what_a_sweep_keeps_loses_the_fields_that_are_not_known() -> None:
    keep = read_sweep(keep='{"best": 3, "last": 1, "median": 2}').keep
    assert keep is not None and (keep.best, keep.last) == (3, 1)


class Spooled:
    """A result on disk, which a test edits."""

    def __init__(self, home: Path, store: TrialStore, claim: Claim, outcome: Outcome) -> None:
        self.spool, self.store = Spool(home, "hpq"), store
        gone = Spool(home, "hpq")
        gone.put(claim, outcome)
        gone.close()
        (self.path,) = (home / "spool" / "hpq").iterdir()
        self.data = json.loads(self.path.read_text("utf-8"))

    def flush(self) -> int:
        """A worker starts."""
        self.path.write_text(json.dumps(self.data), "utf-8")
        return self.spool.flush(self.store)


def test_a_result_on_disk_loses_the_fields_that_are_not_known(
    tmp_path: Path, store: TrialStore, reader: StoreReader, keys: Keys, sweep_of, take
) -> None:
    sweep_of(2)
    failure = Failure(kind=FailureKind.USER_ERROR, message="no", fingerprint="f")
    outcome = Outcome(
        state=TrialState.FAILED, failure=failure, artifacts=Artifacts(store="s", path="p")
    )
    it = Spooled(tmp_path, store, claim := take(), outcome)
    it.data["color"] = it.data["outcome"]["color"] = "blue"
    it.data["outcome"]["failure"]["where"] = "train.py"
    it.data["outcome"]["artifacts"]["bytes"] = 7
    assert it.flush() == 1 and not it.path.exists()
    trial = reader.trials.get(claim.trial)
    assert trial.failure == failure and trial.artifacts == outcome.artifacts


@pytest.mark.parametrize("place", ["state", "kind"])
def test_a_result_on_disk_with_a_word_that_is_none_is_set_aside(
    tmp_path: Path, store: TrialStore, reader: StoreReader, sweep_of, take, place: str
) -> None:
    """B10: a result in the spool has a state or a failure that hpq does not know."""
    sweep_of(1)
    failure = Failure(kind=FailureKind.USER_ERROR, message="no", fingerprint="f")
    outcome = Outcome(state=TrialState.FAILED, failure=failure)
    it = Spooled(tmp_path, store, claim := take(), outcome)
    (it.data["outcome"] if place == "state" else it.data["outcome"]["failure"])[place] = "evicted"
    assert it.flush() == 0 and not it.path.exists() and it.path.with_suffix(".bad").exists()
    assert reader.trials.get(claim.trial).state is TrialState.RUNNING
