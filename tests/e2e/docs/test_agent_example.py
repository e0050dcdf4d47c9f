"""examples/agent: a scripted agent, a real client of `hpq mcp`, adds trials beside TPE."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.constants import DEADLINE_S, ROOT


def test_an_agent_adds_trials_beside_tpe_and_ends_with_the_verdict(lab) -> None:
    pytest.importorskip("mcp")
    pytest.importorskip("optuna")
    folder = lab.code / "agent"
    shutil.copytree(ROOT / "examples" / "agent", folder)
    lab.worker(2)
    done = subprocess.run(
        [sys.executable, "agent.py"],
        cwd=folder,
        env=lab.env,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (sid,) = lab.reader.sweeps.ids()
    sweep = lab.reader.sweeps.get(sid)
    assert (sweep.counts.total, sweep.counts.finished) == (40, 40), done.stdout
    trials = list(lab.reader.trials.all(sid))
    assert len({str(trial.params) for trial in trials}) == 20
    told = re.findall(r"added \[(\d+), (\d+)\]", done.stdout)
    mine = {int(number) for pair in told for number in pair}
    added = {e.trial for e in lab.reader.events.read(sid) if e.what == "added"}
    assert len(mine) == 12 and added == set(sorted(mine)[::2]) and sum(sweep.made.values()) == 28
    last = done.stdout.splitlines()[-1]
    assert last.startswith("verdict: ") and last != "verdict: None", done.stdout
    assert audit_sweep(lab.reader, sid).violations == ()
