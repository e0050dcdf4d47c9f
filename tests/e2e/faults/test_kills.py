"""What is killed, and that every trial ends exactly once all the same."""

from __future__ import annotations

import json
import os
import signal
import tempfile
from pathlib import Path

import pytest

from hpq.domain.sweep import SweepState
from hpq.domain.trial import TrialState
from hpq_worker.process.config import WorkerConfig, start
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids

BELOW = """
    import os, subprocess, sys, time
    from pathlib import Path
    # A grandchild in a session of its own, as torchrun's ranks are.
    below = "import os, time; os.setsid(); open('below', 'w').close(); time.sleep(1000)"
    Path("below").unlink(missing_ok=True)  # that of an attempt before
    subprocess.Popen([sys.executable, "-c", below])
    while not Path("below").exists():
        time.sleep(0.01)
    Path("began").touch()
    while not Path("go").exists():
        time.sleep(0.01)
    print("loss=1")
"""
MARKS = """
    import os, time
    from pathlib import Path
    Path("began-" + os.environ["HPQ_TRIAL_ID"].partition("/")[2]).touch()
    while not Path("go").exists():
        time.sleep(0.01)
    print("loss=1")
"""
NEVER = "3600"  # seconds: no lease ends while a test waits
SWEEP = "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {value: 1}}\n"


@pytest.mark.slow
def test_a_killed_worker_leaves_no_process_and_another_finishes_its_trial(lab) -> None:
    """F1, F3, R14: kill -9 of the parent; its fleet starts another, nothing below it is left."""
    lab.write("train.py", BELOW)
    sid = lab.enqueue(SWEEP)
    lab.worker(HPQ_LEASE_S=NEVER)
    lab.wait_for("began")
    first = lab.parent()
    assert lab.processes("time.sleep")
    (lab.code / "began").unlink()
    os.kill(first, signal.SIGKILL)
    lab.wait_for("began")
    assert len(lab.processes("time.sleep")) == 1  # that of the second attempt
    assert lab.parent() != first
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]
    assert not lab.processes("time.sleep")
    assert ids(lab.printed(sid)) == ["training-restarted"]
    attempts = json.loads(lab.ok("show", f"{sid}/1", "--json"))["attempts"]
    assert [one["end"] for one in attempts] == ["lost", "finished"]


@pytest.mark.slow
def test_a_worker_that_starts_where_another_was_killed_requeues_its_trial_at_once(lab) -> None:
    """F3: kill -9 of all its processes, as a container's end; one that lives beside it goes on."""
    sid = lab.steered(2)
    lab.worker(HPQ_LEASE_S=NEVER)
    lab.wait_for("began-1-1")
    doomed = lab.processes()
    lab.worker(HPQ_LEASE_S=NEVER)
    lab.wait_for("began-2-1")
    lab.kill(doomed)
    lab.worker(HPQ_LEASE_S=NEVER)
    lab.wait_for("began-1-2")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]
    assert lab.events(sid, 2) == ["claimed", "finished"]


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


@pytest.mark.slow
def test_a_trial_of_a_killed_worker_goes_to_another_that_lives(lab) -> None:
    """F1, R7: kill -9 of one of two parents, while the other trains."""
    sid = lab.steered(2)
    lab.worker(2)
    lab.wait_for("began-1-1")
    lab.wait_for("began-2-1")
    worker = lab.trial(sid).worker
    os.kill(int(worker.split("-")[-2]), signal.SIGKILL)
    lab.end_lease(sid)
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]
    assert lab.events(sid, 2) == ["claimed", "finished"]


def test_a_killed_runner_is_tried_again(lab) -> None:
    """F2: kill -9 of the runner only; tried again at once, as `killed`."""
    sid = lab.steered(1)
    lab.worker()
    os.kill(lab.wait_for("began-1-1"), signal.SIGKILL)
    lab.wait_for("began-1-2")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]
    requeued = next(e for e in lab.reader.events.read(sid) if e.what == "requeued")
    assert requeued.fields["reason"] == "killed"


