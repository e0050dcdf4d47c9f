"""Programs, as W&B's sweep files name them: arguments in, printed lines and reports out."""

from __future__ import annotations

import pytest

from hpq.domain.trial import TrialId, TrialState
from tests.support.ids import ids

PRINTS = """
    import argparse, sys

    p = argparse.ArgumentParser()
    p.add_argument("--lr", type=float)
    p.add_argument("--layers", type=int)
    args = p.parse_args()
    print(f"lr={args.lr}")          # an echo of a parameter is no metric
    print("layers =", args.layers)
    print("not a metric = at all")
    for epoch in range(3):
        print(f"val_loss={args.lr * (3 - epoch)}")
    print("a word on stderr", file=sys.stderr)
    print(f"val_loss={args.lr}", end="")  # no line end at the end
"""
SWEEP = """
    program: train.py
    method: grid
    metric: {name: val_loss, goal: minimize}
    parameters:
      lr: {values: [0.5, 0.1]}
      layers: {values: [2]}
"""


def test_a_program_sweep_runs_to_its_end_and_its_printed_lines_are_the_metric(lab) -> None:
    lab.write("train.py", PRINTS)
    sid = lab.enqueue(SWEEP)
    lab.worker(2)
    lab.wait_over(sid)
    trials = list(lab.reader.trials.all(sid))
    assert [t.state for t in trials] == [TrialState.FINISHED] * 2
    assert [t.objective for t in trials] == [0.5, 0.1]
    assert [dict(t.metrics) for t in trials] == [{"val_loss": 0.5}, {"val_loss": 0.1}]
    history = lab.reader.trials.metric_history(TrialId(sweep=sid, number=1), "val_loss")
    assert [p.step for p in history] == [1, 2, 3, 4]
    log = lab.ok("logs", f"{sid}/2")
    assert "lr=0.1\nlayers = 2\n" in log and "a word on stderr" in log and "val_loss=0.1" in log
    assert set(lab.ok("best", sid, "--args").split()) == {"--lr=0.1", "--layers=2"}


def test_a_console_script_on_path_is_a_program(lab) -> None:
    tool = lab.write("bin-mytool", "#!/bin/sh\necho val_loss=0.5\ntouch here\n")
    (lab.folder / "bin").mkdir()
    tool.chmod(0o755)
    tool.rename(lab.folder / "bin" / "mytool")
    env = {"PATH": f"{lab.folder / 'bin'}:{lab.env['PATH']}"}
    sid = lab.enqueue(SWEEP.replace("train.py", "mytool"), **env)
    lab.worker(**env)
    lab.wait_over(sid)
    assert [t.objective for t in lab.reader.trials.all(sid)] == [0.5, 0.5]


def test_a_program_reports_through_the_socket_with_and_without_a_step(lab) -> None:
    lab.write(
        "train.py",
        """
        import hpq, sys
        for i in range(3):
            hpq.report({"val": {"loss": 3 - i, "deep": {"er": i}}})
        hpq.report({"at": 0.5}, step=40)
        hpq.report({"val.loss": 0.25}, step=41)
        """,
    )
    sid = lab.enqueue(
        """
        program: train.py
        method: grid
        metric: {name: val.loss}
        parameters: {x: {value: 1}}
        """
    )
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.objective == 0.25 and trial.step == 41
    assert dict(trial.metrics) == {"val.loss": 0.25, "val.deep.er": 2.0, "at": 0.5}
    history = lab.reader.trials.metric_history(trial.id, "val.loss")
    assert [(p.step, p.value) for p in history] == [(1, 3), (2, 2), (3, 1), (41, 0.25)]


def test_a_worker_started_before_the_first_enqueue_takes_what_is_signed_later(lab) -> None:
    lab.worker()
    lab.wait_until(lambda: lab.reader.workers.live(), "a worker")
    lab.write("train.py", PRINTS)
    sid = lab.enqueue(SWEEP)
    lab.wait_over(sid)
    assert lab.reader.sweeps.get(sid).counts.finished == 2
    assert ids(lab.log()) == []


