"""examples/agent: a scripted agent, a real client of `hpq mcp`, adds trials beside TPE."""

from __future__ import annotations

import asyncio
import json
import re
import runpy
import shutil
import subprocess
import sys
from types import SimpleNamespace

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


class Ended:
    """A client whose sweep has ended whenever no added trial is open; adds open it again."""

    def __init__(self) -> None:
        self.open = 0
        self.last = 0
        self.calls: list[tuple[str, int]] = []  # and how many trials were open

    async def call_tool(self, tool: str, arguments: dict[str, object]) -> SimpleNamespace:
        self.calls.append((tool, self.open))
        trial = {"trial": 1, "objective": 0.1, "param": {"lr": 0.1, "momentum": 0.5}}
        found: dict[str, object] = {"trials": [trial], "verdict": "", "sweep": "a-1"}
        if tool == "add":
            self.open = 2
            self.last += 2
            found = {"added": [self.last - 1, self.last]}
        elif tool == "status":
            state = "running" if self.open else "finished"
            found = {"cursor": "", "state": state, "finished": self.last - self.open}
            self.open = 0
        text = json.dumps(found)
        return SimpleNamespace(content=[SimpleNamespace(text=text)], is_error=False)


def test_an_agent_names_the_winner_after_its_last_trials() -> None:
    pytest.importorskip("mcp")
    client = Ended()
    path = ROOT / "examples" / "agent" / "agent.py"
    asyncio.run(runpy.run_path(str(path))["search"](client))
    assert client.last == 12 and client.calls[-1] == ("best", 0)
