"""The runner as its parent sees it: a real process, without a server."""

from __future__ import annotations

import json
import os
import select
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from worker.child import Child, RunnerKey
from worker.messages import Run

DEADLINE_S = 30.0


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Child]:
    (tmp_path / "mine.py").write_text("def train(params, trial):\n    return {'x': params['x']}\n")
    key = RunnerKey(trainer="mine:train", code="", code_dir=str(tmp_path))
    child = Child(key, os.environ, str(tmp_path))
    yield child
    child.close()


def messages(child: Child, run: Run) -> list[dict[str, Any]]:
    """All that the runner says of one attempt."""
    child.run(run)
    said: list[dict[str, Any]] = []
    while not said or "end" not in said[-1]:
        assert select.select([child.answers], [], [], DEADLINE_S)[0], "the runner says nothing"
        said += [json.loads(line) for line in child.lines.feed(os.read(child.answers, 65_536))]
    return said


def test_a_resident_runner_says_that_it_imports_only_when_it_does(child: Child) -> None:
    def phases(number: int) -> list[str]:
        run = Run(
            trial=f"s/{number}",
            attempt=1,
            params={"x": number},
            trainer=child.key.trainer,
            code_dir=child.key.code_dir,
        )
        said = messages(child, run)
        assert {"report": {"x": number}, "step": None} in said
        return [message["phase"] for message in said if "phase" in message]

    assert phases(1) == ["importing mine:train"]
    assert phases(2) == []
