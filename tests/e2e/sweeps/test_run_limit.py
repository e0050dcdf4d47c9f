"""`hpq worker --sweep SWEEP --count N`, as `wandb agent --count N SWEEP`: it ends by itself."""

from __future__ import annotations

import subprocess
import time

from hpq.domain.attempt import Reason
from hpq.domain.trial import TrialState
from hpq.error_codes import ExitCode
from tests.support.ids import ids, refused


def ends(lab, worker: subprocess.Popen[bytes]) -> int:
    """The exit code that it ends with."""
    lab.wait_until(lambda: worker.poll() is not None, "the end of the worker")
    return worker.returncode


def test_workers_for_a_sweep_end_when_it_is_over_and_not_while_it_is_held_or_anothers_trial_runs(
    lab,
) -> None:
    older, sid = lab.steered(1), lab.steered(2)
    other = lab.worker(1, HPQ_SWEEP=sid)
    lab.wait_for("began-1-1")
    lab.ok("pause", sid)
    agent = lab.worker(1, "--sweep", sid)
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
    assert lab.events(older) == [], "they serve one sweep"
    refused(lab.here("worker", "--sweep", "nope"), "sweep-not-found", exit=4)


def test_a_held_sweep_is_named_by_the_worker_that_waits_for_it(lab) -> None:
    lab.write("bad.py", "def train(params, trial):\n    raise KeyError('gpu')\n")
    sid = lab.enqueue(
        "trainer: bad:train\nresident: true\nmethod: grid\nmetric: {name: loss}\n"
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
    assert len(done) == 3 and lab.reader.sweeps.get(sid).counts.queued == 2


def test_a_worker_without_work_ends_when_it_was_idle_for_so_long(lab) -> None:
    sid = lab.steered(1)
    worker = lab.worker(2, "--until-idle", "2s")
    lab.wait_for("began-1-1")
    lab.wait_until(lambda: len(lab.processes(r"hpq_worker\.consumer")) == 1, "the idle one's end")
    lab.go()
    assert ends(lab, worker) == 0
    lab.wait_over(sid)


def test_an_idle_worker_also_ends_while_redis_is_away(lab) -> None:
    worker = lab.worker(1, "--until-idle", "1s")
    lab.wait_until(lambda: "ready" in lab.log(), "that it is ready")
    lab.server.kill()
    try:
        assert ends(lab, worker) == 0
    finally:
        lab.server.start()


def test_a_worker_that_reaches_no_server_gives_up_after_that_time(lab) -> None:
    worker = lab.worker(1, "--until-idle", "2s", HPQ_REDIS_URL="redis://127.0.0.1:1/0")
    assert ends(lab, worker) == ExitCode.OUT_OF_REACH
    assert "redis-unreachable" in ids(lab.log())


def test_a_duration_that_is_none_is_refused(lab) -> None:
    for text in ("x", "0", "-1s", "10 m"):
        refused(lab.here("worker", f"--until-idle={text}"), "usage", "--until-idle")
    refused(lab.here("worker", HPQ_END="tomorrow"), "setting-invalid", "HPQ_END")


def test_work_directories_are_in_a_scratch_directory_that_only_the_user_can_enter(lab) -> None:
    scratch = lab.folder / "scratch"
    scratch.mkdir(0o777)
    scratch.chmod(0o777)
    lab.write("train.py", "import os\nprint(os.environ['HPQ_OUT'])\nprint('loss=1')\n")
    sid = lab.enqueue(
        "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1]}}\n"
    )
    for words in (("worker",), ("try", f"{sid}/1"), ("try", f"{sid}/1", "--as-enqueued")):
        refused(lab.hpq(*words, HPQ_SCRATCH=str(scratch)), "home-unusable", str(scratch))
    refused(lab.here("run", sid, HPQ_SCRATCH=str(scratch)), "no-worker", str(scratch), exit=5)
    assert not any(scratch.iterdir())
    scratch.rmdir()
    lab.worker(1, HPQ_SCRATCH=str(scratch))
    lab.wait_over(sid)
    assert str(scratch / "work") in lab.printed(sid) and not (lab.home / "work").exists()


def test_the_end_of_an_allocation_returns_the_trial_and_says_that_trials_are_left(lab) -> None:
    sid = lab.steered(2)
    requeues = lambda: [  # noqa: E731
        e.fields["reason"] for e in lab.reader.events.read(sid) if e.what == "requeued"
    ]
    worker = lab.worker(1, HPQ_END=str(time.time() + 50))
    lab.wait_for("began-1-1")
    worker.terminate()
    assert ends(lab, worker) == ExitCode.TIME_UP
    assert requeues() == [Reason.TIME_UP]
    least_ms = lab.reader.sweeps.get(sid).least_ms
    assert least_ms > 0, "it saved no checkpoint"
    again = lab.worker(1, HPQ_END=str(time.time() + 20))
    assert ends(lab, again) == 0, "another allocation of this length would not help, either"
    assert "time-left-short" in ids(lab.log(1)) and not lab.has_claimed(sid, 1, 2)

    long = lab.worker(1, HPQ_END=str(time.time() + 3600))
    lab.wait_for("began-1-2")
    long.terminate()
    assert ends(lab, long) == 0, "a signal long before the end is none of the allocation"
    assert len(requeues()) == 2 and requeues()[1] != Reason.TIME_UP
    assert lab.reader.sweeps.get(sid).least_ms == least_ms
    lab.ok("cancel", sid, "--yes")
    lab.audit(sid)
