"""`hpq run` is told to end or interrupted, or its server is killed: what ends, what goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from hpq.domain.trial import TrialState
from tests.support.commands import HPQ
from tests.support.disk import small_disk
from tests.support.ids import ids
from tests.support.lab import STEERED, Lab

SWEEP = (
    "trainer: steered:train\nmethod: grid\nmetric: {name: loss}\n"
    "parameters: {x: {values: [1, 2, 3]}}\n"
)
STUBBORN = """
    import signal, time
    from pathlib import Path
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path("began").write_text("")
    while True:
        time.sleep(0.05)
"""

StartRun = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def start_run(lab: Lab) -> StartRun:
    """Starts `hpq run` of a sweep file's text; the lab's end sees to what is left of it."""

    def start(text: str, *flags: str, private: bool = False) -> subprocess.Popen[bytes]:
        lab.write("steered.py", STEERED)
        path = lab.write("run.yaml", text)
        env = lab.env | ({"HPQ_REDIS_URL": ""} if private else {})
        with (lab.folder / "said").open("wb") as out:
            process = subprocess.Popen(
                [HPQ, "run", str(path), *flags],
                cwd=lab.code,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
            )
        lab.workers.append(process)
        return process

    return start


def said(lab: Lab) -> str:
    """What the run has printed."""
    return (lab.folder / "said").read_text("utf-8")


def test_a_run_that_is_told_to_end_takes_its_private_server_with_it(
    lab: Lab, start_run: StartRun
) -> None:
    run = start_run(SWEEP, "--workers", "1", private=True)
    lab.wait_for("began-1-1")
    run.send_signal(signal.SIGTERM)
    run.wait()
    lab.wait_for_no_process()


@pytest.mark.parametrize("killed", [("server_pid",), ("keeper_pid", "server_pid")])
def test_a_run_goes_on_when_its_private_server_is_killed(
    lab: Lab, start_run: StartRun, killed: tuple[str, ...]
) -> None:
    """F9: kill -9 of the private server of `hpq run`, and of the process that restarts it."""
    run = start_run(SWEEP, "--workers", "1", private=True)
    lab.wait_for("began-1-1")
    record = json.loads((lab.home / "server.json").read_text("utf-8"))
    for pid in killed:
        os.kill(record[pid], signal.SIGKILL)
    lab.go()
    assert run.wait() == 0, said(lab)
    assert "3 finished" in said(lab)


@pytest.mark.slow
def test_a_run_goes_on_when_the_full_disk_of_its_workers_has_space(
    lab: Lab, start_run: StartRun
) -> None:
    lab.go()
    lab.env["HPQ_SCRATCH"] = str(lab.folder / "scratch")
    with small_disk(lab.folder / "scratch", "1m") as disk:
        disk.fill()
        run = start_run(SWEEP, "--workers", "1", private=True)
        lab.wait_until(lambda: "disk-full" in ids(said(lab)), "a trial that cannot start")
        disk.free()
        assert run.wait() == 0, said(lab)
        assert "3 finished" in said(lab)


def test_ctrl_c_twice_gives_the_trials_back_at_once(lab: Lab, start_run: StartRun) -> None:
    lab.write("stubborn.py", STUBBORN)
    lab.env["HPQ_GRACE_S"] = "3600"
    run = start_run("program: stubborn.py\nmethod: grid\n"
                    "parameters: {x: {values: [1, 2]}}\n", "--workers", "1")  # fmt: skip
    lab.wait_for("began")
    (sid,) = lab.reader.sweeps.ids()
    run.send_signal(signal.SIGINT)
    lab.wait_until(lambda: "Ctrl-C again" in said(lab), "the offer to end at once")
    run.send_signal(signal.SIGINT)
    assert run.wait() == 130
    lab.wait_for_no_process()
    assert lab.trial(sid).state is TrialState.QUEUED
