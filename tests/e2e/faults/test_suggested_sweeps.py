"""Sweeps whose sets are made while they run, by real workers, and what is killed under them."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Mapping
from importlib.util import find_spec

import pytest

from hpq.domain.sweep import SweepState
from hpq.domain.trial import Json
from hpq.error_codes import ExitCode
from hpq_views.watch.event_log import event_line
from hpq_worker.process.config import SuggesterConfig, start
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids, refused
from tests.support.proxy import Proxy

pytest.importorskip("optuna")

QUICK = """
    import time
    from pathlib import Path

    WAIT = Path.cwd() / "wait"  # with the number of the last trial that does not wait

    def waits(trial):
        try:
            return int(trial.id.rpartition("/")[2]) > int(WAIT.read_text() or 0)
        except FileNotFoundError:
            return False

    def train(params, trial):
        while waits(trial) and not trial.should_stop:
            time.sleep(0.01)
        if params["x"] > 2.9:
            raise ValueError("too far")
        return {"loss": (params["x"] - 1) ** 2 + params["n"]}
"""
SWEEP = """
    trainer: quick:train
    resident: true
    method: bayes
    metric: {name: loss, goal: minimize}
    parameters:
      x: {min: -3.0, max: 3.0}
      n: {values: [1, 2, 3]}
"""
MAKER = r"-m hpq_worker\.suggest"
FEW = "random as results are few"


def bayes(lab, *flags: str, more: str = "sampler: tpe") -> str:
    """By tpe unless told otherwise: it needs no torch, which takes seconds to import."""
    lab.write("quick.py", QUICK)
    lines = "\n".join(line[4:] for line in SWEEP.splitlines()[1:])
    return lab.enqueue(f"{lines}\n{more}", *flags)


def sets(lab, sid: str) -> list[Mapping[str, Json]]:
    return [trial.params for trial in lab.reader.trials.all(sid)]


@pytest.mark.slow
def test_bayes_runs_to_its_cap_and_finds_the_valley(lab) -> None:
    sid = bayes(lab, "--count", "30", more="")
    lab.worker(3)
    lab.wait_over(sid)
    found = sets(lab, sid)
    assert len(found) == len({str(params) for params in found}) == 30
    (best,) = lab.reader.ranking.best(lab.reader.sweeps.get(sid), 1)
    assert best.params["n"] == 1 and abs(best.params["x"] - 1) < 0.6
    late = [params["n"] for params in found[18:]]
    assert late.count(1) > len(late) / 2  # it has learned
    lab.wait_for_no_process(MAKER)


@pytest.mark.slow
def test_one_worker_and_one_seed_give_the_same_sets(lab) -> None:
    one = bayes(lab, "--count", "16", more="")
    other = bayes(lab, "--count", "16", "--new", more="")
    third = bayes(lab, "--count", "12", "--set", "seed=5", more="")
    lab.worker()
    for sid in (one, other, third):
        lab.wait_over(sid)
    assert sets(lab, one) == sets(lab, other) and sets(lab, one)[0] != sets(lab, third)[0]
    other = "gp" if find_spec("torch") else "tpe"
    told = [e for e in lab.reader.events.read(one) if e.what == "suggested"]
    assert [e.fields["by"] for e in told] == [FEW] * 10 + [other] * 6
    line = event_line(
        told[-1], lab.reader.trials.get_many(one, [16])[0], lab.reader.sweeps.get(one)
    )
    assert line.startswith(f"#16 suggested by {other}  x=")
    assert lab.reader.sweeps.get(one).made == {FEW: 10, other: 6}
    shown = lab.ok("show", one)
    assert "auto" in shown and f"10 by {FEW}" in shown and f"6 by {other}" in shown


@pytest.mark.slow
def test_a_sweep_that_begins_with_older_results_learns_from_them(lab) -> None:
    """Nothing is drawn: its first set follows from what the older sweep has found."""
    old = bayes(lab, "--count", "12")
    lab.worker()
    lab.wait_over(old)
    new = bayes(lab, "--count", "4", "--set", "seed=1", "--reuse")
    lab.wait_over(new)
    counts = lab.reader.sweeps.get(old).counts
    found = lab.reader.sweeps.get(new)
    assert found.made == {"tpe": 4} and found.counts.total == counts.finished + 4
    known = {str(trial.params) for trial in lab.reader.trials.all(new) if trial.reused}
    assert len(known) == counts.finished
    assert not known & {str(t.params) for t in lab.reader.trials.all(new) if not t.reused}


@pytest.mark.slow
def test_who_makes_sets_is_killed_and_the_sweep_goes_on(lab, short_lease) -> None:
    """kill -9 of the process that makes them, then of its worker; nothing is lost or doubled."""
    sid = bayes(lab, "--count", "40")
    lab.write("wait", "10")  # so that sets are left to make, however late the kills
    lab.worker(2)
    for count, last in ((5, "30"), (15, "40")):
        lab.wait_until(
            lambda n=count: lab.reader.sweeps.get(sid).counts.ended >= n, f"{count} trials"
        )
        lab.wait_until(lambda: lab.processes(MAKER), "who makes sets")
        pid = next(iter(lab.processes(MAKER)))
        if count == 15:
            pid = int((lab.redis.hget(lab.keys.sweep(sid), "suggester") or b"").split(b"-")[-2])
        os.kill(pid, signal.SIGKILL)
        lab.write("wait", last)
    lab.wait_over(sid)
    found = sets(lab, sid)
    assert len(found) == len({str(params) for params in found}) == 40


@pytest.mark.slow
def test_where_importing_torch_kills_who_makes_sets_tpe_alone_makes_them(lab) -> None:
    """As where there is no memory for it: that is no fault of the sweep's."""
    pytest.importorskip("scipy")
    fake = lab.folder / "fake"
    fake.mkdir()
    kill = "if 'hpq_worker.suggest' in sys.orig_argv: os.kill(os.getpid(), signal.SIGKILL)\n"
    (fake / "torch.py").write_text(f"import os, signal, sys\n{kill}")
    sid = bayes(lab, "--count", "14", more="")
    lab.worker(PYTHONPATH=str(fake))
    lab.wait_over(sid)
    assert lab.reader.sweeps.get(sid).made == {FEW: 10, "tpe as gp was killed": 4}
    assert len(re.findall(r"signal 9.* tpe ", lab.log())) == 1


