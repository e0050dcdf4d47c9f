"""What commands and Python show of several metrics and of constraints."""

from __future__ import annotations

import csv
import io
import json

import pytest

import hpq
from tests.support.ids import ids, raises
from tests.support.lab import Lab

PROGRAM = """
    def train(params, trial):
        x, y = params["x"], params["y"]
        trial.report({"gb": x})
        return {"acc": x / 10 - y / 100, "ms": 2.0 * x + y}
"""
FILE = """
trainer: mine:train
resident: true
method: grid
metrics: [{name: acc, goal: maximize}, {name: ms}]
constraints: ["gb <= 3"]
parameters:
  x: {values: [1, 2, 3, 4]}
  y: {values: [0, 1]}
"""
ONE = FILE.replace("metrics: [{name: acc, goal: maximize}, {name: ms}]", "metric: {name: ms}")
FRONT = [5, 3, 1]  # y = 0 is better by both, and x = 4 does not meet the constraint


SUGGESTED = """
trainer: suggested:train
resident: true
method: bayes
sampler: tpe
run_cap: 13
metrics: [{name: acc, goal: maximize}, {name: ms, goal: minimize}]
constraints: [gb <= 24]
parameters: {x: {distribution: uniform, min: 0.0, max: 1.0}}
"""
# The memory is reported once, before the value of each epoch.
SUGGESTED_PROGRAM = """
    def train(params, trial):
        x = params["x"]
        trial.report({"gb": 48 * x})
        for epoch in (1, 2):
            trial.report({"acc": x * epoch, "ms": 10 * x}, step=epoch)
"""


@pytest.fixture
def lab(served_lab: Lab) -> Lab:
    """All tests share one worker, and the sweeps that it has run."""
    return served_lab


def _ran(lab, text: str) -> str:
    lab.write("mine.py", PROGRAM)
    sid = lab.enqueue(text)
    lab.wait_over(sid)
    return sid


def _numbers(text: str) -> list[int]:
    return [one["trial"] for one in json.loads(text)]


def test_best_prints_the_front_and_by_picks_one_of_it(lab) -> None:
    sid = _ran(lab, FILE)
    assert _numbers(lab.ok("best", sid, "-o", "json")) == FRONT
    assert _numbers(lab.ok("best", sid, "-o", "json", "-n", 1)) == [5]
    assert _numbers(lab.ok("best", sid, "-o", "json", "--where", "x < 3")) == [3, 1]
    assert json.loads(lab.ok("best", sid, "--by", "ms", "-o", "json"))["trial"] == 1
    assert lab.ok("best", sid, "--by", "acc", "--args").strip() == "--x=3 --y=0"
    assert lab.ok("best", f"{sid}/8", "--args").strip() == "--x=4 --y=1"
    table = lab.ok("best", sid, "-n", 2).splitlines()
    assert [line.split()[0] for line in table[1:3]] == ["5", "3"] and len(table) == 5
    assert "1 more" in table[3] and "3 dominated" in table[4] and "2 infeasible" in table[4]
    for words, code in {
        ("--args",): "usage",
        ("--by", "gb"): "column-unknown",
        ("--where", "x > 3"): "constraints-unmet",
        ("--where", "acc == 9"): "no-result",
    }.items():
        done = lab.hpq("best", sid, *words)
        assert done.returncode != 0 and code in ids(done.stderr), (words, done.stderr)


def test_summary_show_and_results_say_where_a_trial_is(lab) -> None:
    sid = _ran(lab, FILE)
    record = json.loads(lab.ok("summary", sid, "-o", "json"))
    assert [one["trial"] for one in record["ranking"]] == FRONT
    assert (record["front"]["dominated"], record["front"]["infeasible"]) == (3, 2)
    assert record["front"]["hypervolumes"][-1]["trials"] == 6
    assert list(record["importance"]) == list(record["effects"]) == ["acc", "ms"]
    page = lab.ok("summary", sid)
    assert "which parameter matters for acc" in page and "which parameter matters for ms" in page
    assert "hypervolume" in page and "really the best" not in page
    assert "one of 3" in lab.ok("show", f"{sid}/3")
    assert "dominated by #3" in lab.ok("show", f"{sid}/4")
    assert "gb <= 3" in lab.ok("show", f"{sid}/8")
    rows = list(csv.DictReader(io.StringIO(lab.ok("results", sid, "-o", "csv"))))
    assert [int(r["trial"]) for r in rows if r["is_front"] == "True"] == sorted(FRONT)
    assert [int(r["trial"]) for r in rows if r["feasible"] == "False"] == [7, 8]
    table = lab.ok("results", sid, "--sort", "ms").splitlines()
    assert table[0].split().count("ms") == 1
    table = lab.ok("results", sid).splitlines()
    assert "ms" in table[0] and "on the front" in table[3] and "infeasible: gb <= 3" in table[8]
    (of_list,) = [one for one in json.loads(lab.ok("ls", "-o", "json")) if one["sweep"] == sid]
    assert of_list["metrics"] == {"acc": "maximize", "ms": "minimize"}
    assert lab.hpq("wait", sid).returncode == 0
    for words in (["summary", sid, _ran(lab, FILE + "seed: 2\n")], ["get", sid, "a.txt"]):
        assert "metrics-several" in ids(lab.hpq(*words).stderr)


