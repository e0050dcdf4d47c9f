"""SIGSTOP of each process for good: what waits for it goes on, and no process is left."""

from __future__ import annotations

import fcntl
import os
import pty
import random
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hpq.domain.trial import TrialState
from tests.chaos import KINDS, PROCESSES, Chaos, Plan
from tests.support.constants import DEADLINE_S

SWEEP_OF = {"suggester": "bayes", "preload server": "program"}
SUPERVISOR = r"-P -m hpq_worker "
AGENT = """
    import sys, time
    from pathlib import Path
    import hpq

    def train(params, trial):
        Path("began").touch()
        while not Path("go").exists():
            time.sleep(0.01)
        for step in range(int(sys.argv[1])):
            trial.report({"loss": 1.0}, step=step)
        return {"loss": params["x"]}

    space = {"method": "grid", "metric": {"name": "loss"}, "parameters": {"x": {"values": [1, 2]}}}
    hpq.agent(hpq.enqueue(space), train)
"""


def stop(lab, pattern: str, rng: random.Random | None = None) -> int:
    """Wait for a process of a kind that lives; stop it, or one of several; return its pid."""
    stopped: list[int] = []

    def has_stopped() -> bool:
        if living := sorted(lab.processes(pattern)):
            pid = (rng or random).choice(living)
            with suppress(ProcessLookupError):  # it has ended since
                os.kill(pid, signal.SIGSTOP)
                stopped.append(pid)
        return bool(stopped)

    lab.wait_until(has_stopped, f"a process {pattern}")
    return stopped[0]


@pytest.fixture
def start(lab) -> Iterator:
    """Start a command of a user; no test leaves one behind."""
    started: list[subprocess.Popen[bytes]] = []

    def run(*words: object, **env: str) -> subprocess.Popen[bytes]:
        started.append(
            subprocess.Popen(
                [*map(str, words)], cwd=lab.code, env=lab.env | env, stdin=subprocess.DEVNULL
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_suggester_that_is_stopped_is_replaced_beside_the_only_worker(lab, short_lease) -> None:
    pytest.importorskip("optuna")
    lab.write("quick.py", "def train(params, trial):\n    return {'loss': params['x']}\n")
    sid = lab.enqueue(
        "trainer: quick:train\nresident: true\nmethod: bayes\nsampler: tpe\nmetric: {name: loss}\n"
        "run_cap: 1\nparameters: {x: {min: 0.0, max: 1.0}}\n"
    )
    lab.worker()
    stop(lab, r"-m hpq_worker\.suggest")
    lab.wait_over(sid)


def test_a_program_ends_if_the_server_that_forked_it_is_stopped(lab) -> None:
    lab.write(
        "train.py",
        """
        import time
        from pathlib import Path
        Path("began").touch()
        while not Path("go").exists():
            time.sleep(0.01)
        print("loss=1")
        """,
    )
    sid = lab.enqueue(
        "program: train.py\npreload: [json]\nmethod: grid\nmetric: {name: loss}\n"
        "parameters: {x: {values: [1, 2]}}\n"
    )
    lab.worker()
    lab.wait_for("began")
    server = min(lab.processes(r"preload_server\.py"))
    os.kill(server, signal.SIGSTOP)
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "finished"]


@pytest.mark.parametrize("reports", [0, 5_000], ids=["it reads", "it writes to a full pipe"])
def test_an_agent_goes_on_if_its_worker_process_is_stopped(lab, start, reports) -> None:
    lab.write("agent.py", AGENT)
    agent = start(sys.executable, "agent.py", reports)
    lab.wait_for("began")
    stop(lab, r"-m hpq_worker\.consumer")
    lab.go()
    assert agent.wait(DEADLINE_S) == 0
    (sid,) = lab.reader.sweeps.ids()
    lab.audit(sid)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1])
@pytest.mark.parametrize("kind", PROCESSES)
def test_a_process_that_is_stopped_at_any_point_loses_no_trial_and_does_not_stay(
    lab, kind, seed
) -> None:
    """F4: SIGSTOP of one process of each kind for good, at a random point of a sweep."""
    rng = random.Random(f"{kind} {seed}")
    chaos = Chaos(lab, Plan(seed=seed, trial_s=0.2), print)
    chaos.write_programs()
    sid = lab.enqueue(KINDS[SWEEP_OF.get(kind, "trainer")](12) + "stall: 20\n")
    lab.worker()
    lab.worker()
    at = rng.randint(0, 12)
    lab.wait_until(lambda: len(lab.reader.events.read(sid)) > at, f"event {at}")
    stopped = stop(lab, PROCESSES[kind], rng)
    lab.wait_over(sid)
    chaos.check(kind, sid, 12)
    for worker in lab.workers:
        worker.terminate()
    if stopped in {worker.pid for worker in lab.workers}:
        os.kill(stopped, signal.SIGCONT)
    lab.wait_until(lambda: not lab.processes(), "the end of all processes")


def test_a_machine_that_was_suspended_loses_no_result_and_charges_no_trial(lab) -> None:
    """F4: all processes and Redis stop for longer than a lease, and continue in any order."""
    lab.env["HPQ_LEASE_S"], lab.env["HPQ_LOST_MAX"] = "2", "1"
    sid = lab.steered(2)
    lab.worker(2)
    lab.wait_for("began-1-1")
    lab.wait_for("began-2-1")
    suspended = [*lab.processes()]
    for pid in suspended:
        os.kill(pid, signal.SIGSTOP)
    lab.server.freeze()
    until = time.monotonic() + 3.0
    lab.wait_until(lambda: time.monotonic() > until, "the end of all leases")
    lab.server.thaw()
    for pid in suspended:
        os.kill(pid, signal.SIGCONT)
    lab.go()
    lab.wait_over(sid)
    assert {t.state for t in lab.reader.trials.all(sid)} == {TrialState.FINISHED}


@pytest.mark.slow
@pytest.mark.parametrize("words", ["run sweep-1.yaml --workers 1", "worker --workers 1"])
def test_ctrl_z_and_fg_in_a_terminal_cost_no_attempt(lab, short_lease, words) -> None:
    """F4: the shell stops `hpq run` or `hpq worker` for longer than two leases."""
    sid = lab.steered(1)
    reader, terminal = pty.openpty()
    shell = subprocess.Popen(
        ["bash", "--norc", "-i"], cwd=lab.code, env=lab.env, stdin=terminal, stdout=terminal,
        stderr=terminal, start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
    )  # fmt: skip
    os.close(terminal)
    os.write(reader, f"hpq {words} >out 2>&1\n".encode())
    lab.wait_for("began-1-1")
    os.write(reader, b"\x1a")
    (stopped,) = lab.processes(rf"(hpq|hpq_worker) (run|{words})|-m hpq_worker --workers")
    status = Path(f"/proc/{stopped}/status")
    lab.wait_until(lambda: "State:\tT" in status.read_text("utf-8"), "the stop")
    beyond_ms = lab.trial(sid).beat_ms + 2000 * short_lease
    lab.wait_until(lambda: lab.trial(sid).beat_ms > beyond_ms, "beats beyond two leases")
    os.write(reader, b"fg\n")
    lab.wait_until(lambda: "State:\tT" not in status.read_text("utf-8"), "the continuation")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "finished"]
    if words.startswith("worker"):
        os.write(reader, b"\x03")
    lab.wait_until(lambda: not lab.processes("hpq"), "the end of all of hpq")
    os.write(reader, b"exit\n")
    assert shell.wait(DEADLINE_S) in (0, 130)
    os.close(reader)
