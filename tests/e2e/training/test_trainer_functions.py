"""Trainer functions of the user's own: fresh processes, resident ones, and edited code."""

from __future__ import annotations

import re

from hpq.domain.trial import TrialState


def pids(lab, sid: str, count: int) -> list[str]:
    return [re.findall(r"pid (\d+)", lab.printed(sid, n))[0] for n in range(1, count + 1)]


def test_a_trainer_function_gets_a_fresh_process_for_each_trial(lab) -> None:
    sid = lab.steered(3)
    lab.go()
    lab.worker()
    lab.wait_over(sid)
    assert len(set(pids(lab, sid, 3))) == 3
    trials = list(lab.reader.trials.all(sid))
    assert [t.objective for t in trials] == [0.1, 0.2, 0.3]  # what it returned came last
    history = lab.reader.trials.metric_history(trials[1].id, "loss")
    assert [(p.step, p.value) for p in history] == [(1, 2), (2, 2), (3, 0.2)]


def test_a_resident_trainer_keeps_its_process_but_not_past_an_edit(lab) -> None:
    first = lab.steered(3, "resident: true")
    lab.go()
    lab.worker()
    lab.wait_over(first)
    assert len(set(pids(lab, first, 3))) == 1
    path = lab.code / "steered.py"
    path.write_text(path.read_text("utf-8").replace("/ 10", "/ 100"), "utf-8")
    second = lab.steered(3, "resident: true")
    assert second != first
    lab.wait_over(second)
    assert [t.objective for t in lab.reader.trials.all(second)] == [0.01, 0.02, 0.03]
    assert len({*pids(lab, first, 3), *pids(lab, second, 3)}) == 2


def test_a_trainer_runs_the_code_that_was_enqueued_whatever_was_edited(lab) -> None:
    old = lab.steered(2)
    path = lab.code / "steered.py"
    path.write_text(path.read_text("utf-8").replace("/ 10", "/ 100"), "utf-8")
    new = lab.steered(2)
    assert new != old
    lab.go()
    lab.worker()
    lab.wait_over(new)
    lab.wait_over(old)
    assert [t.objective for t in lab.reader.trials.all(old)] == [0.1, 0.2]
    assert [t.objective for t in lab.reader.trials.all(new)] == [0.01, 0.02]


def test_a_trainer_may_report_through_hpq_as_a_program_does(lab) -> None:
    lab.write(
        "train.py",
        """
        import hpq
        def train(params, trial):
            hpq.report({"val": {"loss": 3}})
            hpq.report({"val": {"loss": 2}, "lr": 0.1}, step=5)
            trial.report({"val.loss": 1.5})
        """,
    )
    sid = lab.enqueue(
        "trainer: train:train\nmethod: grid\nmetric: {name: val.loss}\n"
        "parameters: {x: {value: 1}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.objective == 1.5 and trial.metrics["lr"] == 0.1
    history = lab.reader.trials.metric_history(trial.id, "val.loss")
    assert [(p.step, p.value) for p in history] == [(1, 3), (5, 2), (3, 1.5)]


def test_a_trainer_sees_should_stop_when_its_trial_is_cancelled(lab) -> None:
    sid = lab.steered(2)
    lab.worker(HPQ_GRACE_S="60")
    lab.wait_for("began-1-1")
    lab.ok("cancel", f"{sid}/1", "--yes")
    lab.wait_for("began-2-1")
    assert lab.trial(sid).state is TrialState.CANCELLED
    assert "told to stop" in lab.printed(sid)
    lab.go()
    lab.wait_over(sid)
    assert lab.trial(sid, 2).state is TrialState.FINISHED


def test_a_thread_that_an_attempt_left_behind_reports_nothing_for_the_next(lab) -> None:
    lab.write(
        "busy.py",
        """
        import threading, time
        over = threading.Event()

        def nag(report):
            while not over.wait(0.001):
                report({"loss": -999.0})

        def train(params, trial):
            if params["x"] == 1:
                threading.Thread(target=nag, args=(trial.report,), daemon=True).start()
                return {"loss": 1.0}
            for step in range(20):
                trial.report({"loss": 5.0}, step=step)
                time.sleep(0.005)
            over.set()
        """,
    )
    sid = lab.enqueue(
        "trainer: busy:train\nresident: true\nmethod: grid\nmetric: {name: loss, value: best}\n"
        "parameters: {x: {values: [1, 2]}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid, 2).objective == 5.0
    assert {p.value for p in lab.reader.trials.metric_history(lab.trial(sid, 2).id, "loss")} == {
        5.0
    }


def test_garbage_on_the_runners_pipe_is_the_trials_own_failure(lab) -> None:
    lab.write(
        "garbage.py",
        """
        import os

        def train(params, trial):
            for fd in range(3, 64):
                try:
                    if os.readlink(f"/proc/self/fd/{fd}").startswith("pipe:"):
                        os.write(fd, b"no message\\n")
                except OSError:
                    pass
            return {"loss": 1.0}
        """,
    )
    sid = lab.enqueue(
        "trainer: garbage:train\nresident: true\nmethod: grid\nmetric: {name: loss}\n"
        "parameters: {x: {values: [1]}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    failure = lab.trial(sid).failure
    assert failure is not None and "pipe" in failure.message