def test_python_has_the_front_and_no_single_best(lab, monkeypatch) -> None:
    sid = _ran(lab, FILE)
    for name in ("HPQ_REDIS_URL", "HPQ_HOME", "HPQ_USER"):
        monkeypatch.setenv(name, lab.env[name])
    sweep = hpq.Sweep(sid)
    assert [trial.number for trial in sweep.front()] == FRONT
    assert [trial.number for trial in sweep.front("x < 3")] == [3, 1]
    assert sweep.best(by="ms").number == 1
    with raises("metrics-several", "front()"):
        sweep.best()
    with raises("column-unknown"):
        sweep.best(by="gb")
    with raises("constraints-unmet"):
        sweep.front("x > 3")
    count, share = sweep.hypervolumes()[-1]
    assert count == 6 and 0 < share < 1
    frame = sweep.to_pandas()
    assert sorted(frame[frame.is_front].trial) == sorted(FRONT)
    assert sweep.importance("ms").shares[0].param == "x"


def test_confirm_repeats_the_front_and_best_shows_its_means(lab) -> None:
    sid = _ran(lab, FILE)
    other = lab.ok("best", sid, "-n", 2, "--confirm", 2).strip()
    lab.wait_over(other)
    assert {t.params["x"] for t in lab.reader.trials.all(other)} == {2, 3}
    records = json.loads(lab.ok("best", other, "-o", "json"))
    assert [r["param"]["x"] for r in records] == [3, 2]
    assert [r["replicates"]["trials"] for r in records] == [[1, 2], [3, 4]]
    assert records[0]["last"] == {"acc": pytest.approx(0.3), "gb": 3.0, "ms": 6.0}


def test_a_trial_that_lacks_a_metric_is_no_result(lab) -> None:
    lab.write("prints.py", "x = 1\nprint(f'gb={x}')\nprint(f'acc={x / 10} ms={2 * x}')\n")
    text = FILE.replace("trainer: mine:train\nresident: true", "program: prints.py")
    text = text.replace("[1, 2, 3, 4]", "[1, 2]").replace("values: [0, 1]", "value: 0")
    sid = _ran(lab, text.replace("{name: ms}", "{name: MS}"))
    assert lab.trial(sid).metrics == {"gb": 1, "acc": 0.1, "ms": 2}
    assert lab.hpq("wait", sid).returncode == 1
    for words in (["best", sid], ["wait", sid]):
        done = lab.hpq(*words)
        assert "MS" in done.stderr and "constraints-unmet" not in ids(done.stderr)
    assert "0.1000" in lab.ok("results", sid).splitlines()[1]


def test_of_two_sweeps_best_prints_the_front_of_all(lab) -> None:
    one, two = _ran(lab, FILE), _ran(lab, FILE.replace("y: {values: [0, 1]}", "y: {value: -1}"))
    records = json.loads(lab.ok("best", one, two, "-o", "json"))
    assert [(r["sweep"], r["param"]["x"]) for r in records] == [(two, 3), (two, 2), (two, 1)]


def test_one_metric_ranks_feasible_trials_first_and_says_which_are_not(lab) -> None:
    sid = _ran(lab, ONE.replace("<= 3", ">= 3"))
    assert json.loads(lab.ok("best", sid, "-o", "json"))["trial"] == 5
    assert _numbers(lab.ok("results", sid, "--sort", "objective", "-o", "json"))[:4] == [
        5,
        6,
        7,
        8,
    ]
    assert "4 infeasible (gb >= 3)" in lab.ok("summary", sid)


def test_a_suggested_sweep_ranks_the_trials_that_meet_the_constraint(lab) -> None:
    pytest.importorskip("optuna")
    lab.write("suggested.py", SUGGESTED_PROGRAM)
    sid = lab.enqueue(SUGGESTED)
    lab.wait_over(sid)
    sweep, trials = lab.reader.sweeps.get(sid), list(lab.reader.trials.all(sid))
    assert sweep.counts.finished == 13 and sweep.made["tpe"] == 3
    feasible = {t.id.number for t in trials if t.metrics["gb"] <= 24}
    assert {t.id.number for t in lab.reader.ranking.best(sweep, 13)} == feasible
    assert 0 < len(feasible) < 13
    ends = {e.trial: e.fields for e in lab.reader.events.read(sid) if e.what == "finished"}
    for trial in trials:
        values = [float(text) for text in ends[trial.id.number]["values"].split()]
        assert values == [trial.metrics["acc"], trial.metrics["ms"]]
    assert "Traceback" not in lab.log()
    file = lab.write("again.yaml", SUGGESTED)
    again = lab.ok("enqueue", file, "--new", "--reuse", "--count", "1").strip()
    lab.wait_over(again)
    reused = [e.fields for e in lab.reader.events.read(again) if e.what == "reused"]
    assert len(reused) == 13 and {e["values"] for e in reused} == {
        e["values"] for e in ends.values()
    }
