"""Trials that go wrong in every way we could think of: each gets its own line, no worker minds."""

from __future__ import annotations

import re

import pytest

from hpq.domain.sweep import SweepState
from hpq.domain.trial import TrialState
from tests.support.ids import ids

PROGRAM = """
    import argparse, os, shutil, signal, subprocess, sys, time

    p = argparse.ArgumentParser()
    p.add_argument("--mode")
    mode = p.parse_args().mode

    def raises():
        {}["nope"]

    def memory():
        raise MemoryError

    def daemon():
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(1000)  # with our stdout still open
            os._exit(0)

    def silent_but_reports():
        import hpq
        hpq.report({"loss": 1.0})
        os.close(1)
        os.close(2)

    ways = {
        "raises": raises,
        "memory": memory,
        "exits": lambda: sys.exit(3),
        "prints nothing": lambda: os._exit(0),
        "another name": lambda: (print("acc=1"), sys.stdout.flush(), os._exit(0)),
        "nan": lambda: (print("loss=nan"), sys.stdout.flush(), os._exit(0)),
        "kills itself": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "reports and dies": lambda: (
            print("loss=1.0", flush=True), os.kill(os.getpid(), signal.SIGKILL)
        ),
        "crashes": lambda: os.kill(os.getpid(), signal.SIGSEGV),
        "long line": lambda: print("x" * 10_000_000),
        "bytes": lambda: sys.stdout.buffer.write(b"\\xff\\xfe=1\\n\\x00\\x1b[31m\\n"),
        "no line end": lambda: (print("loss=0.25", end=""), sys.stdout.flush(), os._exit(0)),
        "daemon": daemon,
        "no out": lambda: shutil.rmtree(os.environ["HPQ_OUT"]),
        "no socket": lambda: shutil.rmtree(os.path.dirname(os.environ["HPQ_REPORT"])),
        "closes stdout": silent_but_reports,
        "argument": lambda: None,
    }
    ways[mode]()
    if mode != "closes stdout":
        print("loss=1.0")
"""
TRAINER = """
    import os, subprocess, sys, threading, time

    class Whole:  # as numpy's and torch's whole numbers are
        def __int__(self): return 7
        def __index__(self): return 7
        def __eq__(self, other): return other == 7

    def chatter():
        while True:
            try:
                os.write(1, b"and on and on\\n" * 100)
            except OSError:
                return

    def raises(trial):
        raise ValueError("\\udcff is \\x1b[31mred\\nand long")

    def interrupts(trial):
        raise KeyboardInterrupt

    def talks_on(trial):
        threading.Thread(target=chatter, daemon=True).start()

    def surrogates(trial):
        trial.phase("\\udcff\\ud800")
        time.sleep(0.4)

    def forks(trial):
        subprocess.Popen(["sleep", "1000"], start_new_session=True)

    def no_fds(trial):
        os.closerange(3, 256)

    WAYS = {
        "raises": raises,
        "interrupts": interrupts,
        "exits 3": lambda t: sys.exit(3),
        "exits 0": lambda t: sys.exit(0),
        "leaves 0": lambda t: os._exit(0),
        "leaves 7": lambda t: os._exit(7),
        "closes stdout": lambda t: sys.stdout.close(),
        "step nan": lambda t: t.report({"loss": 1}, step=float("nan")),
        "step half": lambda t: t.report({"loss": 1}, step=0.5),
        "step huge": lambda t: t.report({"loss": 1}, step=10**400),
        "value huge": lambda t: t.report({"loss": 10**400}),
        "step of numpy": lambda t: t.report({"loss": 1}, step=Whole()),
        "talks on": talks_on,
        "surrogates": surrogates,
        "forks": forks,
        "closes all": no_fds,
    }

    def train(params, trial):
        way = WAYS[params["mode"]](trial)
        return {"loss": 0.5}

    def diverges(params, trial):
        return {"loss": float("nan")}
"""

