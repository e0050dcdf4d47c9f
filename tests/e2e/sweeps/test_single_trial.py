"""`hpq worker --sweep SWEEP/7`, which a Kubernetes Job starts: one trial, and its exit code."""

from __future__ import annotations

import signal

from hpq.domain.trial import TrialState
from tests.support.ids import ids, refused


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
    states = [t.state for t in lab.reader.trials.all(sid)]
    assert states == [TrialState.QUEUED, TrialState.FINISHED, TrialState.QUEUED]
    assert code_of(lab, started(lab, sid, 2)) == 0  # another pod of the same Job: it is done
    assert lab.trial(sid, 2).attempt == 1
    lab.ok("worker", "--sweep", f"{sid}/1")
    assert lab.trial(sid, 1).state is TrialState.FINISHED
    lab.worker(1)
    lab.wait_over(sid)


def test_it_waits_for_the_server_and_told_to_go_it_gives_its_trial_back_and_is_not_taken_for_done(
    lab,
) -> None:
    sid = lab.steered(1)
    lab.server.kill()
    first = started(lab, sid, 1)
    said = lambda: "worker-ended" in ids(lab.log())  # noqa: E731
    lab.wait_until(said, "a worker that found no server")
    lab.server.start()
    lab.wait_for("began-1-1")
    second = started(lab, sid, 1)  # waits, as after a pod whose lease has not ended
    first.send_signal(signal.SIGTERM)
    assert code_of(lab, first) == 143
    lab.wait_for("began-1-2")
    lab.go()
    assert code_of(lab, second) == 0
    lab.wait_over(sid)


def test_a_killed_one_leaves_its_trial_to_the_next_pod_of_its_job(lab) -> None:
    sid = lab.steered(1)
    first = started(lab, sid, 1)
    lab.wait_for("began-1-1")
    lab.kill(lab.processes())
    first.wait()
    second = started(lab, sid, 1)
    lab.end_lease(sid)
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
    assert "trial-refused" in ids(lab.log())
    assert code_of(lab, started(lab, sid, 1)) == 1
    assert "trial-failed" in ids(lab.log()) and "KeyError: 1" in lab.log()
    assert code_of(lab, started(lab, sid, 9)) == 4
    lab.wait_over(sid)


def test_what_is_missing_here_alone_leaves_the_trial_to_a_pod_on_another_node(lab) -> None:
    sid = lab.enqueue(
        "trainer: mnist\nmethod: grid\nmetric: {name: accuracy, goal: maximize}\n"
        "parameters: {epochs: {values: [1]}}\n"
    )
    assert code_of(lab, started(lab, sid, 1, HPQ_DATA=str(lab.folder / "nowhere"))) == 75
    assert f"{sid}/1 " in lab.log() and "HPQ_DATA" in lab.log()
    trial = lab.trial(sid, 1)
    assert trial.state is TrialState.QUEUED
    fields = lab.redis.hkeys(lab.keys.trial(trial.id))
    assert not [f for f in fields if f.startswith(b"c:")], fields  # no attempt counts


def test_jobs_of_too_many_sets_or_of_such_as_are_made_late_are_refused_before_anything_is_written(
    lab,
) -> None:
    space = "parameters: {x: {min: 0.0, max: 1.0}}\n"
    head = "trainer: steered:train\nmetric: {name: loss, goal: minimize}\n"
    lab.write("steered.py", "def train(params, trial): ...\n")
    late = lab.write("late.yaml", f"{head}method: random\n{space}")
    many = lab.write("many.yaml", f"{head}method: random\nrun_cap: 1001\n{space}")
    for file, code in (
        (late, "jobs-need-count"),
        (many, "jobs-too-many"),
    ):
        done = lab.hpq("manifests", "--image", "hpq-worker:1", "--jobs", file)
        refused(done, code)
        assert not done.stdout and done.stderr.count("\n") == 1
    assert not lab.reader.sweeps.ids()
    done = lab.hpq("manifests", "--jobs", late, "--queue", "big")
    refused(done, "usage", "--jobs")