@pytest.mark.slow
def test_a_redis_that_goes_while_torch_is_imported_is_no_fault_of_the_sweep(lab) -> None:
    """A process that ends in its usual way amid an import may crash: this one would surely."""
    pytest.importorskip("scipy")
    fake = lab.folder / "fake"
    fake.mkdir()
    crash = "atexit.register(os.kill, os.getpid(), signal.SIGKILL)"
    amid = f"open({str(fake / 'amid')!r}, 'w').close()\nwhile True:\n    time.sleep(0.01)\n"
    (fake / "torch.py").write_text(f"import atexit, os, signal, time\n{crash}\n{amid}")
    sid = bayes(lab, more="")
    config = SuggesterConfig(secrets={}, sweep=sid, worker="w1", parent=os.getpid(), error=2)
    maker = start("hpq_worker.suggest", lab.env | {"PYTHONPATH": str(fake)}, config)
    try:
        lab.wait_until((fake / "amid").exists, "the import")
        lab.server.kill()
        assert maker.wait(DEADLINE_S) == ExitCode.OUT_OF_REACH
    finally:
        maker.kill()
        maker.wait()


@pytest.mark.slow
def test_a_redis_that_is_killed_loses_no_set(lab) -> None:
    sid = bayes(lab, "--count", "25")
    lab.worker(2)
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.ended >= 8, "eight trials")
    lab.server.kill()
    lab.server.start()
    lab.wait_over(sid)
    assert len(sets(lab, sid)) == 25


@pytest.mark.slow
@pytest.mark.parametrize("torn", [False, True], ids=["lost", "torn"])
def test_a_lost_reply_to_who_makes_sets_doubles_none(lab, torn) -> None:
    """Redis took the lease or the set, and the answer was cut off; the client asks again."""
    sid = bayes(lab, "--count", "14")
    proxy = Proxy(str(lab.server.socket))
    blows = [proxy.lose("suggest", skip=skip, torn=torn) for skip in (0, 1, 3, 6)]
    lab.worker(HPQ_REDIS_URL=proxy.url)
    lab.wait_over(sid)
    proxy.close()
    assert all(blow.struck.is_set() for blow in blows)
    found = sets(lab, sid)
    assert len(found) == len({str(params) for params in found}) == 14
    told = [int(e.fields["count"]) for e in lab.reader.events.read(sid) if e.what == "suggested"]
    assert told == [1] * 14 and "Traceback" not in lab.log()