@pytest.mark.slow
@pytest.mark.parametrize("victims", [("runner",), ("runner", "consumer")])
def test_a_killed_runner_leaves_nothing_of_its_program_even_if_its_worker_dies_with_it(
    lab, victims
) -> None:
    """F2, F3: kill -9 of the runner, and of runner and parent; the program has set itself apart."""
    lab.write("train.py", BELOW)
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_for("began")
    (lab.code / "began").unlink()
    below = set(lab.processes(r"time\.sleep|train\.py"))
    assert len(below) == 2
    doomed = [pid for name in victims for pid in lab.processes(rf"-m hpq_worker\.{name}")]
    assert len(doomed) == len(victims)
    lab.kill(doomed)
    lab.wait_until(lambda: not below & set(lab.processes()), "the end of the program")
    if "consumer" in victims:
        lab.end_lease(sid)
    lab.wait_for("began")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]


def test_a_living_worker_clears_the_disk_of_what_a_killed_one_has_left(lab) -> None:
    """F3: kill -9 of a fleet, its parent and its runner; another worker shares its HPQ_HOME."""
    with tempfile.TemporaryDirectory(prefix="t-") as short:
        tmp = Path(short)
        lab.env["TMPDIR"] = short
        (tmp / "hpq-of-another").mkdir()
        lab.write("train.py", MARKS)
        sid = lab.enqueue(SWEEP.replace("{value: 1}", "{values: [1, 2]}"))
        lab.worker()
        lab.wait_for("began-1")
        mine = set(lab.processes())
        lab.worker()
        lab.wait_for("began-2")
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


@pytest.mark.slow
def test_a_worker_that_was_frozen_past_its_lease_commits_nothing(lab) -> None:
    """F4, R6: SIGSTOP of the parent past its lease, then SIGCONT; the other attempt counts."""
    sid = lab.steered(1)
    lab.worker()
    first = lab.wait_for("began-1-1")
    frozen = lab.parent()
    os.kill(frozen, signal.SIGSTOP)
    try:
        lab.worker()
        lab.end_lease(sid)
        lab.wait_for("began-1-2")
    finally:
        os.kill(frozen, signal.SIGCONT)
    lab.wait_until(lambda: first not in lab.processes(), "the end of the first attempt")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]
    lab.wait_until(lambda: "attempt-lost" in ids(lab.log(0)), "the first worker's line")


def test_a_trainer_that_always_dies_fails_in_the_end(lab) -> None:
    """F2, F23: SIGKILL at each start, as by the kernel out of memory; failed after one retry."""
    lab.write("dies.py", "import os\ndef train(params, trial):\n    os.kill(os.getpid(), 9)\n")
    sid = lab.enqueue("trainer: dies:train\nmethod: grid\nparameters: {x: {value: 1}}\n")
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.state is TrialState.FAILED and trial.attempt == 2
    assert trial.failure.message == "killed by SIGKILL"


def test_a_worker_told_to_stop_gives_its_trial_back_uncharged_and_to_the_front(lab) -> None:
    """F6: SIGTERM in the midst of a trial."""
    sid = lab.steered(2)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    fleet.terminate()
    assert fleet.wait() == 0
    assert lab.events(sid) == ["claimed", "requeued"]
    assert lab.reader.sweeps.get(sid).counts.queued == 2 and not lab.processes()
    assert lab.reader.workers.live() == []
    lab.worker()
    lab.wait_for("began-1-2")
    assert lab.trial(sid, 2).attempt == 0
    lab.go()
    lab.wait_over(sid)


