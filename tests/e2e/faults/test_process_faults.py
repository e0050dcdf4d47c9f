"""What processes do to themselves and their machine: hungry, forking, out of memory or disk."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import sys
from pathlib import Path

import pytest

from hpq.domain.trial import FailureKind, TrialState
from tests.support.commands import run_hpq
from tests.support.constants import DEADLINE_S
from tests.support.disk import small_disk
from tests.support.ids import ids

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
SWEEP = "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}\n"


def worker_of(lab, sid: str) -> int:
    """Return the pid of the worker that runs trial 1."""
    return int(lab.trial(sid).worker.split("-")[-2])


def test_a_trial_without_memory_fails_as_such_and_the_next_one_on_its_worker_is_clean(lab) -> None:
    """F21: a resident trainer runs into RLIMIT_AS; tried once more, then failed; others go on."""
    lab.write(
        "hungry.py",
        """
        import resource
        def train(params, trial):
            if params["x"] == 1:
                resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
                bytearray(1 << 31)
            assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
            return {"loss": 1}
        """,
    )
    sid = lab.enqueue(
        "trainer: hungry:train\nresident: true\nmethod: grid\nmetric: {name: loss}\n"
        "parameters: {x: {values: [1, 2]}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.failure.kind is FailureKind.OUT_OF_MEMORY and trial.attempt == 2
    assert lab.trial(sid, 2).state is TrialState.FINISHED


def test_a_resident_runner_whose_cuda_context_is_lost_is_not_trained_in_again(lab) -> None:
    lab.write(
        "lost.py",
        """
        context = []
        def train(params, trial):
            if params["x"] == 1:
                context.append("lost")
            if context:
                raise RuntimeError("CUDA error: an illegal memory access was encountered")
            return {"loss": 1}
        """,
    )
    sid = lab.enqueue(
        "trainer: lost:train\nresident: true\nmethod: grid\nmetric: {name: loss}\n"
        "parameters: {x: {values: [1, 2]}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid).failure.kind is FailureKind.USER_ERROR
    assert lab.trial(sid, 2).state is TrialState.FINISHED


def test_no_daemon_of_a_trial_outlives_it(lab) -> None:
    """F2: a program forks twice, starts a session and lets its parent end; then it ends itself."""
    lab.write(
        "train.py",
        """
        import os, time
        from pathlib import Path
        for child in range(3):
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    Path(f"daemon-{child}").touch()
                    time.sleep(1000)
                os._exit(0)
        while len(list(Path().glob("daemon-*"))) < 3:
            time.sleep(0.01)
        print("loss=1")
        """,
    )
    sid = lab.enqueue(SWEEP)
    fleet = lab.worker()
    lab.wait_over(sid)
    assert lab.processes(r"train\.py") == {} and fleet.poll() is None
    assert {t.state for t in lab.reader.trials.all(sid)} == {TrialState.FINISHED}


@pytest.mark.slow
def test_a_trial_that_takes_its_worker_along_each_time_is_poison(lab) -> None:
    """F22: the trial kills the parent and its runner; the sweep's other trial is not harmed."""
    lab.write(
        "evil.py",
        """
        import os
        def train(params, trial):
            if params["x"] == 1:
                os.kill(os.getppid(), 9)
                os.kill(os.getpid(), 9)
            return {"loss": 1}
        """,
    )
    sid = lab.enqueue(
        "trainer: evil:train\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}"
    )
    lab.worker(HPQ_LOST_MAX="2", HPQ_LEASE_S="3600")  # the worker that starts anew ends its lease
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.failure.kind is FailureKind.POISON and trial.attempt == 2
    assert lab.trial(sid, 2).state is TrialState.FINISHED


def test_work_directories_that_were_removed_are_the_fault_of_the_machine(lab) -> None:
    """F11: `rm -r` of HPQ_HOME/work while a trial runs; another machine finishes it."""
    lab.write(
        "train.py",
        f"""
        import os, time
        from pathlib import Path
        here = Path({str(lab.code)!r})  # on the other machine, it runs in a copy
        (here / "began").touch()
        while not (here / "go").exists():
            time.sleep(0.01)
        (Path(os.environ["HPQ_CHECKPOINT_DIR"]) / "state").write_text("step 8")
        print("loss=1")
        """,
    )
    sid = lab.enqueue(SWEEP.replace("[1, 2]", "[1]"))
    lab.worker()
    lab.wait_for("began")
    shutil.rmtree(lab.home / "work")
    lab.go()
    lab.wait_until(lambda: "worker-fault" in ids(lab.log()), "the line that says why")
    lab.worker(HPQ_HOME=str(lab.folder / "other"), HPQ_CODE_KEY=(lab.home / "code.key").read_text())
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.FINISHED