@pytest.mark.slow
def test_garbage_on_the_report_socket_harms_nobody(lab) -> None:
    """B7: random bytes and wrong types on the report socket."""
    lab.write(
        "train.py",
        """
        import os, socket
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        for data in (
            b"\\xff\\x00", b"[]", b"{}", b"5", b'{"report": 5, "step": 1}',
            b'{"report": {"a": "x"}, "step": 1}', b'{"report": {"a": 1}, "step": "x"}',
            b'{"report": {"a": 1}, "step": NaN}', b'{"report": {"a": 1}, "step": [1]}',
            b'{"report": {"a": 1}, "step": 1' + b"0" * 400 + b"}",
            b'{"report": {"a": 1' + b"0" * 400 + b'}, "step": 1}',
            b'{"report": {"a": [1]}, "step": 1}', b"[" * 5000, b"", b'{"exit_code": Infinity}',
            b'{"exit_code": null}', b'{"exit_code": "x"}',
            b'{"report": {"loss": 0.5}, "step": 7}',
        ):
            sock.sendto(data, os.environ["HPQ_REPORT"])
        """,
    )
    sid = lab.enqueue(
        "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {value: 1}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert (trial.state, trial.objective, trial.attempt) == (TrialState.FINISHED, 0.5, 1)
    assert trial.step == 7


def test_an_empty_datagram_ends_no_reporting(lab) -> None:
    lab.write(
        "empty.py",
        """
        import os, socket
        import hpq

        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(b"", os.environ["HPQ_REPORT"])
        for step in range(2000):
            hpq.report({"loss": 0.5}, step=step)
        """,
    )
    sid = lab.enqueue(
        "program: empty.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1]}}\n"
    )
    lab.worker()
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert (trial.state, trial.step, trial.objective) == ("finished", 1999, 0.5)


def test_the_sweeps_own_metric_is_taken_however_many_others_there_are(lab) -> None:
    lab.write(
        "many.py",
        """
        import hpq

        hpq.report({f"n{i:02}": i for i in range(60)})
        hpq.report({"loss": 0.5})
        """,
    )
    text = (
        "program: many.py\nmethod: grid\nmetric: {{name: {}}}\nparameters: {{x: {{values: [1]}}}}\n"
    )
    sid = lab.enqueue(text.format("loss"))
    other = lab.enqueue(text.format("other"))
    lab.worker()
    lab.wait_over(sid)
    lab.wait_over(other)
    assert lab.trial(sid).objective == 0.5
    failure = lab.trial(other).failure
    assert failure is not None and "50" in failure.message


def test_a_command_that_names_what_it_starts_needs_no_program(lab) -> None:
    lab.write("train.py", PRINTS)
    sid = lab.enqueue(SWEEP.replace("program: train.py", 'command: [python3, train.py, "${args}"]'))
    lab.worker(1)
    lab.wait_over(sid)
    assert [t.objective for t in lab.reader.trials.all(sid)] == [0.5, 0.1]
    assert "python3 train.py" in lab.ok("show", sid)


def test_a_metric_inside_text_ranks_and_a_trial_without_it_finishes_with_a_warning(lab) -> None:
    lab.write(
        "train.py",
        """
        import sys
        way = sys.argv[1].removeprefix("--way=")
        for epoch in (1, 2, 3, 4, 5):
            if way == "text":
                print(f"Epoch {epoch}/5: 10/10 - loss: 0.9 - val_loss: {0.5 / epoch}")
            if way == "near":
                print(f"Epoch {epoch}: Val-Loss: {0.5 / epoch}")
        """,
    )
    text = """
        program: train.py
        method: {method}
        run_cap: {cap}
        metric: {{name: val_loss}}
        parameters: {{way: {{values: [{ways}]}}}}
        """
    sid = lab.enqueue(text.format(method="grid", cap=3, ways="near, none, text"))
    lab.worker()
    lab.wait_over(sid)
    near, none, said = lab.reader.trials.all(sid)
    assert [t.state for t in (near, none, said)] == [TrialState.FINISHED] * 3
    assert (near.objective, none.objective, said.objective) == (None, None, 0.1)
    assert dict(near.metrics) == {"Val-Loss": 0.1} and said.failure is None
    assert none.failure.kind.value == near.failure.kind.value == "unreported"
    assert "'Val-Loss' as metric.name" in lab.ok("logs", near.id), "while the trial ran"
    assert "'Val-Loss' as metric.name" in lab.ok("show", near.id)
    assert "val_loss=0.31" in lab.ok("show", none.id)
    assert lab.ok("best", sid, "--args").split() == ["--way=text"]

    sid = lab.enqueue(text.format(method="bayes", cap=1, ways="none, near"))
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.FAILED, "bayes needs the value"


def test_the_runner_of_one_program_runs_the_next_which_finds_nothing_of_the_first(lab) -> None:
    """Neither a process, nor a variable, nor another directory."""
    lab.write("train.py", f"""
        import os, pathlib, subprocess, sys
        mark = pathlib.Path({str(lab.folder / "mark")!r})
        left = 0
        if mark.exists():
            try:
                os.kill(int(mark.read_text()), 0)
                left += 1
            except ProcessLookupError:
                pass
        stays = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"],
                                 start_new_session=True, stdout=subprocess.DEVNULL)
        mark.write_text(str(stays.pid))
        left += "LEFT" in os.environ
        os.environ["LEFT"] = "1"
        print(f"runner={{os.getppid()}}")
        print(f"val_loss={{left}}")
        os.chdir("/")
        """)  # fmt: skip
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_over(sid)
    first, second = lab.reader.trials.all(sid)
    assert first.metrics["runner"] == second.metrics["runner"]
    assert (first.objective, second.objective) == (0, 0)


def test_a_program_that_does_not_wait_for_its_output_leaves_that_to_no_other(lab) -> None:
    """O_NONBLOCK belongs to the pipe, which the programs share."""
    lab.write("train.py", """
        import os, sys
        if "--lr=0.5" in sys.argv:
            os.set_blocking(1, False)
        else:
            os.write(2, b"line\\n" * 200_000)
        print("val_loss=1")
        """)  # fmt: skip
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_over(sid)
    assert [t.objective for t in lab.reader.trials.all(sid)] == [1, 1]
