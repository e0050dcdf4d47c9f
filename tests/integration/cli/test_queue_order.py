"""A sweep that waits since others go before it: which, and what changes that."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import pytest
from redis import Redis

from hpq.domain.attempt import Nothing, Outcome, WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import Claim, TrialState
from hpq.store.control import SweepControl
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from hpq_views.why.turn import explain_queue_position
from tests.support.desk import Desk
from tests.support.ids import ids
from tests.support.server import calls

Hpq = Callable[..., subprocess.CompletedProcess[str]]
MakeSweep = Callable[..., SweepView]
LINE = (
    "waits behind old-00000 (open-ended): `hpq stop old-00000`, or `hpq set new-00000 priority=1`"
)


@pytest.fixture
def work(store: TrialStore) -> Callable[..., Claim | Nothing]:
    """Lets a worker claim a trial, if it can have one, and say so."""

    def begin(name: str = "w1") -> Claim | Nothing:
        fields = {
            "takes": dumps(sorted(BUILT_IN)),
            "state": "idle",
        }
        who = WorkerPresence(name=name, host="h1", queue="default", fields=fields)
        store.present(who, idle=True, lifetime_ms=600_000)
        return store.claim(who, nonce=name, lease_ms=30_000)

    return begin


def _open_ended(sweep_of: MakeSweep, sid: str, **fields: object) -> SweepView:
    return sweep_of(2, sid, sampler="random", **fields)


def _why(reader: StoreReader, sid: str) -> str | None:
    status = reader.status(sid, 3)
    why = explain_queue_position(status.sweep, status.ahead, status.workers, status.owner)
    return why.text if why else None


def test_an_open_ended_sweep_that_keeps_another_waiting_is_named_with_what_ends_it(
    hpq: Hpq, environ: dict[str, str], work, sweep_of: MakeSweep
) -> None:
    _open_ended(sweep_of, "old-00000")
    sweep_of(2, "new-00000")
    work()
    environ["HPQ_LEASE_S"] = "600"  # the worker stays live for as long as the commands take
    assert f"! {LINE}" in hpq("watch", "--once", "new-00000", COLUMNS="200").stdout
    needs = json.loads(hpq("watch", "--once", "--json", "new-00000").stdout)["needs_you"]
    assert {"code": "behind", "message": LINE} in needs
    late = hpq("wait", "--timeout", "0", "new-00000")
    assert late.stderr.startswith(f"hpq: {LINE} [behind]\n") and late.returncode == 5
    listed = hpq("ls")
    assert listed.stderr == f"! new-00000: {LINE} [behind]\n"
    assert listed.stdout.count("waiting") == 1
    with subprocess.Popen(
        [sys.executable, "-m", "hpq_producer", "watch", "new-00000"],
        env=environ, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)][1] == f"! {LINE} [behind]\n"
        process.kill()
    hpq("set", "new-00000", "priority=1")
    assert hpq("ls").stderr == ""


def test_enqueue_says_which_sweep_of_mine_goes_first(desk: Desk, work, sweep_of: MakeSweep) -> None:
    sweep_of(4, "old-00000")
    work()
    text = (
        "trainer: digits\nmetric: {name: loss, goal: minimize}\nmethod: grid\n"
        "parameters: {epochs: {values: [1, 2]}}\n"
    )
    done = desk.put(text)
    sid = done.stdout.strip()
    assert ids(done.stderr)[-1:] == ["behind"] and f"`hpq set {sid} priority=1`" in done.stderr
    assert "behind" not in ids(desk.hpq("resume", "old-00000").stderr)


def test_no_priority_above_the_owners_limit_is_advised(
    redis: Redis, keys: Keys, reader: StoreReader, work, sweep_of: MakeSweep
) -> None:
    redis.hset(keys.limits, "*/priority", 1)
    _open_ended(sweep_of, "old-00000", priority=1)
    sweep_of(2, "new-00000")
    work()
    why = _why(reader, "new-00000") or ""
    assert "waits behind old-00000" in why and "priority=" not in why
    redis.hset(keys.limits, "*/priority", 2)
    assert "`hpq set new-00000 priority=2`" in (_why(reader, "new-00000") or "")


def test_many_that_wait_behind_one_are_a_single_line_of_ls(
    hpq: Hpq, work, sweep_of: MakeSweep
) -> None:
    _open_ended(sweep_of, "old-00000")
    for name in "abc":
        sweep_of(2, f"{name}-00000")
    work()
    (line,) = hpq("ls").stderr.splitlines()
    assert ids(line) == ["behind"] and " 2 more" in line
    assert "`hpq stop old-00000`" in line and "`hpq set SWEEP priority=1`" in line


def test_who_gets_the_next_free_worker_waits_behind_nobody(
    reader: StoreReader,
    store: TrialStore,
    redis: Redis,
    work,
    sweep_of: MakeSweep,
    control: SweepControl,
) -> None:
    """Another owner, a paused sweep, one at its max_parallel, an idle worker, no worker."""
    _open_ended(sweep_of, "old-00000", max_parallel=1)
    sweep_of(2, "new-00000")
    assert _why(reader, "new-00000") is None  # no worker: another line says so
    claim = work()
    assert isinstance(claim, Claim) and claim.trial.sweep == "old-00000"
    assert _why(reader, "new-00000") == LINE  # at its max_parallel, and so until that trial ends
    sweep_of(2, "anas-00000", owner="ana")
    assert _why(reader, "anas-00000") is None
    control.pause("old-00000")
    assert _why(reader, "new-00000") is None
    control.resume("old-00000")
    assert _why(reader, "new-00000") == LINE
    store.present(WorkerPresence(name="w2", host="h", queue="default", fields={
        "takes": dumps(sorted(BUILT_IN)), "state": "idle"
    }), idle=True, lifetime_ms=600_000)  # fmt: skip
    assert _why(reader, "new-00000") is None
    redis.delete("hpq:w:w2")
    store.commit(claim, Outcome(state=TrialState.FINISHED, objective=1.0))
    other = work("w3")
    assert other is not None and other.trial.sweep != "new-00000"


def test_a_worker_that_may_not_run_the_older_sweep_comes_to_the_newer(
    reader: StoreReader, store: TrialStore, work, sweep_of: MakeSweep
) -> None:
    _open_ended(sweep_of, "old-00000")
    sweep_of(2, "new-00000")
    work()
    refuses = {"old-00000": {"code": "data-missing", "text": "no data"}}
    there = WorkerPresence(name="w2", host="h", queue="default", fields={
        "takes": dumps(sorted(BUILT_IN)), "state": "busy",
        "trial": "else-00000/1", "refuses": dumps(refuses),
    })  # fmt: skip
    store.present(there, idle=False, lifetime_ms=600_000)
    assert _why(reader, "new-00000") is None


def test_a_sweep_of_somebody_else_goes_first_by_its_priority_only(
    reader: StoreReader, work, sweep_of: MakeSweep
) -> None:
    _open_ended(sweep_of, "anas-00000", owner="ana", priority=2)
    sweep_of(2, "new-00000")
    work()
    why = _why(reader, "new-00000")
    assert why and "anas-00000" in why and "`hpq set new-00000 priority=3`" in why


def test_what_goes_first_is_read_in_so_many_commands_however_many_sweeps_there_are(
    reader: StoreReader, redis: Redis, work, sweep_of: MakeSweep
) -> None:
    _open_ended(sweep_of, "a-00000")
    work()
    spent = []
    for count in (40, 80):
        for n in range(count):
            sweep_of(1, f"b{count}-{n:05}")
        redis.config_resetstat()
        assert "behind a-00000" in str(_why(reader, f"b{count}-{count - 1:05}"))
        spent.append(calls(redis))
    assert spent[0] == spent[1] and sum(spent[0].values()) < 150