FAILS = {
    "raises": ("user_error", "exit status 1: KeyError: 'nope'", 1),
    "memory": ("out_of_memory", "exit status 1: MemoryError", 2),
    "exits": ("user_error", "exit status 3", 1),
    "prints nothing": ("unreported", "", 1),
    "another name": ("unreported", "", 1),
    "nan": ("diverged", "", 1),
    "kills itself": ("killed", "killed by SIGKILL", 2),
    "reports and dies": ("killed", "killed by SIGKILL", 2),
    "crashes": ("killed", "killed by SIGSEGV", 2),
}
ENDS_WELL = {
    "long line": 1.0,
    "bytes": 1.0,
    "no line end": 0.25,
    "daemon": 1.0,
    "no out": 1.0,
    "no socket": 1.0,
    "closes stdout": 1.0,
}
TRAINER_FAILS = {
    "raises": ("user_error", "ValueError: ? is \x1b[31mred and long", 1),
    "interrupts": ("user_error", "KeyboardInterrupt()", 1),
    "exits 3": ("user_error", "SystemExit: 3", 1),
    "exits 0": ("unreported", "", 1),
    "leaves 0": ("user_error", "", 1),
    "leaves 7": ("user_error", "exit status 7", 1),
    "step nan": ("user_error", "ValueError: step nan ", 1),
    "step half": ("user_error", "ValueError: step 0.5 ", 1),
    "step huge": ("user_error", "ValueError: step 1", 1),
    "value huge": ("user_error", "ValueError: metric 'loss': 1", 1),
}
TRAINER_ENDS_WELL = ("closes stdout", "step of numpy", "talks on", "surrogates", "forks")


def sweep_of(modes, launch: str) -> str:
    return (
        f"{launch}\nmethod: grid\nmetric: {{name: loss}}\n"
        f"parameters: {{mode: {{values: {list(modes)}}}}}\n"
    )


def failures(lab, sid: str) -> dict[str, tuple[str, str, int]]:
    return {
        str(t.params["mode"]): (t.failure.kind.value, t.failure.message, t.attempt)
        for t in lab.reader.trials.all(sid)
        if t.failure
    }


@pytest.mark.slow
def test_each_bad_program_gets_its_own_kind_and_line_and_the_others_end_well(lab) -> None:
    """B7: bad programs of every kind in one sweep."""
    lab.write("bad.py", PROGRAM)
    sid = lab.enqueue(sweep_of([*FAILS, *ENDS_WELL], "program: bad.py"))
    parent = lab.worker(2)
    lab.wait_over(sid)
    assert {mode: (kind, line[: len(FAILS[mode][1])], attempt)
            for mode, (kind, line, attempt) in failures(lab, sid).items()} == FAILS  # fmt: skip
    trials = {str(t.params["mode"]): t for t in lab.reader.trials.all(sid)}
    assert {mode: trials[mode].objective for mode in ENDS_WELL} == ENDS_WELL
    assert trials["raises"].failure.fingerprint == "KeyError bad.py:9"
    assert "xxx\nloss=1.0\n" in lab.printed(sid, trials["long line"].id.number)
    assert "worker-ended" not in ids(lab.log()) and parent.poll() is None  # no worker died of it
    assert "Traceback" not in lab.log()
    assert not lab.processes("bad.py")


@pytest.mark.slow
def test_each_bad_trainer_gets_its_own_kind_and_line_and_the_others_end_well(lab) -> None:
    """B7: bad trainers of every kind in one sweep."""
    lab.write("bad.py", TRAINER)
    sid = lab.enqueue(
        sweep_of([*TRAINER_FAILS, *TRAINER_ENDS_WELL, "closes all"], "trainer: bad:train")
    )
    lab.worker(2)
    lab.wait_over(sid)
    got = failures(lab, sid)
    assert got.pop("closes all")[0] in ("killed", "user_error")
    assert {mode: (kind, line[: len(TRAINER_FAILS[mode][1])], attempt)
            for mode, (kind, line, attempt) in got.items()} == TRAINER_FAILS  # fmt: skip
    ends = [t for t in lab.reader.trials.all(sid) if t.params["mode"] in TRAINER_ENDS_WELL]
    assert [t.objective for t in ends] == [0.5] * len(TRAINER_ENDS_WELL)
    assert "worker-ended" not in ids(lab.log()) and "Traceback" not in lab.log()
    assert not lab.processes("sleep")


def test_a_trainer_that_returns_nan_diverged(lab) -> None:
    """B7: the metric is NaN."""
    lab.write("bad.py", TRAINER)
    sid = lab.enqueue(sweep_of(["x"], "trainer: bad:diverges"))
    lab.worker()
    lab.wait_over(sid)
    ((kind, line, attempt),) = failures(lab, sid).values()
    assert (kind, attempt) == ("diverged", 1) and "loss" in line and "nan" in line


def test_trials_whose_metric_stays_nan_end_as_diverged_if_the_file_says_so(lab) -> None:
    """Without end: a program that prints, one that calls hpq.report, and a trainer function."""
    each = "import time\nwhile True:\n    {}\n    time.sleep(0.01)\n"
    lab.write("prints.py", each.format("print('loss=nan', flush=True)"))
    lab.write("reports.py", "import hpq\n" + each.format("hpq.report({'loss': float('nan')})"))
    lab.write(
        "trains.py",
        """
        import time
        def train(params, trial):
            while not trial.should_stop:
                trial.report({"loss": float("inf")})
                time.sleep(0.01)
        """,
    )
    codes = ("program: prints.py", "program: reports.py", "trainer: trains:train")
    files = [sweep_of(["x", "y"], code) for code in codes]
    sids = [lab.enqueue(text.replace("loss}", "loss, terminate_on_nan: 3}")) for text in files]
    lab.worker(2)
    for sid in sids:
        lab.wait_over(sid)
        got = [(kind, attempt) for kind, _, attempt in failures(lab, sid).values()]
        assert got == [("diverged", 1)] * 2


