"""A process of a worker, of its fleet or of its trial is killed, stopped or told to stop.

Three tables: the trial runs again, it returns to the queue, or it trains on. Victims are named from
the trial upwards: its program, the runner, the worker that holds it, the supervisor of the fleet.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from hpq.domain.sweep import SweepState
from hpq.domain.trial import TrialState
from hpq_worker.process.config import WorkerConfig, start
from hpq_worker.process.process_tree import descendants
from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids
from tests.support.lab import Lab

pytestmark = pytest.mark.slow
KILL, TERM, STOP, CONT, HUP = (
    signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP, signal.SIGCONT, signal.SIGHUP,
)  # fmt: skip
NEVER = {"HPQ_LEASE_S": "3600"}  # no lease ends while a test waits
SHORT = {"HPQ_LEASE_S": "4"}
SWEEP = "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}\n"
# It has a child in a session of its own, as torchrun's ranks are, and ends by SIGTERM, in peace or
# not at all.
PROGRAM = """
    import os, signal, subprocess, sys, time
    from pathlib import Path

    mark = os.environ["HPQ_TRIAL_ID"].partition("/")[2] + "-" + os.environ["HPQ_ATTEMPT"]
    below = f"import os, signal, time; os.setsid(); open('below-{mark}', 'w').close()"
    if "ON_TERM" == "exits":
        signal.signal(signal.SIGTERM, lambda *_: (Path("told").touch(), sys.exit(0)))
    if "ON_TERM" == "is deaf":
        signal.signal(signal.SIGTERM, lambda *_: Path("told").touch())
        below += "; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
    subprocess.Popen([sys.executable, "-c", below + "; time.sleep(1000)"])
    while not Path(f"below-{mark}").exists():
        time.sleep(0.01)
    print("loss=2", flush=True)
    Path(f"began-{mark}").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    print("loss=1")
"""
LOST = ["claimed", "requeued", "claimed", "finished"]
_SEIZE, _INTERRUPT, _ANY_THREAD = 0x4206, 0x4207, 0x40000000


def freeze(pid: int) -> None:
    """Stop the main thread of a process; its other threads go on."""
    if sys.platform != "linux":
        pytest.skip("ptrace is Linux's")
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long] * 4
    for request in (_SEIZE, _INTERRUPT):
        assert ptrace(request, pid, 0, 0) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, _ANY_THREAD)


def has_ended(pid: int) -> bool:
    """True once a process is gone; the parent of a frozen one learns it from the same call."""
    try:
        return os.waitpid(pid, _ANY_THREAD | os.WNOHANG)[0] == pid
    except ChildProcessError:
        return not Path(f"/proc/{pid}").exists()


Blow = tuple[signal.Signals | Callable[[int], None], str]  # and the names of victims


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is done to a fleet whose worker runs trial 1 of 2, and in which environment."""

    blows: Sequence[Blow]
    on_term: str = "dies"
    env: Mapping[str, str] = field(default_factory=dict)
    is_trainer: bool = False
    beside: bool = False  # another fleet runs trial 2 meanwhile
    another: bool = False  # another fleet starts after the blows
    reason: str = "stopping"  # for which the trial is requeued
    logs: str = ""  # what the fleet logs of it
    exits: int | None = 0  # the exit code of what was started; None: any


