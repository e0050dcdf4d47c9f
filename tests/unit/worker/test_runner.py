"""The runner as its parent sees it: a real process, without a server."""

from __future__ import annotations

import json
import os
import select
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpq_worker.process.protocol import RunRequest
from hpq_worker.runner.runner_process import RunnerKey, RunnerProcess
from tests.support.constants import DEADLINE_S

MINE = """
    import os, sys, threading
    first = {}

    def train(params, trial):
        does = params.get("does")
        if does == "goes on":
            first["trial"] = trial
        if does == "is disturbed":
            first["trial"].report({"late": 1})
        if does == "forks" and os.fork() == 0:
            return {"child": 1}
        if does == "spoils":
            os.chdir("/")
            sys.stdout.close()
            os.close(2)
        if does == "looks":
            print("printed")
            print("complained", file=sys.stderr)
            trial.phase(os.getcwd())
        if does == "is late":
            first["trial"].checkpoint_dir
        if does == "keeps":
            (trial.checkpoint_dir / "state").write_text("s")
            trial.save(trial.checkpoint_dir / "state")
        return {"x": params["x"]}
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[RunnerProcess]:
    (tmp_path / "mine.py").write_text(textwrap.dedent(MINE))
    key = RunnerKey(trainer="mine:train", code="", code_dir=str(tmp_path))
    child = RunnerProcess(key, os.environ, str(tmp_path))
    yield child
    child.close()


def messages(child: RunnerProcess, run: RunRequest) -> list[dict[str, Any]]:
    """All that the runner says of one attempt."""
    child.run(run)
    said: list[dict[str, Any]] = []
    while not said or "end" not in said[-1]:
        assert select.select([child.answers], [], [], DEADLINE_S)[0], "the runner says nothing"
        said += [json.loads(line) for line in child.lines.feed(os.read(child.answers, 65_536))]
    return said


def attempt(
    child: RunnerProcess, number: int, out: str = "", checkpoint: str = "", **params: str
) -> list[dict[str, Any]]:
    """All that the runner says of one attempt, but for its name."""
    run = RunRequest(
        out=out,
        checkpoint=checkpoint,
        trial=f"s/{number}",
        attempt=1,
        params={"x": number, **params},
        trainer=child.key.trainer,
        code_dir=child.key.code_dir,
    )
    return messages(child, run)


def reports(said: list[dict[str, Any]], of: str) -> list[dict[str, float]]:
    return [message["report"] for message in said if "report" in message and message["of"] == of]


def test_a_resident_runner_says_that_it_imports_only_when_it_does(child: RunnerProcess) -> None:
    def phases(number: int) -> list[str]:
        return [m["phase"] for m in attempt(child, number) if "phase" in m]

    assert phases(1) == ["importing mine:train"]
    assert phases(2) == []


def test_what_an_earlier_attempt_still_reports_carries_its_own_name(child: RunnerProcess) -> None:
    attempt(child, 1, does="goes on")
    said = attempt(child, 2, does="is disturbed")
    assert reports(said, "s/1/1") == [{"late": 1.0}]
    assert reports(said, "s/2/1") == [{"x": 2.0}]


def test_a_forked_child_that_comes_back_from_the_trainer_reports_nothing(
    child: RunnerProcess,
) -> None:
    said = attempt(child, 1, does="forks") + attempt(child, 2)
    assert sum("end" in message for message in said) == 2
    assert [m["report"] for m in said if "report" in m] == [{"x": 1.0}, {"x": 2.0}]


def test_what_one_attempt_spoils_is_whole_for_the_next(
    child: RunnerProcess, tmp_path: Path
) -> None:
    attempt(child, 1, does="spoils")
    said = attempt(child, 2, does="looks")
    assert [m["phase"] for m in said if "phase" in m] == [str(tmp_path)]
    assert said[-1]["end"]["failure"] is None
    printed = os.read(child.output, 65_536).decode()
    assert "printed" in printed and "complained" in printed


def test_only_a_trainer_that_keeps_files_makes_directories_and_they_are_private(
    child: RunnerProcess, tmp_path: Path
) -> None:
    work = tmp_path / "attempt"
    folders = {name: str(work / name) for name in ("out", "checkpoint")}
    attempt(child, 1, **folders, does="goes on")
    attempt(child, 2, **folders, does="is late")
    assert not work.exists()
    (tmp_path / "attempt.lock").touch()  # its worker holds it until it has removed the directories
    attempt(child, 3, **folders, does="keeps")
    assert (work / "out" / "state").read_text() == "s" and work.stat().st_mode & 0o777 == 0o700


def test_a_runner_that_cannot_start_leaves_no_descriptor_open(tmp_path: Path) -> None:
    key = RunnerKey(trainer="", code="", code_dir="")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        with pytest.raises(FileNotFoundError):
            RunnerProcess(key, dict(os.environ), str(tmp_path / "gone"))
    assert len(os.listdir("/proc/self/fd")) == before
