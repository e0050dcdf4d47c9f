"""What commands, the page and Python show of a sweep with a budget, and what continues it."""

from __future__ import annotations

import json

import pytest
from redis import Redis

import hpq
from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import SweepState
from hpq.error_codes import ExitCode
from hpq.errors import OverBudget
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from tests.support.desk import Desk
from tests.support.ids import ids
from tests.support.store_calls import end, take

HOUR = 3_600_000
SWEEP = """
method: grid
trainer: digits
parameters:
  epochs: {values: [1, 2, 3]}
budget: {gpu_hours: 1.5}
"""


@pytest.fixture
def held(desk: Desk, store: TrialStore, who: WorkerPresence, redis: Redis, keys: Keys) -> str:
    """A sweep whose one trial has used two hours of one and a half."""
    (desk.folder / "s.yaml").write_text(SWEEP)
    sid = desk.hpq("enqueue", "s.yaml").stdout.strip()
    claim = take(store, who, "a")
    redis.hincrby(keys.trial(claim.trial), "claimed_ms", -2 * HOUR)
    end(store, claim, 0.5)
    return sid


def test_every_view_says_that_the_budget_is_gone_and_what_continues_the_sweep(
    desk: Desk, held: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited = desk.hpq("wait", held)
    assert waited.returncode == ExitCode.OVER_BUDGET and ids(waited.stderr)[-1] == "budget-spent"
    command = f"hpq set {held} budget.gpu_hours=3"
    assert command in waited.stderr
    record = json.loads(desk.hpq("wait", held, "-o", "json").stdout)
    assert record["state"] == "held" and record["next"][0] == command
    hours = {"gpu_hours": 1.5, "used_hours": 2, "wasted_hours": 0, "until": None}
    assert record["budget"] == pytest.approx(hours, abs=0.01)
    table = desk.hpq("ls").stdout
    assert "2/1.5" in table and "GPU-hours" in table.splitlines()[0]
    assert "2 GPU-hours used" in desk.hpq("ls").stderr
    for words in (("watch", held, "--once"), ("summary", held), ("show", held)):
        assert "2 of 1.5 GPU-hours used" in desk.hpq(*words).stdout, words
    report = desk.folder / "page.html"
    assert desk.hpq("report", held, "--out", str(report)).returncode == 0
    assert "2 of 1.5 GPU-hours used" in report.read_text("utf-8") and command in report.read_text()
    with pytest.raises(OverBudget):
        hpq.Sweep(held).wait()
    assert hpq.Sweep(held).budget == pytest.approx(hours, abs=0.01)


def test_resume_and_run_do_not_override_a_budget_and_set_does(
    desk: Desk, held: str, reader: StoreReader
) -> None:
    resumed = desk.hpq("resume", held)
    assert resumed.returncode == ExitCode.OVER_BUDGET and ids(resumed.stderr) == ["budget-spent"]
    assert desk.hpq("retry", f"{held}/1", "--yes").returncode == 0
    assert reader.sweeps.get(held).is_over_budget
    for bad in ("budget.gpu_hours=-1", "budget.until=2020-01-31T08:00Z", "budget.hours=3"):
        assert desk.hpq("set", held, bad).returncode == ExitCode.USER
    assert desk.hpq("set", held, "budget.gpu_hours=3", "budget.until=08:00").returncode == 0
    assert reader.sweeps.get(held).state == "running"
    for text in ("budget.gpu_hours=0", "budget.until=none"):
        assert desk.hpq("set", held, text).returncode == 0
    budget = reader.sweeps.get(held).budget
    assert budget and (budget.budget_ms, budget.until_ms) == (0, 0)


def test_a_sweep_without_a_budget_names_none(desk: Desk) -> None:
    (desk.folder / "t.yaml").write_text(SWEEP.replace("budget: {gpu_hours: 1.5}", ""))
    plain = desk.hpq("enqueue", "t.yaml").stdout.strip()
    assert "GPU-hours" not in desk.hpq("ls", "--where", f"id == {plain}").stdout
    none = desk.hpq("ls", "--where", "budget.gpu_hours > 1", "-o", "json")
    assert (none.returncode, json.loads(none.stdout)) == (0, [])
    (desk.folder / "t.yaml").write_text(SWEEP)
    rich = desk.hpq("enqueue", "t.yaml").stdout.strip()
    (found,) = json.loads(desk.hpq("ls", "--where", "budget.gpu_hours > 1", "-o", "json").stdout)
    assert found["id"] == rich
    assert "budget" not in json.loads(
        desk.hpq("wait", plain, "--timeout", "0", "-o", "json").stdout
    )


def test_plan_prints_when_the_budget_ends(desk: Desk) -> None:
    text = SWEEP.replace("{gpu_hours: 1.5}", '{gpu_hours: 2, until: "2090-01-31T08:00Z"}')
    (desk.folder / "s.yaml").write_text(text)
    assert "budget 2 GPU-hours, until 2090-01-31 " in desk.hpq("plan", "s.yaml").stdout
    planned = json.loads(desk.hpq("plan", "s.yaml", "-o", "json").stdout)
    assert planned["budget"]["until"] == "2090-01-31T08:00:00.000+00:00"


def test_the_proposed_budget_lets_a_trial_start_that_takes_longer_than_the_budget(
    desk: Desk, reader: StoreReader
) -> None:
    (desk.folder / "s.yaml").write_text(f"timeout: 4h\n{SWEEP}")
    enqueued = desk.hpq("enqueue", "s.yaml")
    sid = enqueued.stdout.strip()
    command = f"hpq set {sid} budget.gpu_hours=6"
    assert command in enqueued.stderr
    changed = desk.hpq("set", sid, "budget.gpu_hours=2")
    assert changed.returncode == 0 and command in changed.stderr, "still held"
    assert command not in desk.hpq(*command.split()[1:]).stderr
    assert reader.sweeps.get(sid).state is SweepState.RUNNING