@pytest.mark.parametrize("shift_s", [3600, -3600], ids=["ahead", "behind"])
def test_a_worker_whose_clock_is_an_hour_off_changes_nothing(lab, shift_s, short_lease) -> None:
    """F20: one of two workers lives an hour later or earlier; leases are Redis's."""
    skew = lab.folder / "skew"
    skew.mkdir()
    (skew / "sitecustomize.py").write_text(
        f"import time\nreal = time.time\ntime.time = lambda: real() + {shift_s}\n"
        f"real_ns = time.time_ns\ntime.time_ns = lambda: real_ns() + {shift_s} * 10**9\n",
        "utf-8",
    )
    sid = lab.steered(2)
    lab.worker(PYTHONPATH=str(skew))
    lab.worker()
    lab.wait_for("began-1-1")
    lab.wait_for("began-2-1")
    began = [lab.trial(sid, n).claimed_ms for n in (1, 2)]
    beats = [lab.trial(sid, n).beat_ms for n in (1, 2)]
    lab.wait_until(
        lambda: all(lab.trial(sid, n).beat_ms > beats[n - 1] + 1000 * short_lease for n in (1, 2)),
        "beats for longer than a lease",
    )
    assert abs(began[0] - began[1]) < 60_000 and len(lab.reader.workers.live()) == 2
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == lab.events(sid, 2) == ["claimed", "finished"]


@pytest.fixture
def full_disk(lab):
    """A disk of 256 KiB under HPQ_HOME, and how to fill it."""
    with small_disk(lab.home, "256k") as disk:
        yield disk.fill


def test_a_full_disk_keeps_no_result_from_a_redis_that_is_away(lab, full_disk) -> None:
    """F11: Redis is gone, the spool cannot be written; the worker holds the result until it can."""
    sid = lab.steered(1)
    lab.worker(HPQ_LEASE_S="30")
    lab.wait_for("began-1-1")
    out = next(lab.home.glob("work/s*.lock")).with_suffix("") / "out"
    out.mkdir(parents=True)
    (out / "kept").touch()  # so that its directory stays
    held = [p for p in (lab.home / "work").rglob("*") if p.is_symlink() or not p.is_dir()]
    for i, path in enumerate(held):  # what goes at the end frees no page
        os.link(path, lab.home / f"page-{i}", follow_symlinks=False)
    full_disk()
    lab.server.kill()
    lab.go()
    lab.wait_until(lambda: "result-not-on-disk" in ids(lab.log()), "the spool that is full")
    assert not [p for p in (lab.home / "spool").rglob("*") if p.is_file()]  # nothing half-written
    lab.server.start()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "finished"] and lab.trial(sid).objective == 0.1


def test_a_worker_without_disk_hands_its_trials_back_and_one_with_disk_runs_them(
    lab, full_disk
) -> None:
    """F24: work directories cannot be made; the trial is not charged and the reason is shown."""
    sid = lab.steered(2)
    lab.go()
    full_disk()
    lab.worker()
    lab.wait_until(lambda: "disk-full" in ids(lab.log()), "the trial handed back")
    assert "No space left" in lab.refusal(sid).text
    elsewhere = lab.folder / "elsewhere"
    elsewhere.mkdir()
    for name in ("code.key", "id"):  # it knows the user's directory, too
        shutil.copy(lab.home / name, elsewhere)
    lab.worker(HPQ_HOME=str(elsewhere))
    lab.wait_over(sid)
    assert {t.state for t in lab.reader.trials.all(sid)} == {TrialState.FINISHED}
    reasons = {e.fields["reason"] for e in lab.reader.events.read(sid) if e.what == "requeued"}
    assert reasons == {"worker_fault"}