@pytest.mark.slow
def test_a_trial_past_its_timeout_fails_whatever_it_does(lab) -> None:
    """Guards: programs past their timeout sleep, ignore SIGTERM, or print without end."""
    lab.write(
        "slow.py",
        """
        import os, signal, sys, time
        if "flood" in sys.argv[1]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                os.write(1, b"x" * 65535 + b"\\n")
        if "deaf" in sys.argv[1]:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        while True:
            time.sleep(0.1)
        """,
    )
    sid = lab.enqueue(sweep_of(["flood", "deaf", "sleep"], "program: slow.py\ntimeout: 1"))
    lab.worker(2, HPQ_GRACE_S="3")
    lab.wait_over(sid)
    got = {mode: (kind, attempt) for mode, (kind, _, attempt) in failures(lab, sid).items()}
    assert got == dict.fromkeys(("flood", "deaf", "sleep"), ("timeout", 1))
    assert not lab.processes(r"slow\.py")


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ('["./missing", "${args}"]', "'./missing'"),
        ('["./plain.txt"]', "'plain.txt'"),
        ('["${env}", "no-such-command"]', "exit status 127"),
    ],
)
def test_a_command_that_cannot_start_says_so(lab, command, said) -> None:
    lab.write("plain.txt", "no program")
    launch = f"program: plain.txt\ncommand: {command}"
    sid = lab.enqueue(sweep_of(["x"], launch))
    lab.worker()
    lab.wait_over(sid)
    kind, line, attempt = failures(lab, sid)["x"]
    assert (kind, attempt) == ("user_error", 1) and said in line


def test_a_trainer_that_is_not_there_says_so(lab) -> None:
    lab.write("bad.py", "import nowhere_to_be_found\n")
    one = lab.enqueue(sweep_of(["x"], "trainer: bad:train"))
    lab.write("fine.py", "")
    two = lab.enqueue(sweep_of(["x"], "trainer: fine:train"))
    lab.worker()
    lab.wait_over(one)
    lab.wait_over(two)
    assert "nowhere_to_be_found" in failures(lab, one)["x"][1]
    assert "'train'" in failures(lab, two)["x"][1]


def test_five_equal_failures_hold_the_sweep_and_retry_goes_on(lab) -> None:
    """Guards: a program with a fault in its code, in every trial."""
    lab.write(
        "train.py",
        """
        import pathlib
        if not pathlib.Path("mended").exists():
            raise KeyError("lr")
        print("loss=1")
        """,
    )
    sid = lab.enqueue(sweep_of([f"m{i}" for i in range(7)], "program: train.py"))
    lab.worker()
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).state is SweepState.HELD, "held")
    assert lab.reader.sweeps.get(sid).counts.failed == 5
    assert lab.reader.sweeps.get(sid).why_held == "5 of 5 trials failed: KeyError train.py:4"
    waited = lab.hpq("wait", sid)
    assert waited.returncode == 5 and "KeyError train.py:4" in waited.stderr + waited.stdout
    lab.write("mended", "")
    lab.ok("retry", sid)
    lab.wait_over(sid)
    counts = lab.reader.sweeps.get(sid).counts
    assert (counts.finished, counts.failed) == (7, 0)
    assert {t.state for t in lab.reader.trials.all(sid)} == {TrialState.FINISHED}


def test_a_misspelled_metric_is_told_while_the_first_trial_runs(lab) -> None:
    lab.write(
        "train.py",
        "import pathlib, time\n"
        "for i in range(5): print('val/loss=0.5', flush=True)\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.02)\n",
    )
    sid = lab.enqueue(
        "program: train.py\nmethod: grid\nmetric: {name: val_loss}\nparameters: {x: {value: 1}}\n"
    )
    said = re.compile(r"1:? \S.* val_loss .*val/loss.*'val/loss' as metric.name")
    lab.worker(1)
    lab.wait_until(lambda: lab.trial(sid).step >= 5, "five reports")
    for words in (("show", sid), ("show", f"{sid}/1"), ("watch", sid, "--once"), ("ls",)):
        done = lab.hpq(*words)
        assert said.search(" ".join((done.stdout + done.stderr).split())), (words, done)
    assert len(said.findall(lab.log())) == 1
    lab.go()
    lab.wait_over(sid)
