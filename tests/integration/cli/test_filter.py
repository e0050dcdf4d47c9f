"""--where as a user gives it: what is shown, what is asked, what is cancelled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable

import pytest

from hpq.domain.attempt import Outcome, ReportBatch, WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Claim, Point, TrialState
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.desk import Desk
from tests.support.ids import refused

Hpq = Callable[..., subprocess.CompletedProcess[str]]
SID = "demo-00000"


@pytest.fixture
def started(
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: Callable[..., SweepView],
    take: Callable[[], Claim],
) -> list[Claim]:
    """x = 1 … 6: the first finished, three run and report, the others wait."""
    sweep_of(6, SID)
    claims = [take() for _ in range(4)]
    store.commit(claims[0], Outcome(state=TrialState.FINISHED, objective=0.9, step=2))
    for seq, (claim, value) in enumerate(zip(claims[1:], (0.5, 0.2, 0.7), strict=True), 1):
        points = (Point(step=1, name="acc", value=value),)
        store.beat(claim, who, ReportBatch(seq=seq, points=points), lease_ms=30_000)
    return claims


def states(reader: StoreReader) -> str:
    return " ".join(t.state.value[0] for t in reader.trials.all(SID))


def test_cancel_where_shows_what_is_meant_and_takes_only_what_is_left(
    hpq: Hpq, reader: StoreReader, store: TrialStore, started: list[Claim]
) -> None:
    before = states(reader)
    asked = hpq("cancel", SID, "--where", "x in [1, 2, 6] or lacking > 3")
    refused(asked, "filter-name-unknown", "lacking")
    asked = hpq("cancel", SID, "--where", "x in [1, 2, 6]")
    refused(asked, "confirmation-missing")
    shown = [line.split()[:3] for line in asked.stdout.splitlines()[1:]]
    assert shown == [["2", "running", "2"], ["6", "queued", "6"]]
    assert "Cancel 2 trials of" in asked.stderr and states(reader) == before
    done = hpq("cancel", SID, "--where", "x in [1, 2, 6]", "--yes")
    assert done.returncode == 0 and "2 trials" in done.stderr
    assert states(reader) == "f r r r q c"
    assert store.beat(started[1], WorkerPresence(name="w1", host="h1", queue="default"),
                      ReportBatch(seq=9), lease_ms=30_000).value == "stop"  # fmt: skip
    assert audit_sweep(reader, SID).violations == ()


def test_a_cancel_into_a_pipe_that_nobody_reads_is_done_all_the_same(
    environ: dict[str, str], reader: StoreReader, started: list[Claim]
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)  # `hpq cancel … --yes | head`, which has read enough
    words = ["cancel", SID, "--where", "x in [1, 2, 6]", "--yes"]
    done = subprocess.run(
        [sys.executable, "-m", "hpq_producer", *words],
        env=environ,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(write_end)
    assert done.returncode == 0 and "2 trials" in done.stderr
    assert states(reader) == "f r r r q c"


def test_what_matches_nothing_cancels_nothing(
    hpq: Hpq, reader: StoreReader, started: list[Claim]
) -> None:
    before = states(reader)
    done = hpq("cancel", SID, "--where", "x > 6", "--yes")
    assert done.returncode == 0
    assert states(reader) == before
    both = hpq("cancel", f"{SID}/5", "--where", "x > 1", "--yes")
    assert both.returncode == 2 and states(reader) == before


def test_retry_takes_an_expression(
    hpq: Hpq, reader: StoreReader, started: list[Claim], control: SweepControl
) -> None:
    control.cancel(SID, [5, 6])
    assert hpq("retry", SID, "--cancelled", "--where", "x > 5").returncode == 0
    assert states(reader) == "f r r r c q"
    assert hpq("retry", f"{SID}/5", "--where", "x > 5").returncode == 2


def test_results_and_best_take_an_expression(hpq: Hpq, started: list[Claim]) -> None:
    rows = json.loads(hpq("results", SID, "--where", "acc > 0.3 and x < 4", "--json").stdout)
    assert [row["trial"] for row in rows] == [2]
    best = json.loads(hpq("best", SID, "--where", "x < 3", "--json").stdout)
    assert best["trial"] == 1
    nothing = hpq("results", SID, "--where", "x > 99")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no trial" in nothing.stderr
    none = hpq("best", SID, "--where", "x > 3")
    refused(none, "no-result", exit=4)
    wrong = hpq("results", SID, "--where", "x >")
    refused(wrong, "expression-invalid")


def test_a_state_that_does_not_exist_is_refused_with_the_nearest(
    hpq: Hpq, started: list[Claim]
) -> None:
    refused(hpq("ls", "--where", "state == runing"), "expression-invalid", "'running'", exit=2)
    refused(hpq("ls", "--where", "state in [held, wating]"), "expression-invalid", "'waiting'")
    refused(hpq("results", SID, "--where", "state == don"), "expression-invalid", "finished")
    assert hpq("ls", "--where", "state == held").returncode == 0
    assert hpq("results", SID, "--where", "state != failed").returncode == 0


def test_a_parameter_may_be_named_state(desk: Desk) -> None:
    sid = desk.sweep(
        "program: train.py\nmethod: grid\nmetric: {name: loss}\n"
        "parameters: {state: {values: [ny, ca]}}\n"
    )
    done = desk.hpq("cancel", sid, "--where", "state == tx", "--yes")
    assert done.returncode == 0 and "no queued or running trial matches" in done.stderr
