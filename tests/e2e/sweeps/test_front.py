"""What commands and Python show of several metrics and of constraints."""

from __future__ import annotations

import csv
import io
import json

import pytest

import hpq
from tests.support.desk import Done, run_here
from tests.support.ids import ids, raises

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


def _ran(lab, text: str) -> str:
    lab.write("mine.py", PROGRAM)
    sid = lab.enqueue(text)
    if not lab.workers:
        lab.worker(1)
    lab.wait_over(sid)
    return sid


def _numbers(text: str) -> list[int]:
    return [one["trial"] for one in json.loads(text)]


def _hpq(lab, *words: object) -> Done:
    return run_here(words, lab.code, lab.env)


def _ok(lab, *words: object) -> str:
    done = _hpq(lab, *words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_best_prints_the_front_and_by_picks_one_of_it(lab) -> None:
    sid = _ran(lab, FILE)
    assert _numbers(_ok(lab, "best", sid, "-o", "json")) == FRONT
    assert _numbers(_ok(lab, "best", sid, "-o", "json", "-n", 1)) == [5]
    assert _numbers(_ok(lab, "best", sid, "-o", "json", "--where", "x < 3")) == [3, 1]
    assert json.loads(_ok(lab, "best", sid, "--by", "ms", "-o", "json"))["trial"] == 1
    assert _ok(lab, "best", sid, "--by", "acc", "--args").strip() == "--x=3 --y=0"
    assert _ok(lab, "best", f"{sid}/8", "--args").strip() == "--x=4 --y=1"
    table = _ok(lab, "best", sid, "-n", 2).splitlines()
    assert [line.split()[0] for line in table[1:3]] == ["5", "3"] and len(table) == 5
    assert "1 more" in table[3] and "3 dominated" in table[4] and "2 infeasible" in table[4]
    for words, code in {
        ("--args",): "usage",
        ("--by", "gb"): "column-unknown",
        ("--where", "x > 3"): "constraints-unmet",
        ("--where", "acc == 9"): "no-result",
    }.items():
        done = _hpq(lab, "best", sid, *words)
        assert done.returncode != 0 and code in ids(done.stderr), (words, done.stderr)


def test_summary_show_and_results_say_where_a_trial_is(lab) -> None:
    sid = _ran(lab, FILE)
    record = json.loads(_ok(lab, "summary", sid, "-o", "json"))
    assert [one["trial"] for one in record["ranking"]] == FRONT
    assert (record["front"]["dominated"], record["front"]["infeasible"]) == (3, 2)
    assert record["front"]["hypervolumes"][-1]["trials"] == 6
    assert list(record["importance"]) == list(record["effects"]) == ["acc", "ms"]
    page = _ok(lab, "summary", sid)
    assert "which parameter matters for acc" in page and "which parameter matters for ms" in page
    assert "hypervolume" in page and "really the best" not in page
    assert "one of 3" in _ok(lab, "show", f"{sid}/3")
    assert "dominated by #3" in _ok(lab, "show", f"{sid}/4")
    assert "gb <= 3" in _ok(lab, "show", f"{sid}/8")
    rows = list(csv.DictReader(io.StringIO(_ok(lab, "results", sid, "-o", "csv"))))
    assert [int(r["trial"]) for r in rows if r["is_front"] == "True"] == sorted(FRONT)
    assert [int(r["trial"]) for r in rows if r["feasible"] == "False"] == [7, 8]
    table = _ok(lab, "results", sid, "--sort", "ms").splitlines()
    assert table[0].split().count("ms") == 1
    table = _ok(lab, "results", sid).splitlines()
    assert "ms" in table[0] and "on the front" in table[3] and "infeasible: gb <= 3" in table[8]
    (of_list,) = json.loads(_ok(lab, "ls", "-o", "json"))
    assert of_list["metrics"] == {"acc": "maximize", "ms": "minimize"}
    assert _hpq(lab, "wait", sid).returncode == 0
    for words in (["summary", sid, _ran(lab, FILE + "seed: 2\n")], ["get", sid, "a.txt"]):
        assert "metrics-several" in ids(_hpq(lab, *words).stderr)


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
    other = _ok(lab, "best", sid, "-n", 2, "--confirm", 2).strip()
    lab.wait_over(other)
    assert {t.params["x"] for t in lab.reader.trials.all(other)} == {2, 3}
    records = json.loads(_ok(lab, "best", other, "-o", "json"))
    assert [r["param"]["x"] for r in records] == [3, 2]
    assert [r["replicates"]["trials"] for r in records] == [[1, 2], [3, 4]]
    assert records[0]["last"] == {"acc": pytest.approx(0.3), "gb": 3.0, "ms": 6.0}


def test_a_trial_that_lacks_a_metric_is_no_result(lab) -> None:
    two = FILE.replace("[1, 2, 3, 4]", "[1, 2]").replace("values: [0, 1]", "value: 0")
    sid = _ran(lab, two.replace("{name: ms}", "{name: MS}"))
    assert _hpq(lab, "wait", sid).returncode == 1
    for words in (["best", sid], ["wait", sid]):
        done = _hpq(lab, *words)
        assert "MS" in done.stderr and "constraints-unmet" not in ids(done.stderr)
    assert "0.1000" in _ok(lab, "results", sid).splitlines()[1]


def test_of_two_sweeps_best_prints_the_front_of_all(lab) -> None:
    one, two = _ran(lab, FILE), _ran(lab, FILE.replace("y: {values: [0, 1]}", "y: {value: -1}"))
    records = json.loads(_ok(lab, "best", one, two, "-o", "json"))
    assert [(r["sweep"], r["param"]["x"]) for r in records] == [(two, 3), (two, 2), (two, 1)]


def test_one_metric_ranks_feasible_trials_first_and_says_which_are_not(lab) -> None:
    sid = _ran(lab, ONE.replace("<= 3", ">= 3"))
    assert json.loads(_ok(lab, "best", sid, "-o", "json"))["trial"] == 5
    assert _numbers(_ok(lab, "results", sid, "--sort", "objective", "-o", "json"))[:4] == [
        5,
        6,
        7,
        8,
    ]
    assert "4 infeasible (gb >= 3)" in _ok(lab, "summary", sid)
