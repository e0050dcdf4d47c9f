"""`hpq slurm | sbatch` on a real Slurm: requeue, scancel, a time limit, a node that goes down."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from hpq.domain.attempt import Reason
from hpq.domain.trial import TrialState
from hpq.redis import credentials
from tests.slurm.conftest import Student
from tests.support.constants import ROOT
from tests.support.lab import audit
from tests.support.pages import blocks, script, typed

TRIALS = 24
SCRIPT = """
import argparse, os, pathlib, signal, sys, time

parser = argparse.ArgumentParser()
parser.add_argument("--x", type=int)
parser.add_argument("--seconds", type=float)
x, seconds = vars(parser.parse_args()).values()
saved = pathlib.Path(os.environ["HPQ_CHECKPOINT_DIR"]) / "seconds"
done = float(saved.read_text()) if saved.exists() else 0.0
while done < seconds and not os.path.exists("GO"):
    time.sleep(0.5)
    done += 0.5
    if CHECKPOINTS:
        draft = saved.with_name("draft")
        draft.write_text(str(done))
        draft.rename(saved)
    print(f"loss={x}", flush=True)
"""


def sweep(student: Student, count: int, seconds: float, *, checkpoints: bool) -> str:
    """Enqueue trials that take this long, or until the file `go` exists."""
    code = student.folder / "code"
    (code / "train.py").write_text(
        SCRIPT.replace("CHECKPOINTS", str(checkpoints)).replace("GO", str(student.go))
    )
    (code / "sweep.yaml").write_text(
        "program: train.py\nmethod: grid\nmetric: {name: loss, goal: minimize}\nparameters:\n"
        f"  x: {{values: {list(range(count))}}}\n  seconds: {{value: {seconds}}}\n"
    )
    return student.ok("enqueue", "sweep.yaml").strip()


def test_the_tutorial_works_as_it_is_printed(alone: Student) -> None:
    page = blocks(ROOT / "docs" / "tutorial" / "slurm.md")
    text = script(page, alone.folder, cluster=False, changed={})
    try:
        output = typed(text, alone.folder, alone.env, 200)
    finally:
        log = (alone.folder / "page.log").read_text()
        alone.jobs += re.findall(r"Submitted batch job (\d+)", log)
    assert re.search(r"^lr +0\.\d+$", output, re.M), output


def test_no_trial_is_lost_by_requeue_scancel_a_limit_and_nodes_that_go_down(alone: Student) -> None:
    student = alone
    student.env |= {"HPQ_LEASE_S": "12", "HPQ_GRACE_S": "6"}
    redis = student.submit("--redis", "--time", "1:00:00")
    student.wait_until(student.answers, "the Redis job")
    sid = sweep(student, TRIALS, 9.0, checkpoints=True)
    job = student.submit("--partition", "gpu", "--time", "2", "--jobs", "4")

    def running() -> list[str]:
        return [task for task, state in student.tasks(job).items() if state == "R"]

    def finished() -> int:
        student.hurry(redis)
        return student.reader.sweeps.get(sid).counts.finished if student.answers() else 0

    student.wait_until(lambda: finished() >= 2, "the first trials")
    first, second = sorted(running())
    student.tool("scontrol", "requeue", first)
    student.wait_until(lambda: finished() >= 4, "trials on another node")
    address = (student.home / "redis-job" / "address").read_text()
    student.tool("scontrol", "requeue", redis)
    student.wait_until(lambda: not student.answers(), "the end of the Redis server")
    student.wait_until(lambda: finished() >= 5, "trials with the next Redis server")
    assert (student.home / "redis-job" / "address").read_text() != address
    student.tool("scancel", second)
    student.wait_until(lambda: len(running()) == 2, "the last task of the array")
    node = student.tool("squeue", "-h", "-j", redis, "-o", "%N").strip()  # and of a worker
    student.tool("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=test")
    try:
        student.wait_until(lambda: finished() >= 8, "trials on the other node")
    finally:
        if "down" in student.tool("sinfo", "-h", "-n", node, "-o", "%T"):  # else it came back
            student.tool("scontrol", "update", f"NodeName={node}", "State=RESUME")

    def reasons() -> list[str | None]:
        return [event.fields.get("reason") for event in student.reader.events.read(sid)]

    def is_over() -> bool:
        student.hurry(job)
        return finished() > 0 and student.reader.sweeps.get(sid).state.is_over

    student.wait_until(lambda: Reason.TIME_UP in reasons() or is_over(), "the end of an allocation")
    student.go.touch()  # the rest ends at once
    student.wait_until(is_over, "the end of the sweep")
    trials = list(student.reader.trials.all(sid))
    assert [t.state for t in trials] == [TrialState.FINISHED] * TRIALS
    audit(student.reader, sid)
    assert student.ok("audit", sid)
    assert Reason.TIME_UP in reasons()
    assert set(reasons()) <= {None, "stopping", "time_up", "lost"}, "an attempt was charged"


def test_a_redis_job_keeps_its_data_and_leaves_no_process(alone: Student) -> None:
    def server_of_job() -> int:
        return int((alone.home / "redis-job" / "data" / "redis.pid").read_text())

    def is_over() -> bool:
        return not any(map(alone.tasks, alone.jobs))

    job = alone.submit("--redis", "--time", "1:00:00")
    alone.wait_until(alone.answers, "the Redis job")
    alone.redis.set("a", "1")
    server = server_of_job()
    script = alone.tool("pgrep", "--oldest", "--full", f"/job0*{job}/slurm_script")
    os.kill(int(script), signal.SIGKILL)
    alone.wait_until(lambda: not Path(f"/proc/{server}").exists(), "the end of its server")
    alone.wait_until(is_over, "the end of the job")
    job = alone.submit("--redis", "--time", "1:00:00")
    alone.wait_until(alone.answers, "the next Redis job")
    alone.redis.set("b", "2")
    server = server_of_job()
    alone.tool("scancel", "--signal=USR1", "--batch", job)  # as at the end of its time
    alone.wait_until(lambda: not Path(f"/proc/{server}").exists(), "the end of the server")
    alone.wait_until(lambda: "PD" in alone.tasks(job).values(), "that the job requeues itself")

    def goes_on() -> bool:
        alone.hurry(job)
        return alone.answers()

    alone.wait_until(goes_on, "the requeued job")
    assert alone.redis.mget("a", "b") == [b"1", b"2"]
    server, password = server_of_job(), credentials.of(alone.url)
    alone.tool("scancel", job)
    alone.wait_until(is_over, "the end of the job")
    assert not Path(f"/proc/{server}").exists()
    assert (alone.home / "redis-job" / "address").read_text().endswith("has ended\n")
    assert password and password not in alone.log()


def test_a_trial_longer_than_an_allocation_is_not_begun_again_and_the_job_ends(
    student: Student,
) -> None:
    student.env |= {"HPQ_GRACE_S": "1"}
    sid = sweep(student, 2, 3600.0, checkpoints=False)
    job = student.submit("--time", "2")  # in 1, the signal may come before a trial is claimed

    def is_cut() -> bool:
        return student.reader.sweeps.get(sid).least_ms > 0

    student.wait_until(is_cut, "the end of the time")
    student.wait_until(lambda: "PD" in student.tasks(job).values(), "that the job requeues itself")

    def is_gone() -> bool:
        student.hurry(job)
        return not student.tasks(job)

    student.wait_until(is_gone, "that the job ends, as no trial fits")
    began = [e for e in student.reader.events.read(sid) if e.what == "claimed"]
    assert len(began) == 1, began
    assert "[time-left-short]" in student.hpq("enqueue", "sweep.yaml").stderr


def test_an_array_without_a_sweep_ends(student: Student) -> None:
    text = student.ok("slurm", "--jobs", "2").replace("--until-idle 10m", "--until-idle 1s")
    path = student.folder / "job.sh"
    path.write_text(text)
    job = student.tool("sbatch", "--parsable", str(path)).strip()
    student.jobs.append(job)
    began = time.monotonic()
    student.wait_until(lambda: not student.tasks(job), "the end of the array")
    assert time.monotonic() - began < 60, student.log()
