"""`hpq worker --sweep SWEEP/7`, which a Kubernetes Job starts: one trial, and its exit code."""

from __future__ import annotations

import os
import signal

import pytest

from hpq.trial import TrialState

pytestmark = pytest.mark.usefixtures("no_lease_ends")


def started(lab, sid: str, number: int, **env: str):
    """A worker for one trial, as a Job's pod starts it."""
    return lab.worker(1, HPQ_SWEEP=f"{sid}/{number}", **env)


def code_of(lab, worker) -> int:
    """The exit code that it ends with."""
    lab.wait_until(lambda: worker.poll() is not None, "the end of the worker")
    return worker.returncode


def test_it_takes_its_own_trial_and_no_other_and_ends_when_that_is_over(lab) -> None:
    sid = lab.steered(3)
    lab.go()
    assert code_of(lab, started(lab, sid, 2)) == 0
    states = [t.state for t in lab.view.all_trials(sid)]
    assert states == [TrialState.QUEUED, TrialState.FINISHED, TrialState.QUEUED]
    assert code_of(lab, started(lab, sid, 2)) == 0  # another pod of the same Job: it is done
    assert lab.trial(sid, 2).attempt == 1
    lab.ok("worker", "--sweep", f"{sid}/1")
    assert lab.trial(sid, 1).state is TrialState.FINISHED
    lab.worker(1)
    lab.wait_over(sid)


def test_told_to_go_it_gives_its_trial_back_and_is_not_taken_for_done(lab) -> None:
    sid = lab.steered(1)
    first = started(lab, sid, 1)
    lab.wait_for("began-1-1")
    second = started(lab, sid, 1)  # waits, as after a pod whose lease has not ended
    first.send_signal(signal.SIGTERM)
    assert code_of(lab, first) == 143
    lab.wait_for("began-1-2")
    lab.go()
    assert code_of(lab, second) == 0
    lab.wait_over(sid)


def test_a_killed_one_leaves_its_trial_to_the_next_pod_of_its_job(lab) -> None:
    lab.env["HPQ_LEASE_S"] = "2"
    sid = lab.steered(1)
    first = started(lab, sid, 1)
    lab.wait_for("began-1-1")
    for pid in lab.processes():
        os.kill(pid, signal.SIGKILL)
    first.wait()
    second = started(lab, sid, 1)
    lab.wait_for("began-1-2")
    lab.go()
    assert code_of(lab, second) == 0
    lab.wait_over(sid)


def test_a_failure_and_what_no_other_pod_would_do_better_are_exit_codes_with_a_line(lab) -> None:
    lab.write("bad.py", "def train(params, trial):\n    raise KeyError(params['x'])\n")
    sid = lab.enqueue(
        "trainer: bad:train\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1]}}\n"
    )
    stranger = started(lab, sid, 1, HPQ_CODE_KEY="another key than that of the enqueue")
    assert code_of(lab, stranger) == 5
    assert f"{sid}/1 cannot run here: " in lab.log()
    assert code_of(lab, started(lab, sid, 1)) == 1
    assert f"hpq worker: {sid}/1 failed: KeyError: 1" in lab.log()
    assert code_of(lab, started(lab, sid, 9)) == 4
    lab.wait_over(sid)