@pytest.mark.slow
def test_open_ended_random_runs_until_it_is_stopped(lab) -> None:
    lab.write("quick.py", QUICK)
    text = "trainer: quick:train\nresident: true\nmethod: random\nmetric: {name: loss}\n"
    text += "parameters:\n  x: {min: -3.0, max: 2.0}\n  n: {value: 1}\n"
    sid = lab.enqueue(text)
    again = lab.enqueue(text, "--count", "8")
    lab.worker(2)
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.finished >= 8, "eight trials")
    assert lab.reader.sweeps.get(sid).state is SweepState.RUNNING
    assert "∞" in lab.ok("ls") and "open-ended" in lab.ok("watch", sid, "--once")
    lab.ok("stop", sid, "--yes")
    lab.wait_over(sid)
    lab.wait_over(again)
    assert sets(lab, sid)[:8] == sets(lab, again)  # as with a count


@pytest.mark.slow
def test_pause_holds_and_a_cancel_ends_an_open_ended_sweep(lab) -> None:
    sid = bayes(lab)
    (lab.code / "wait").touch()
    lab.worker(2)
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.running == 2, "two trials")
    lab.ok("pause", sid)
    (lab.code / "wait").unlink()
    lab.wait_until(lambda: not lab.reader.sweeps.get(sid).counts.running, "their end")
    total = lab.reader.sweeps.get(sid).counts.total
    assert lab.reader.sweeps.get(sid).state is SweepState.PAUSED
    lab.ok("resume", sid)
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.total > total + 2, "further sets")
    lab.ok("cancel", sid, "--yes")
    lab.wait_over(sid)
    assert lab.reader.sweeps.get(sid).state is SweepState.CANCELLED


@pytest.mark.slow
def test_without_optuna_one_line_says_what_to_install(lab) -> None:
    hidden = lab.folder / "hidden"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text("import sys\nsys.modules['optuna'] = None\n")
    env = {"PYTHONPATH": str(hidden)}
    lab.write("quick.py", QUICK)
    path = lab.write("bayes.yaml", "\n".join(line[4:] for line in SWEEP.splitlines()))
    done = lab.hpq("enqueue", path, **env)
    assert done.returncode == 0 and sys.executable in done.stderr.splitlines()[0]
    lab.worker(**env)
    lab.wait_until(lambda: "extra-missing" in ids(lab.log()), "a line")
    assert sys.executable in lab.log()
    run = lab.hpq("run", path, **env)
    refused(run, "extra-missing", "install optuna", sys.executable)
    assert "Traceback" not in run.stderr


@pytest.mark.slow
def test_why_no_sets_are_made_is_said_where_people_look(lab) -> None:
    """What makes them fails each time it is started: watch names the worker and the reason."""
    sid = bayes(lab, "--count", "5")
    (lab.home / "optuna.py").write_text("raise KeyError('a damaged install')")
    lab.env["PYTHONPATH"] = str(lab.home)
    lab.worker()

    def is_said() -> bool:
        return "KeyError" in lab.hpq("watch", sid, "--once", COLUMNS="400").stdout

    lab.wait_until(is_said, "the reason in watch")
    assert "sampler-failed" in ids(lab.log()) and lab.reader.sweeps.get(sid).counts.total == 0


@pytest.mark.slow
def test_trials_added_by_hand_while_bayes_suggests_run_once_each_also_if_a_worker_dies(
    lab, short_lease
) -> None:
    """40 adds beside 60 suggestions on four workers, one of which is killed with its runner."""
    sid = bayes(lab, "--count", "60")
    lab.write("wait", "20")  # so that some are left, however late the kill
    lab.worker(4)
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.ended >= 3, "the first trials")
    wanted = [{"n": 1 + i % 3, "x": round(-2.9 + i / 10, 2)} for i in range(40)]
    for place, one in enumerate(wanted):
        if place == 15:
            pid = next(iter(lab.processes(r"-m hpq_worker\.consumer")))
            lab.kill([pid])
            lab.write("wait", "200")
        lab.ok("add", sid, *(f"{name}={value}" for name, value in one.items()))
    repeated = [lab.hpq("add", sid, "n=1", "x=-2.9") for _ in range(2)]
    assert [(done.returncode, done.stdout) for done in repeated] == [(0, "")] * 2
    lab.wait_over(sid)
    found = sets(lab, sid)
    assert len(found) == len({str(sorted(one.items())) for one in found}) == 100
    assert all(one in found for one in wanted)
    sweep = lab.reader.sweeps.get(sid)
    assert sum(sweep.made.values()) == 60 and sweep.counts.ended == sweep.counts.total == 100
    told = [e.what for e in lab.reader.events.read(sid)]
    assert told.count("added") == 40
