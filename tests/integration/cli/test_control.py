"""pause, stop, cancel, retry and rm as a user runs them, off a terminal and on one."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.domain.trial import Claim, TrialState
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids, refused

Hpq = Callable[..., subprocess.CompletedProcess[str]]
MakeSweep = Callable[..., SweepView]


def finish_one(store: TrialStore, who: WorkerPresence) -> None:
    got = store.claim(who, nonce=os.urandom(8).hex(), lease_ms=30_000)
    assert isinstance(got, Claim)
    store.commit(got, Outcome(state=TrialState.FINISHED, objective=0.5, step=2))


@pytest.mark.parametrize("verb", ["rm", "cancel", "stop"])
def test_off_a_terminal_nothing_is_ended_without_a_yes_and_a_name(
    hpq: Hpq, sweep_of: MakeSweep, verb: str
) -> None:
    sweep_of(2)
    silent = hpq(verb, "demo-00000")
    refused(silent, "confirmation-missing", "--yes")
    unnamed = hpq(verb, "--yes")
    refused(unnamed, "sweep-missing")
    refused(hpq(verb, "", "--yes"), "sweep-not-found", exit=4)  # an unknown variable of a shell
    assert "2 queued" in hpq("show", "demo-00000").stdout
    assert hpq(verb, "demo-00000", "--yes").returncode == 0


def test_a_sweep_of_the_private_server_has_to_be_named_off_a_terminal(
    environ: dict[str, str], hpq: Hpq, sweep_of: MakeSweep, tmp_path: os.PathLike[str]
) -> None:
    private = {"HPQ_REDIS_URL": "", "HPQ_HOME": str(tmp_path)}
    answer = hpq("rm", "--yes", **private)
    refused(answer, "sweep-missing")


def test_cancel_asks_for_what_is_left(
    environ: dict[str, str], store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(3)
    finish_one(store, who)
    finish_one(store, who)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "hpq_producer", "cancel", "demo-00000"],
        env=environ, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
    )  # fmt: skip
    os.close(slave)
    os.write(master, b"n\n")
    drawn = b""
    try:
        while part := os.read(master, 4096):
            drawn += part
    except OSError:  # the other side is closed
        pass
    assert process.wait(DEADLINE_S) == 1
    os.close(master)
    assert b"1 open trial ends now; 2 ended trials stay" in drawn


def test_a_number_is_a_trial_of_my_last_sweep_also_off_a_terminal(
    hpq: Hpq, store: TrialStore, who: WorkerPresence, sweep_of: MakeSweep
) -> None:
    sweep_of(3)
    finish_one(store, who)
    assert hpq("cancel", "2", "--yes").returncode == 0

    def states(*words: str) -> dict[int, str]:
        rows = json.loads(hpq("results", "--json", *words).stdout)
        return {row["trial"]: row["state"] for row in rows}

    assert states() == {1: "finished"}, "the others never began"
    every = {1: "finished", 2: "cancelled", 3: "queued"}
    assert states("--where", "state != running") == every
    listed = hpq("ls").stdout
    assert " 1/2 " in listed and "1 cancelled" in listed, "a cancelled trial is no progress"
    over = hpq("cancel", "1", "--yes")
    assert (over.returncode, over.stderr.count("(finished)")) == (0, 1)
    both = hpq("cancel", "1", "2", "--yes")
    assert both.returncode == 0 and "2 trials have ended" in both.stderr
    refused(hpq("cancel", "9", "--yes"), "trial-not-found", exit=4)
    refused(hpq("cancel", "3"), "confirmation-missing", "#3 of demo-00000")
    assert hpq("cancel", "3", "--yes").returncode == 0
    refused(hpq("cancel", "9", "--yes"), "trial-not-found", exit=4)  # the sweep is over now


def test_retry_says_why_nobody_takes_the_trials(
    hpq: Hpq, who: WorkerPresence, sweep_of: MakeSweep, control: SweepControl
) -> None:
    sweep_of(1)
    control.cancel("demo-00000")
    answer = hpq("retry", "--cancelled")
    assert "demo-00000: 1 trial " in answer.stderr and ids(answer.stderr) == ["no-worker"]


def test_retry_says_that_the_code_was_edited(hpq: Hpq, tmp_path: Path) -> None:
    code, file = tmp_path / "train.py", tmp_path / "sweep.yaml"
    code.write_text("print('loss=1')\n", "utf-8")
    file.write_text("program: train.py\nmethod: grid\nparameters: {x: {value: 1}}\n", "utf-8")
    sid = hpq("enqueue", file).stdout.strip()
    assert hpq("cancel", sid, "--yes").returncode == 0
    code.write_text("print('loss=2')\n", "utf-8")
    said = hpq("retry", "--cancelled", sid).stderr
    assert ids(said) == ["code-edited", "no-worker"] and str(code) in said and sid in said
    assert hpq("cancel", sid, "--yes").returncode == 0
    code.write_text("print('loss=1')\n", "utf-8")
    assert "code-edited" not in ids(hpq("retry", "--cancelled", sid).stderr)


def test_retry_of_a_finished_trial_wants_a_yes_as_its_result_goes(
    hpq: Hpq,
    store: TrialStore,
    reader: StoreReader,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    control: SweepControl,
) -> None:
    sweep_of(2)
    finish_one(store, who)
    finish_one(store, who)
    silent = hpq("retry", "demo-00000/1", "demo-00000/2")
    refused(silent, "confirmation-missing", "2 trials of demo-00000", "--yes")
    refused(hpq("retry", "demo-00000/1"), "confirmation-missing", "#1", "0.5000 (the best)")
    assert reader.sweeps.get("demo-00000").counts.finished == 2
    assert hpq("retry", "demo-00000/1", "--yes").returncode == 0
    assert reader.sweeps.get("demo-00000").counts.finished == 1
    control.cancel("demo-00000")
    assert hpq("retry", "demo-00000/1").returncode == 0  # without a result nobody asks


def test_a_drain_of_nobody_is_not_undone_and_says_how_a_worker_starts(hpq: Hpq) -> None:
    done = hpq("drain", "--all", "--undo")
    assert done.returncode == 4 and "--replicas=N" in done.stderr and "hpq worker" in done.stderr


def test_an_empty_name_drains_no_worker(
    hpq: Hpq, reader: StoreReader, store: TrialStore, who: WorkerPresence
) -> None:
    store.present(who, idle=True, lifetime_ms=600_000)
    refused(hpq("drain", ""), "worker-not-found", exit=4)  # an unknown variable of a shell
    assert reader.workers.live()[0].state != "drained"
