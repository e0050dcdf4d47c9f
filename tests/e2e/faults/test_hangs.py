"""Processes that hang or are stopped: their trials go on elsewhere, and nothing of them is left."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
from pathlib import Path

import pytest

from hpq.domain.trial import TrialState
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ptrace and prlimit are Linux's")
_SEIZE, _INTERRUPT, _ANY_THREAD = 0x4206, 0x4207, 0x40000000
LOST = ["claimed", "requeued", "claimed", "finished"]
KEEPS = """
    import os, time
    from pathlib import Path
    (Path(os.environ["HPQ_OUT"]) / "model").write_text("weights")
    Path("began").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    print("loss=1")
"""
SWEEP = "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {value: 1}}\n"


def freeze(pid: int) -> None:
    """Stop the main thread of a process; its other threads go on."""
    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long] * 4
    for request in (_SEIZE, _INTERRUPT):
        assert ptrace(request, pid, 0, 0) == 0, os.strerror(ctypes.get_errno())
    os.waitpid(pid, _ANY_THREAD)


def has_ended(pid: int) -> bool:
    """True once a frozen process is gone; its parent learns it from the same call."""
    try:
        return os.waitpid(pid, _ANY_THREAD | os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True


def worker_of(lab, sid: str) -> int:
    """Return the pid of the worker that runs trial 1."""
    return int(lab.trial(sid).worker.split("-")[-2])


@pytest.mark.slow
def test_a_worker_whose_main_thread_hangs_loses_its_trial_and_its_process(lab, short_lease) -> None:
    """F4: the main thread stops while a trial trains; the other threads of the worker go on."""
    sid = lab.steered(1)
    fleet = lab.worker(HPQ_GRACE_S="2")
    runner = lab.wait_for("began-1-1")
    hung = worker_of(lab, sid)
    freeze(hung)
    lab.worker()
    lab.wait_for("began-1-2")
    lab.wait_until(lambda: has_ended(hung), "the end of the worker that hangs")
    lab.wait_until(lambda: runner not in lab.processes(), "the end of its runner")
    lab.wait_until(lambda: "worker-ended" in ids(lab.log(0)), "the supervisor to notice it")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == LOST and "worker-fault" in ids(lab.log(0))
    fleet.terminate()
    assert fleet.wait(DEADLINE_S) == 0


@pytest.mark.slow
def test_a_worker_that_hangs_ends_with_its_killed_supervisor(lab) -> None:
    """F4, F3: kill -9 of the supervisor; the kernel's SIGTERM cannot end the worker."""
    sid = lab.steered(1)
    fleet = lab.worker(HPQ_GRACE_S="1")
    lab.wait_for("began-1-1")
    hung = worker_of(lab, sid)
    freeze(hung)
    fleet.kill()
    lab.wait_until(lambda: has_ended(hung), "the end of the worker that hangs")
    lab.wait_until(lambda: not lab.processes("hpq_worker"), "the end of its runner")


def test_a_supervisor_kills_a_stopped_worker_after_the_grace(lab) -> None:
    """F4, F6: SIGSTOP of the worker, then SIGTERM of the supervisor."""
    sid = lab.steered(1)
    fleet = lab.worker(HPQ_GRACE_S="1")
    lab.wait_for("began-1-1")
    os.kill(worker_of(lab, sid), signal.SIGSTOP)
    fleet.terminate()
    fleet.wait(DEADLINE_S)
    assert not lab.processes("hpq_worker")


@pytest.mark.slow
def test_a_stopped_worker_is_replaced_and_its_trial_is_not_charged(lab, short_lease) -> None:
    """F4: SIGSTOP of a worker for good; the runner that it left goes on until it is replaced."""
    sid = lab.steered(1)
    lab.worker()
    runner = lab.wait_for("began-1-1")
    os.kill(worker_of(lab, sid), signal.SIGSTOP)
    lab.wait_for("began-1-2")
    assert runner not in lab.processes()
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == LOST


@pytest.mark.slow
def test_a_stopped_supervisor_costs_no_trial_and_continues(lab, short_lease) -> None:
    """Ctrl-Z: the supervisor is stopped past the lease; its worker trains on, and `fg` goes on."""
    sid = lab.steered(2)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    fleet.send_signal(signal.SIGSTOP)
    beyond_ms = lab.trial(sid).claimed_ms + 2000 * short_lease
    lab.wait_until(lambda: lab.trial(sid).beat_ms > beyond_ms, "beats beyond two leases")
    lab.go()
    lab.wait_over(sid)
    assert [lab.events(sid, n) for n in (1, 2)] == [["claimed", "finished"]] * 2
    fleet.terminate()
    fleet.send_signal(signal.SIGCONT)
    assert fleet.wait(DEADLINE_S) == 0 and not lab.processes("hpq_worker")


@pytest.mark.slow
def test_a_supervisor_that_cannot_start_a_worker_tries_again(lab, short_lease) -> None:
    """RLIMIT_NOFILE of the supervisor while a worker is killed; the other worker trains on."""
    sid = lab.steered(2)
    fleet = lab.worker(2)
    lab.wait_for("began-1-1")
    lab.wait_for("began-2-1")
    limits = resource.prlimit(fleet.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(fleet.pid, resource.RLIMIT_NOFILE, (6, limits[1]))
    os.kill(worker_of(lab, sid), signal.SIGKILL)
    lab.wait_until(lambda: "worker-fault" in ids(lab.log(0)), "a start that fails")
    resource.prlimit(fleet.pid, resource.RLIMIT_NOFILE, limits)
    lab.wait_for("began-1-2")
    lab.go()
    lab.wait_over(sid)
    assert [lab.events(sid, n) for n in (1, 2)] == [LOST, ["claimed", "finished"]]


def test_a_worker_without_memory_at_the_end_of_a_trial_ends_it_all_the_same(lab) -> None:
    """RLIMIT_AS refuses the worker all memory while its trial ends and its files are stored."""
    lab.write("train.py", KEEPS)
    sid = lab.enqueue(SWEEP)
    lab.worker(HPQ_STORE=str(lab.folder / "store"))
    lab.wait_for("began")
    worker = worker_of(lab, sid)
    status = Path(f"/proc/{worker}/status").read_text("ascii").split()
    size = 1024 * int(status[status.index("VmSize:") + 1])
    hard = resource.prlimit(worker, resource.RLIMIT_AS)[1]
    resource.prlimit(worker, resource.RLIMIT_AS, (size // 2, hard))
    lab.go()
    lab.wait_until(lambda: len(lab.events(sid)) > 1, "the end of the attempt")
    if worker in lab.processes():
        resource.prlimit(worker, resource.RLIMIT_AS, (hard, hard))
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.FINISHED