class Stage:
    """A sweep of two trials, of which a fleet runs the first."""

    def __init__(self, lab: Lab, case: Case) -> None:
        self.lab, self.case = lab, case
        lab.env |= case.env
        if case.is_trainer:
            self.sid = lab.steered(2)
        else:
            lab.write("train.py", PROGRAM.replace("ON_TERM", case.on_term))
            self.sid = lab.enqueue(SWEEP)
        is_run = any(names == "run" for _, names in case.blows)
        self.fleet = self.run() if is_run else lab.worker()
        lab.wait_for("began-1-1")
        if not case.is_trainer:
            lab.wait_until(lambda: "loss=2" in lab.printed(self.sid), "its first report")
        self.first = set(lab.processes())
        worker = int(lab.trial(self.sid).worker.split("-")[-2])
        runner = set(lab.processes(r"-m hpq_worker\.runner")) & set(descendants(worker))
        supervisor = set(lab.processes(r"hpq worker |-m hpq_worker ")) & self.first
        self.victims = {
            "worker": {worker}, "runner": runner, "supervisor": supervisor, "all": self.first,
            "run": {self.fleet.pid},
        }  # fmt: skip
        if case.beside:
            lab.worker()
            lab.wait_for("began-2-1")

    def run(self) -> subprocess.Popen[bytes]:
        """Start `hpq run` of the sweep."""
        words = [HPQ, "run", self.sid, "--workers", "1"]
        with (self.lab.folder / "said").open("wb") as out:
            process = subprocess.Popen(
                words, cwd=self.lab.code, env=self.lab.env, stdin=subprocess.DEVNULL,
                stdout=out, stderr=out,
            )  # fmt: skip
        self.lab.workers.append(process)
        return process

    def strike(self) -> None:
        """Deal the blows, each to all its victims at once, those below first."""
        for n, (how, names) in enumerate(self.case.blows):
            if n and self.case.on_term == "is deaf":
                self.lab.wait_for("told")
            doomed = {pid for name in names.split(" and ") for pid in self.victims[name]}
            assert doomed
            if how == KILL:
                self.lab.kill(doomed)
                continue
            # Stopped first: else a program that ends in peace may be gone before its runner has
            # the signal, and nobody could tell that it did not end by itself.
            at_once = names == "all"
            for pid in doomed if at_once else ():
                os.kill(pid, STOP)
            for pid in sorted(doomed, reverse=True):
                how(pid) if callable(how) else os.kill(pid, how)
            for pid in sorted(doomed, reverse=True) if at_once else ():
                os.kill(pid, CONT)

    def finish(self) -> None:
        """Let all trials end; assert that the first has run twice, and the second once."""
        lab, sid = self.lab, self.sid
        lab.go()
        lab.wait_over(sid)
        assert (lab.events(sid), lab.events(sid, 2)) == (LOST, ["claimed", "finished"])
        requeued = next(e for e in lab.reader.events.read(sid) if e.what == "requeued")
        assert requeued.fields["reason"] == self.case.reason
        assert not lab.processes("time.sleep")


