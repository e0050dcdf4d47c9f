"""A sweep of two metrics with a constraint, as its user runs it."""

from __future__ import annotations

import pytest

from hpq_producer.audit.sweep_audit import audit_sweep

pytest.importorskip("optuna")

WEIGHED = """
program: weighed.py
method: bayes
sampler: tpe
run_cap: 13
metrics: [{name: acc, goal: maximize}, {name: ms, goal: minimize}]
constraints: [gb <= 24]
parameters: {x: {distribution: uniform, min: 0.0, max: 1.0}}
"""
# The memory is reported once, before the value of each epoch.
PROGRAM = """
import sys
x = float(sys.argv[1].partition("=")[2])
print(f"gb={48 * x}")
for epoch in (1, 2):
    print(f"epoch={epoch} acc={x * epoch} ms={10 * x}")
"""


def test_a_sweep_of_two_metrics_ranks_the_trials_that_meet_the_constraint(lab) -> None:
    lab.write("weighed.py", PROGRAM)
    sid = lab.enqueue(WEIGHED)
    lab.worker()
    lab.wait_over(sid)
    sweep, trials = lab.reader.sweeps.get(sid), list(lab.reader.trials.all(sid))
    assert sweep.counts.finished == 13 and sweep.made["tpe"] == 3
    feasible = {t.id.number for t in trials if t.metrics["gb"] <= 24}
    assert {t.id.number for t in lab.reader.trials.best(sweep, 13)} == feasible
    assert 0 < len(feasible) < 13
    ends = {e.trial: e.fields for e in lab.reader.events.read(sid) if e.what == "finished"}
    for trial in trials:
        values = [float(text) for text in ends[trial.id.number]["values"].split()]
        assert values == [trial.metrics["acc"], trial.metrics["ms"]]
    assert not audit_sweep(lab.reader, sid).violations
    assert "Traceback" not in lab.log()
    again = lab.ok("enqueue", lab.code / "sweep-1.yaml", "--new", "--reuse", "--count", "1").strip()
    lab.wait_over(again)
    reused = [e.fields for e in lab.reader.events.read(again) if e.what == "reused"]
    assert len(reused) == 13 and {e["values"] for e in reused} == {
        e["values"] for e in ends.values()
    }
    assert not audit_sweep(lab.reader, again).violations