def test_a_program_told_to_stop_gets_sigterm_and_its_trial_is_given_back(lab) -> None:
    """F6, R8: SIGTERM reaches the program itself."""
    lab.write(
        "train.py",
        """
        import signal, sys, time
        from pathlib import Path
        signal.signal(signal.SIGTERM, lambda *_: (Path("told").touch(), sys.exit(0)))
        Path("began").touch()
        while not Path("go").exists():
            time.sleep(0.01)
        print("loss=1")
        """,
    )
    sid = lab.enqueue(SWEEP)
    fleet = lab.worker()
    lab.wait_for("began")
    fleet.terminate()
    assert fleet.wait() == 0
    assert (lab.code / "told").exists() and lab.events(sid) == ["claimed", "requeued"]
    lab.go()
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.FINISHED


@pytest.mark.parametrize("how", ["exit(0)", "die"])
def test_a_sigterm_to_all_processes_of_a_job_counts_once_and_charges_nothing(lab, how) -> None:
    """F6: as Slurm's proctrack plugins and systemd send it. The program may even end in peace."""
    lab.write(
        "train.py",
        f"""
        import signal, sys, time
        from pathlib import Path
        if {how == "exit(0)"}:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        print("loss=2", flush=True)
        Path("began").touch()
        while not Path("go").exists():
            time.sleep(0.01)
        print("loss=1")
        """,
    )
    sid = lab.enqueue(SWEEP)
    fleet = lab.worker()
    lab.wait_for("began")
    lab.wait_until(lambda: "loss=2" in lab.printed(sid), "its first report")
    for pid in sorted(lab.processes(), reverse=True):  # the program first
        os.kill(pid, signal.SIGTERM)
    assert fleet.wait() == 0
    assert lab.events(sid) == ["claimed", "requeued"], lab.log()
    lab.go()
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.FINISHED and lab.trial(sid).attempt == 2


def test_a_trainer_saves_after_a_sigterm_to_all_processes_of_a_job(lab) -> None:
    """F6: the runner outlives the signal, and the second of the worker is no second request."""
    sid = lab.steered(1)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    for pid in sorted(lab.processes(), reverse=True):
        os.kill(pid, signal.SIGTERM)
    assert fleet.wait() == 0
    assert "told to stop" in lab.printed(sid)
    assert lab.events(sid) == ["claimed", "requeued"]


def test_a_second_sigterm_does_not_wait_for_a_deaf_trial(lab) -> None:
    """F7: SIGTERM twice, with an hour of grace."""
    lab.write(
        "train.py",
        """
        import signal, time
        from pathlib import Path
        signal.signal(signal.SIGTERM, lambda *_: Path("told").touch())
        Path("began").touch()
        while True:
            time.sleep(0.01)
        """,
    )
    sid = lab.enqueue(SWEEP)
    fleet = lab.worker(HPQ_GRACE_S="3600")
    lab.wait_for("began")
    fleet.terminate()
    lab.wait_for("told")
    fleet.terminate()
    assert fleet.wait() == 0
    assert lab.events(sid) == ["claimed", "requeued"] and not lab.processes()
    lab.ok("cancel", sid, "--yes")
    lab.audit(sid)


def test_an_idle_worker_told_to_stop_goes_at_once(lab) -> None:
    """F5: SIGTERM while it waits for a ticket."""
    fleet = lab.worker(2)
    lab.wait_until(lambda: len(lab.reader.workers.live()) == 2, "two workers")
    fleet.terminate()
    assert fleet.wait() == 0
    assert lab.reader.workers.live() == [] and not lab.processes()
    assert "Traceback" not in lab.log()


@pytest.mark.slow
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


def test_no_worker_outlives_its_killed_fleet(lab) -> None:
    """F3: kill -9 of the fleet; its worker gives the trial back and goes."""
    sid = lab.steered(1)
    fleet = lab.worker()
    lab.wait_for("began-1-1")
    fleet.kill()
    lab.wait_until(lambda: not lab.processes(), "the end of the orphaned worker")
    assert lab.events(sid) == ["claimed", "requeued"]
    lab.worker()
    lab.go()
    lab.wait_over(sid)


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