AGAIN = {
    "a worker is killed": Case(
        blows=[(KILL, "worker")], env=NEVER, beside=True, reason="lost", logs="worker-ended"
    ),
    "a runner is killed": Case(blows=[(KILL, "runner")], reason="killed"),
    "a trainer's runner is killed": Case(
        blows=[(KILL, "runner")], is_trainer=True, reason="killed"
    ),
    "a runner and its worker are killed": Case(
        blows=[(KILL, "runner and worker")], env=NEVER, reason="lost"
    ),
    "all of a fleet is killed": Case(
        blows=[(KILL, "all")], env=NEVER, beside=True, another=True, reason="lost", exits=-KILL
    ),
    "a worker is stopped for good": Case(blows=[(STOP, "worker")], env=SHORT, reason="lost"),
    "the main thread of a worker hangs": Case(
        blows=[(freeze, "worker")], env={**SHORT, "HPQ_GRACE_S": "2"}, another=True,
        reason="lost", logs="worker-fault worker-ended",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", AGAIN.values(), ids=AGAIN)
def test_a_trial_runs_again_and_nothing_of_its_first_attempt_is_left(lab, case: Case) -> None:
    """F1, F2, F3, F4, R14: kill -9 and SIGSTOP of a runner, a worker or a fleet; a worker hangs."""
    stage = Stage(lab, case)
    stage.strike()
    (worker,) = stage.victims["worker"]
    # Before the next attempt: a supervisor learns of the end of a frozen worker by this call alone.
    lab.wait_until(lambda: case.reason == "killed" or has_ended(worker), "the end of the worker")
    if case.another:
        lab.worker()
    lab.wait_for("began-1-2")
    below = stage.first - stage.victims["supervisor"] - {worker}
    lab.wait_until(lambda: not below & set(lab.processes()), "the end of all below it")
    lab.wait_until(lambda: set(case.logs.split()) <= set(ids(lab.log(0))), case.logs)
    stage.finish()
    assert case.is_trainer or "training-restarted" in ids(lab.printed(stage.sid))
    if case.exits == 0:
        stage.fleet.terminate()
    assert stage.fleet.wait(DEADLINE_S) == case.exits


def test_a_worker_that_was_frozen_past_its_lease_commits_nothing(lab) -> None:
    """F4, R6: SIGSTOP of the worker past its lease, then SIGCONT; the other attempt counts."""
    stage = Stage(lab, Case(blows=[(STOP, "worker")], reason="lost"))
    stage.strike()
    lab.worker()
    lab.end_lease(stage.sid)
    lab.wait_for("began-1-2")
    programs = stage.first & set(lab.processes(r"train\.py|time\.sleep"))
    assert len(programs) == 2
    for frozen in stage.victims["worker"]:
        os.kill(frozen, CONT)
    lab.wait_until(lambda: not programs & set(lab.processes()), "the end of the first attempt")
    stage.finish()
    lab.wait_until(lambda: "attempt-lost" in ids(lab.log(0)), "the first worker's line")


ENDS = {
    "SIGTERM, and the program ends in peace": Case(blows=[(TERM, "supervisor")], on_term="exits"),
    "SIGTERM to all processes of a job": Case(blows=[(TERM, "all")]),
    "SIGTERM to all, and the program ends in peace": Case(blows=[(TERM, "all")], on_term="exits"),
    "SIGTERM to all of a trainer": Case(blows=[(TERM, "all")], is_trainer=True),
    "SIGTERM, and the program and its child are deaf": Case(
        blows=[(TERM, "supervisor")], on_term="is deaf", env={"HPQ_GRACE_S": "12"}
    ),
    "SIGTERM twice, and an hour of grace for the deaf": Case(
        blows=[(TERM, "supervisor")] * 2, on_term="is deaf", env={"HPQ_GRACE_S": "3600"}
    ),
    "SIGTERM, and the worker is stopped": Case(
        blows=[(STOP, "worker"), (TERM, "supervisor")], env={"HPQ_GRACE_S": "1"},
        reason="lost", exits=None,
    ),
    "SIGKILL of the supervisor": Case(blows=[(KILL, "supervisor")], exits=-KILL),
    "SIGKILL of the supervisor, and the worker is stopped": Case(
        blows=[(STOP, "worker"), (KILL, "supervisor")], exits=-KILL
    ),
    "SIGKILL of the supervisor, and the worker hangs": Case(
        blows=[(freeze, "worker"), (KILL, "supervisor")], env={"HPQ_GRACE_S": "1"},
        reason="lost", exits=-KILL,
    ),
    "SIGTERM of `hpq run`": Case(blows=[(TERM, "run")], exits=128 + TERM),
    "SIGHUP of `hpq run`": Case(blows=[(HUP, "run")], exits=128 + HUP),
    "SIGKILL of `hpq run`": Case(blows=[(KILL, "run")], exits=-KILL),
    "SIGTERM of `hpq run`, and its supervisor is stopped": Case(
        blows=[(STOP, "supervisor"), (TERM, "run")], env={"HPQ_GRACE_S": "2"}, exits=None
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS.values(), ids=ENDS)
def test_a_fleet_ends_and_its_trial_is_the_next_that_runs_uncharged(lab, case: Case) -> None:
    """F3, F5, F6, F7, F8, R8: SIGTERM and kill -9 of a fleet or of `hpq run`; deaf programs."""
    stage = Stage(lab, case)
    stage.strike()
    code = stage.fleet.wait(DEADLINE_S)
    assert case.exits in (code, None), (code, lab.log())
    (worker,) = stage.victims["worker"]
    lab.wait_until(lambda: has_ended(worker) and not lab.processes(), "the end of all processes")
    if case.reason == "stopping":
        assert lab.events(stage.sid) == LOST[:2], lab.log()
        assert lab.reader.sweeps.get(stage.sid).counts.queued == 2
        assert lab.reader.workers.live() == []
    assert (lab.code / "told").exists() is (case.on_term != "dies")
    assert not case.is_trainer or "told to stop" in lab.printed(stage.sid)
    lab.worker()
    lab.wait_for("began-1-2")
    assert lab.trial(stage.sid, 2).attempt == 0
    stage.finish()


@pytest.mark.parametrize("victim", ["runner", "supervisor"])
def test_a_process_that_is_stopped_past_two_leases_costs_no_attempt(lab, victim: str) -> None:
    """F4: SIGSTOP of the runner alone, or of the supervisor, as by Ctrl-Z; the worker beats on."""
    stage = Stage(lab, Case(blows=[(STOP, victim)], env=SHORT))
    stage.strike()
    beyond_ms = lab.trial(stage.sid).claimed_ms + 2000 * float(SHORT["HPQ_LEASE_S"])
    lab.wait_until(lambda: lab.trial(stage.sid).beat_ms > beyond_ms, "beats beyond two leases")
    for runner in stage.victims["runner"]:
        os.kill(runner, CONT)
    lab.go()
    lab.wait_over(stage.sid)
    assert [lab.events(stage.sid, n) for n in (1, 2)] == [["claimed", "finished"]] * 2
    stage.fleet.terminate()
    stage.fleet.send_signal(CONT)
    assert stage.fleet.wait(DEADLINE_S) == 0 and not lab.processes("hpq_worker")


def test_an_idle_worker_told_to_stop_goes_at_once(lab) -> None:
    """F5: SIGTERM while it waits for a ticket."""
    fleet = lab.worker(2)
    lab.wait_until(lambda: len(lab.reader.workers.live()) == 2, "two workers")
    fleet.terminate()
    assert fleet.wait() == 0
    assert lab.reader.workers.live() == [] and not lab.processes()
    assert "Traceback" not in lab.log()


def test_a_worker_told_to_stop_at_any_moment_goes(lab) -> None:
    """F5: SIGTERM also while it starts, between two trials and in the midst of a commit."""
    lab.write("quick.py", "def train(params, trial):\n    return {'loss': params['x']}\n")
    sid = lab.enqueue(
        "trainer: quick:train\nresident: true\nmethod: grid\nmetric: {name: loss}\n"
        f"parameters: {{x: {{values: {list(range(1, 4001))}}}}}\n"
    )
    for ended in (0, 1, 7, 20, 50):
        fleet = lab.worker()
        lab.wait_until(
            lambda n=ended: (
                lab.processes(r"-m hpq_worker\.consumer")
                and lab.reader.sweeps.get(sid).counts.ended >= n
            ),
            f"{ended} trials ended",
        )
        fleet.terminate()
        assert fleet.wait() == 0, lab.log()
    lab.ok("cancel", sid, "--yes")
    lab.audit(sid)


def test_a_worker_whose_fleet_was_killed_before_it_started_goes(lab) -> None:
    """F3: no signal of the kernel tells it; the pid it was started by is not its parent's."""
    worker = start("hpq_worker.consumer", lab.env, WorkerConfig(parent=1))
    lab.workers.append(worker)
    assert worker.wait(DEADLINE_S) == 0 and lab.reader.workers.live() == []


def test_a_stopped_sweep_ends_also_when_its_last_worker_is_told_to_go(lab) -> None:
    """F29: `hpq stop`, then SIGTERM."""
    sid = lab.steered(2)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    lab.ok("stop", sid, "--yes")
    fleet.terminate()
    assert fleet.wait() == 0
    assert lab.reader.sweeps.get(sid).state is SweepState.FINISHED
    assert lab.trial(sid).state is TrialState.CANCELLED
    lab.audit(sid)


def test_a_worker_that_starts_drops_the_names_of_killed_ones_from_the_register(lab) -> None:
    registers = ("rq:workers", "rq:workers:hpq:hpq:default")
    for register in registers:
        lab.redis.sadd(register, "rq:worker:killed")
    lab.worker()

    def living() -> list[set[bytes]]:
        return [lab.redis.smembers(name) - {b"rq:worker:killed"} for name in registers]

    def dropped() -> bool:
        return not any(lab.redis.sismember(name, "rq:worker:killed") for name in registers)

    lab.wait_until(lambda: dropped() and all(map(len, living())), "the names of live workers alone")
    assert [len(names) for names in living()] == [1, 1]


def test_a_living_worker_clears_the_disk_of_what_a_killed_one_has_left(lab) -> None:
    """F3: kill -9 of a fleet, its parent and its runner; another worker shares its HPQ_HOME."""
    with tempfile.TemporaryDirectory(prefix="t-") as short:
        tmp = Path(short)
        lab.env["TMPDIR"] = short
        (tmp / "hpq-of-another").mkdir()
        lab.write("train.py", PROGRAM)
        sid = lab.enqueue(SWEEP)
        lab.worker()
        lab.wait_for("began-1-1")
        mine = set(lab.processes())
        lab.worker()
        lab.wait_for("began-2-1")
        work = lab.home / "work"
        assert len(list(tmp.iterdir())) == 3
        (second,) = work.glob(f"{sid}.2.1-*/checkpoint")
        (second / "large").write_bytes(bytes(100_000))
        lab.kill(set(lab.processes()) - mine)
        stays = {path.name for path in work.glob(f"{sid}.1.1-*")}
        stays |= {path.name for path in work.glob("code-*") if int(path.name.split(".")[1]) in mine}
        lab.wait_until(lambda: {p.name for p in work.iterdir()} == stays, "the end of its files")
        assert len(list(tmp.iterdir())) == 2
        lab.end_lease(sid, 2)
        lab.go()
        lab.wait_over(sid)
        lab.wait_until(lambda: not list(work.glob(f"{sid}.*")), "the end of all directories")
        assert [p.name for p in tmp.iterdir()] == ["hpq-of-another"]
