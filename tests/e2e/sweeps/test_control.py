"""Queues, caps, priority and what a person says to a running sweep, through the command line."""

from __future__ import annotations

import pytest

from hpq.domain.sweep import SweepState
from hpq.domain.trial import TrialState
from tests.support.ids import ids
from tests.support.lab import Lab


@pytest.fixture
def lab(served_lab: Lab) -> Lab:
    """All tests share one worker."""
    return served_lab


def running(lab, sid: str) -> list[int]:
    return [t.id.number for t in lab.reader.trials.all(sid) if t.state is TrialState.RUNNING]


def test_two_queues_share_a_server_and_not_their_trials(lab) -> None:
    small = lab.steered(2, "queue: small")
    default = lab.steered(2)
    lab.wait_until(lambda: lab.has_claimed(default), "the younger sweep to begin")
    assert "no-worker" in ids(lab.hpq("enqueue", lab.code / "sweep-1.yaml").stderr)
    assert lab.reader.sweeps.get(small).counts.queued == 2
    other = lab.worker(HPQ_QUEUE="small")
    lab.wait_until(lambda: lab.has_claimed(small), "the older sweep to begin")
    lab.go()
    lab.wait_over(small)
    lab.wait_over(default)
    names = {t.worker for t in lab.reader.trials.all(small)}
    assert not names & {t.worker for t in lab.reader.trials.all(default)} and other.poll() is None


def test_max_parallel_caps_what_runs_and_set_lifts_it(lab) -> None:
    sid = lab.steered(3, "max_parallel: 1")
    lab.worker()
    lab.wait_for("began-1-1")
    lab.wait_until(
        lambda: {w.state for w in lab.reader.workers.live()} == {"busy", "idle"}, "an idle one"
    )
    assert running(lab, sid) == [1]
    lab.ok("set", sid, "max_parallel=2")
    lab.wait_for("began-2-1")
    assert running(lab, sid) == [1, 2]
    lab.go()
    lab.wait_over(sid)


def test_the_sweep_of_higher_priority_goes_first(lab) -> None:
    lab.steered(1)  # the worker is busy until both are queued
    lab.wait_for("began-1-1")
    old, new = lab.steered(3), lab.steered(3, "priority: 5")
    lab.go()
    lab.wait_over(old)
    lab.wait_over(new)
    last_of_new = max(t.ended_ms for t in lab.reader.trials.all(new))
    assert last_of_new <= min(t.claimed_ms for t in lab.reader.trials.all(old))


def test_a_paused_sweep_starts_nothing_until_it_is_resumed(lab) -> None:
    """F29, R13: `hpq pause` while a trial runs and others wait."""
    sid = lab.steered(2)
    lab.wait_for("began-1-1")
    lab.ok("pause", sid)
    lab.go()
    lab.wait_until(
        lambda: lab.reader.sweeps.get(sid).counts.finished == 1, "the running trial's end"
    )
    lab.wait_until(
        lambda: [w.state for w in lab.reader.workers.live()] == ["idle"], "an idle worker"
    )
    assert lab.reader.sweeps.get(sid).state is SweepState.PAUSED
    assert lab.events(sid, 2) == []
    lab.ok("resume", sid)
    lab.wait_over(sid)


def test_a_stopped_sweep_finishes_what_runs_and_drops_the_rest(lab) -> None:
    sid = lab.steered(4)
    lab.wait_for("began-1-1")
    lab.ok("stop", sid, "--yes")
    assert lab.reader.sweeps.get(sid).state is SweepState.STOPPING
    lab.go()
    lab.wait_over(sid)
    counts = lab.reader.sweeps.get(sid).counts
    assert (counts.finished, counts.cancelled) == (1, 3)


def test_a_cancelled_sweep_ends_what_runs_and_can_be_retried_and_removed(lab) -> None:
    sid = lab.steered(3)
    lab.wait_for("began-1-1")
    lab.ok("cancel", sid, "--yes")
    lab.wait_over(sid)
    assert lab.reader.sweeps.get(sid).state is SweepState.CANCELLED
    assert lab.reader.sweeps.get(sid).counts.cancelled == 3
    assert "told to stop" in lab.printed(sid)
    lab.go()
    lab.ok("retry", sid, "--cancelled")
    lab.wait_over(sid)
    assert lab.reader.sweeps.get(sid).counts.finished == 3
    assert lab.trial(sid).attempt == 2
    assert lab.hpq("best", sid, "--yaml").stdout == "x: 1\n"
    lab.ok("rm", sid, "--yes")
    assert lab.hpq("show", sid).returncode == 4
    left = [k for k in lab.redis.keys(f"*{sid}*") if not k.startswith(b"hpq:w:")]
    assert left == []


def test_a_deaf_trial_that_is_cancelled_is_killed(lab) -> None:
    """F29: `hpq cancel` of a program that ignores SIGTERM."""
    lab.write(
        "train.py",
        """
        import signal, time
        from pathlib import Path
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        Path("began").touch()
        while True:
            time.sleep(0.01)
        """,
    )
    lab.worker(HPQ_QUEUE="deaf", HPQ_GRACE_S="3")  # the other worker would wait for longer
    sid = lab.enqueue("program: train.py\nqueue: deaf\nmethod: grid\nparameters: {x: {value: 1}}\n")
    lab.wait_for("began")
    lab.ok("cancel", sid, "--yes")
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.CANCELLED and not lab.processes(r"train\.py")


def test_a_removed_sweep_ends_its_running_trial_and_the_worker_goes_on(lab) -> None:
    """R20: `hpq rm` of a sweep whose trial runs."""
    sid = lab.steered(2)
    began = lab.wait_for("began-1-1")
    assert lab.hpq("rm", sid, "--yes").returncode == 2
    lab.ok("rm", sid, "--yes", "--force")
    lab.wait_until(lambda: began not in lab.processes(), "the end of its runner")
    lab.go()
    other = lab.steered(1, "priority: 1")
    lab.wait_over(other)
    lab.wait_until(lambda: not lab.redis.zcard(lab.keys.leases), "the end of the lease")


def test_a_drained_worker_ends_what_it_runs_and_takes_nothing_until_that_is_undone(lab) -> None:
    sid = lab.steered(2)
    lab.wait_for("began-1-1")
    states = lambda: {w.state for w in lab.reader.workers.live()}  # noqa: E731
    assert lab.hpq("drain", "nobody").returncode == 4
    said = lab.hpq("drain", lab.trial(sid).worker[:-2], "--timeout", "0.1")
    assert said.returncode == 5 and f"{sid}/1" in said.stderr
    lab.wait_until(lambda: states() == {"draining"}, "a draining worker")
    lab.go()
    lab.wait_until(lambda: states() == {"drained"}, "a drained worker")
    lab.wait_until(lambda: "drained" in ids(lab.log()), "its word of it")
    assert lab.reader.sweeps.get(sid).counts.queued == 1
    assert "`hpq drain --undo`" in lab.ok("watch", "--once", sid).replace("\n  ", " ")
    lab.ok("drain", "--undo", "--all")
    lab.wait_over(sid)
    assert lab.events(sid, 1) == lab.events(sid, 2) == ["claimed", "finished"]
