"""Which failures of a trial are the fault of a host that lacks files of the enqueue's host."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpq.domain.attempt import Outcome
from hpq.domain.sweep import Launch, SweepView
from hpq.domain.trial import Failure, FailureKind, TrialState
from hpq_worker.attempt.code import CodeBundles


def failed(message: str) -> Outcome:
    failure = Failure(kind=FailureKind.USER_ERROR, message=message, fingerprint="x")
    return Outcome(state=TrialState.FAILED, step=0, failure=failure)


@pytest.mark.parametrize(
    ("message", "needed"),
    [
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/x'", "needs data/x,"),
        ("FileNotFoundError: data/x.csv not found.", "needs a file (data/x.csv not found.),"),
        ("ModuleNotFoundError: No module named 'einops'", "needs the module einops,"),
        ("ValueError: FileNotFound", ""),
    ],
)
def test_a_missing_file_is_the_hosts_until_a_trial_has_finished_on_it(
    tmp_path: Path, message: str, needed: str
) -> None:
    launch = Launch(program="t.py", code="c" * 64, code_dir="/nowhere", bundled=True)
    sweep = SweepView(id="s-1", name="s", digest="d", launch=launch, provenance={"host": "desk"})
    bundles = CodeBundles(tmp_path, lambda _: None)
    found = bundles.judge(sweep, failed(message))
    assert found and found.failure
    assert (found.failure.kind is FailureKind.DATA_MISSING) == bool(needed)
    assert needed in found.failure.message
    bundles.judge(sweep, Outcome(state=TrialState.FINISHED, step=0))
    assert bundles.judge(sweep, failed(message)) == failed(message)