def test_a_trial_that_fills_the_disk_fails_with_its_own_error(lab, full_disk) -> None:
    """Files: a program writes to HPQ_OUT until the disk is full; the next one has room."""
    lab.write(
        "train.py",
        """
        import os, sys
        path = os.path.join(os.environ["HPQ_OUT"], "big")
        if sys.argv[1] == "--x=1":
            try:
                with open(path, "wb") as file:
                    while True:
                        file.write(b"x" * 4096)
            except OSError:
                os.truncate(path, 0)
                raise
        print("loss=1")
        """,
    )
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.state is TrialState.FAILED and "No space left" in trial.failure.message
    assert lab.trial(sid, 2).state is TrialState.FINISHED


def test_a_disk_that_others_fill_is_not_charged_to_the_trial_and_no_further_one_starts(
    lab, full_disk
) -> None:
    lab.write(
        "train.py",
        """
        import os, pathlib, time
        pathlib.Path("began").touch()
        while not pathlib.Path("go").exists():
            time.sleep(0.01)
        pathlib.Path(os.environ["HPQ_OUT"], "model").write_bytes(bytes(50_000))
        print("loss=1")
        """,
    )
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_for("began")
    full_disk()
    lab.go()
    why = lab.refusal(sid)
    lab.wait_until(lambda: "requeued" in lab.events(sid), "the trial to return")
    assert why.code == "disk-full" and "No space left" in why.text and str(lab.home) in why.text
    trial = lab.trial(sid, 1)
    assert (trial.state, trial.failure) == (TrialState.QUEUED, None)
    assert lab.trial(sid, 2).attempt == 0


def test_a_code_directory_that_vanishes_while_its_trial_starts_is_not_charged(lab) -> None:
    project = lab.folder / "project"
    project.mkdir()
    text = "import os, shutil\nshutil.rmtree(os.getcwd())\nopen('data')\n"
    (project / "train.py").write_text(text)
    (project / "sweep.yaml").write_text(SWEEP)
    done = run_hpq(("enqueue", "sweep.yaml", "--live"), project, lab.env, DEADLINE_S)
    sid = done.stdout.strip()
    lab.worker()
    lab.refusal(sid)
    lab.wait_until(lambda: "requeued" in lab.events(sid), "the trial to return")
    trial = lab.trial(sid, 1)
    assert (trial.state, trial.failure) == (TrialState.QUEUED, None)
    reasons = [e.fields["reason"] for e in lab.reader.events.read(sid) if e.what == "requeued"]
    assert reasons == ["worker_fault"]


def test_a_trainer_that_always_dies_fails_in_the_end(lab) -> None:
    """F2, F23: SIGKILL at each start, as by the kernel out of memory; failed after one retry."""
    lab.write("dies.py", "import os\ndef train(params, trial):\n    os.kill(os.getpid(), 9)\n")
    sid = lab.enqueue("trainer: dies:train\nmethod: grid\nparameters: {x: {value: 1}}\n")
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.state is TrialState.FAILED and trial.attempt == 2
    assert trial.failure.message == "killed by SIGKILL"


@pytest.mark.slow
def test_a_runner_that_cannot_start_its_thread_is_ended_and_its_trial_runs_again(lab) -> None:
    """`Thread.start` never returns if the thread dies of a lack of memory before it runs."""
    (lab.folder / "starved").mkdir()
    (lab.folder / "starved" / "sitecustomize.py").write_text(
        "import os, sys, threading, time\n"
        f"mark = {str(lab.folder / 'hung')!r}\n"
        "if 'hpq_worker.runner' in sys.orig_argv and not os.path.exists(mark):\n"
        "    open(mark, 'w').close()\n"
        "    threading.Thread.start = lambda self: time.sleep(10_000)\n",
        "utf-8",
    )
    lab.go()
    sid = lab.steered(1)
    lab.worker(PYTHONPATH=str(lab.folder / "starved"))
    lab.wait_over(sid)
    assert (lab.folder / "hung").exists()
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
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


@pytest.mark.skipif(sys.platform != "linux", reason="prlimit is Linux's")
def test_a_worker_without_memory_at_the_end_of_a_trial_ends_it_all_the_same(lab) -> None:
    """RLIMIT_AS refuses the worker all memory while its trial ends and its files are stored."""
    lab.write("train.py", KEEPS)
    sid = lab.enqueue(SWEEP.replace("[1, 2]", "[1]"))
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
