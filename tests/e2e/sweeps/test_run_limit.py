"""`hpq worker --sweep SWEEP --count N`, as `wandb agent --count N SWEEP`: it ends by itself."""

from __future__ import annotations

import subprocess

from hpq.domain.trial import TrialState
from tests.support.ids import ids


def ends(lab, worker: subprocess.Popen[bytes]) -> int:
    """The exit code that it ends with."""
    lab.wait_until(lambda: worker.poll() is not None, "the end of the worker")
    return worker.returncode


def test_workers_for_a_sweep_end_when_it_is_over_and_not_while_it_is_held_or_anothers_trial_runs(
    lab,
) -> None:
    sid = lab.steered(2)
    other = lab.worker(1)
    lab.wait_for("began-1-1")
    lab.ok("pause", sid)
    agent = lab.worker(2, "--sweep", sid)
    lab.wait_until(lambda: "sweep-paused" in ids(lab.log(1)), "that it waits")
    lab.ok("cancel", f"{sid}/1", "--yes")
    lab.wait_until(lambda: lab.trial(sid).state is TrialState.CANCELLED, "the first trial's end")
    lab.ok("resume", sid)
    lab.wait_for("began-2-1")
    assert agent.poll() is None and other.poll() is None
    lab.go()
    assert ends(lab, agent) == 0
    assert "sweep-over" in ids(lab.log(1))
    assert "worker-ended" not in ids(lab.log(1))
    lab.wait_over(sid)
    assert ends(lab, lab.worker(1, "--sweep", sid)) == 0
    assert other.poll() is None, "a worker without an errand ended"


def test_a_held_sweep_is_named_by_the_worker_that_waits_for_it(lab) -> None:
    lab.write("bad.py", "def train(params, trial):\n    raise KeyError('gpu')\n")
    sid = lab.enqueue(
        "trainer: bad:train\nmethod: grid\nmetric: {name: loss}\n"
        "parameters: {x: {values: [1, 2, 3, 4, 5, 6]}}\n"
    )
    agent = lab.worker(1, "--sweep", sid)
    lab.wait_until(lambda: "sweep-held" in ids(lab.log()), "that it is held")
    assert agent.poll() is None
    lab.ok("cancel", sid, "--yes")
    assert ends(lab, agent) == 0


def test_workers_end_after_so_many_trials_all_together(lab) -> None:
    sid = lab.steered(5)
    lab.go()
    assert ends(lab, lab.worker(2, "--sweep", sid, "--count", "3")) == 0
    done = [t for t in lab.reader.trials.all(sid) if t.state is TrialState.FINISHED]
    assert len(done) == 3
    answer = lab.hpq("worker", "--sweep", f"{sid}/4", "--count", 2)
    assert (answer.returncode, answer.stderr.count("\n")) == (2, 1)
    assert ends(lab, lab.worker(1, "--count", "2")) == 0
    lab.wait_over(sid)
