"""The guards on real processes: stalls, the breaker, and the worker that fails alone."""

from __future__ import annotations

import pytest

from tests.support.ids import ids

HEAD = "method: grid\nmetric: {name: loss, goal: minimize}\n"

STALLS = """
    import os, subprocess, threading, time
    from pathlib import Path

    def waits_for_ever():
        threading.Lock().acquire() or never
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()

    def train(params, trial):
        if os.environ.get("HPQ_NODE") == params["only"]:
            return {"loss": 0.25}
        while not Path("still").exists():
            print("still training", flush=True)
            time.sleep(0.05)
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
        waits_for_ever()
"""
STALLED_PROGRAM = """
    import subprocess, sys, time

    def waits_for_ever():
        subprocess.Popen([sys.executable, __file__, "child"], start_new_session=True)
        time.sleep(1000)

    if "child" in sys.argv:
        time.sleep(1000)
    waits_for_ever()
"""
BREAKS = """
    import os, pathlib

    if os.environ.get("HPQ_NODE") in pathlib.Path("broken").read_text().split():
        raise KeyError("gpu")
    print("loss=1")
"""


def test_a_stalled_trainer_leaves_its_stacks_and_is_tried_on_another_host(lab) -> None:
    """Guards: a trainer waits for ever for a lock, on one of two hosts."""
    lab.write("stalls.py", STALLS)
    sid = lab.enqueue(
        f"trainer: stalls:train\nstall: 10\n{HEAD}parameters: {{only: {{value: two}}}}\n"
    )
    lab.worker(HPQ_NODE="one")
    lab.wait_until(lambda: lab.has_claimed(sid), "the first attempt")
    lab.worker(HPQ_NODE="two")
    lab.wait_until(lambda: len(lab.reader.workers.live()) == 2, "the other host")
    lab.write("still", "")
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert (trial.state.value, trial.attempt, trial.host) == ("finished", 2, "two")
    assert "in waits_for_ever" in lab.printed(sid) and "stalls.py" in lab.printed(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]
    assert not lab.processes("sleep")


@pytest.mark.parametrize("launch", ["trainer: stalls:train", "program: stalled.py"])
def test_what_stalls_twice_has_failed_and_nothing_of_it_is_left(lab, launch) -> None:
    """Guards: a trial hangs wherever it runs, with children in sessions of their own."""
    lab.write("stalls.py", STALLS)
    lab.write("stalled.py", STALLED_PROGRAM)
    lab.write("still", "")
    sid = lab.enqueue(f"{launch}\nstall: 10\n{HEAD}parameters: {{only: {{value: nowhere}}}}\n")
    lab.worker()
    lab.wait_over(sid)
    failure = lab.trial(sid).failure
    assert (failure.kind.value, lab.trial(sid).attempt) == ("stalled", 2)
    assert all(f"hpq {verb} {sid}" in failure.message for verb in ("set", "retry"))
    assert "in waits_for_ever" in lab.printed(sid)
    lab.wait_for_no_process(r"sleep|stalled\.py")


def test_a_worker_that_fails_what_passes_elsewhere_steps_back_and_says_why(lab) -> None:
    """F24: one of two hosts fails every trial."""
    lab.write("train.py", BREAKS)
    lab.write("broken", "sick")
    values = list(range(40))
    lab.worker(HPQ_NODE="sick")
    lab.worker(HPQ_NODE="sound")
    lab.wait_until(lambda: len(lab.reader.workers.live()) == 2, "both workers")
    sid = lab.enqueue(f"program: train.py\n{HEAD}parameters: {{x: {{values: {values}}}}}\n")
    lab.wait_over(sid)
    trials = lab.reader.trials.all(sid)
    failed = [t for t in trials if t.failure]
    assert all(t.host == "sick" for t in failed) and len(failed) < 5
    assert lab.reader.sweeps.get(sid).why_held == ""
    assert "worker-suspect" in ids(lab.log(0)) and "KeyError: 'gpu'" in lab.log(0)


BAD_ONES = """
    import sys

    if int(sys.argv[1].partition("=")[2]) % 2:
        raise KeyError("lr")
    print("loss=1")
"""


def test_a_retry_of_bad_trials_leaves_the_sweep_alone(lab) -> None:
    """Guards: of 14 trials each second one fails, also when `hpq retry` queues it again."""
    lab.write("train.py", BAD_ONES)
    lab.worker()
    sid = lab.enqueue(
        f"program: train.py\n{HEAD}parameters: {{x: {{values: {list(range(14))}}}}}\n"
    )
    lab.wait_over(sid)
    lab.ok("retry", sid)
    lab.wait_over(sid)
    sweep = lab.reader.sweeps.get(sid)
    assert (sweep.counts.finished, sweep.counts.failed, sweep.why_held) == (7, 7, "")
    events = lab.reader.events.read(sid)
    assert sum(e.what == "claimed" for e in events) == 14 + 7
    waited = lab.hpq("wait", sid)
    assert waited.returncode == 1 and ids(waited.stderr) == ["trials-failed"]


BREAKS_LATER = """
    import sys

    if int(sys.argv[1].partition("=")[2]) > 2:
        raise KeyError("lr")
    print("loss=1")
"""


@pytest.mark.parametrize("workers", [1, 2], ids=["the only worker", "two workers"])
@pytest.mark.parametrize("rule", ["first five", "eight of ten"])
def test_a_sweep_that_fails_alike_is_held_and_one_line_says_what_to_do(lab, rule, workers) -> None:
    """Guards: five of the first five, or eight of ten trials, fail alike."""
    lab.write("train.py", BREAKS_LATER)
    lab.worker(workers)
    lab.wait_until(lambda: len(lab.reader.workers.live()) == workers, "the workers")
    values = range(3 if rule == "first five" else 1, 40)
    file = f"program: train.py\n{HEAD}parameters: {{x: {{values: {list(values)}}}}}\n"
    if rule == "first five":
        sid = lab.enqueue(file)
    else:  # one at a time until both that pass have ended
        sid = lab.enqueue(f"{file}max_parallel: 1\n")
        lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.finished == 2, "two that pass")
        lab.ok("set", sid, "max_parallel=0")
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).why_held, "the hold")
    lab.wait_until(lambda: not lab.reader.sweeps.get(sid).counts.running, "the end of what ran")
    counts, held = lab.reader.sweeps.get(sid).counts, lab.reader.sweeps.get(sid).why_held
    same, of = (int(word) for word in held.split(" trials failed: KeyError")[0].split(" of "))
    assert held.endswith(" KeyError train.py:5") and (same == of or (same == 8 and of == 10)), held
    assert counts.failed < 10 and counts.queued > 25  # not burned
    assert workers == 2 or held.startswith("5 of 5" if rule == "first five" else "8 of 10")
    waited = lab.hpq("wait", sid)
    said = " ".join(waited.stderr.split())
    assert waited.returncode == 5
    assert ids(waited.stderr) == ["sweep-held", "sweep-held-remedy", "trials-failed"]
    assert held in said and f"hpq retry {sid}" in said
    lab.ok("cancel", sid, "--yes")
    lab.wait_over(sid)
