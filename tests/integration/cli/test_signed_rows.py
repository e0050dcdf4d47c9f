"""A client of Redis changes the record of a sweep between two reads of one command."""

from __future__ import annotations

import itertools
import json
import os
from typing import Any

import pytest
from redis import Redis

from hpq.code import bundle
from hpq.code.snapshot import digest_of, manifest
from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialState
from hpq.redis.round_trips import Question
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq.store.sweep_reader import SweepReader
from hpq.store.trials import TrialStore
from hpq.store.wire.fields import dumps
from tests.support.desk import Desk
from tests.support.store_calls import take

SWEEP = """
program: train.py
method: grid
metric: {name: loss}
parameters: {x: {values: [1, 2]}}
"""
FILES = {"train.py": (b"print('evil')\n", 0o644)}
EVIL = digest_of(manifest(FILES))


@pytest.fixture
def forged(desk: Desk, redis: Redis, keys: Keys, store: TrialStore, who: WorkerPresence) -> str:
    """Return a signed sweep with results, whose rows were changed afterwards."""
    sid = desk.sweep(SWEEP)
    for value in (0.5, 0.75):
        outcome = Outcome(state=TrialState.FINISHED, objective=value, step=1)
        store.commit(take(store, who, f"n{value}"), outcome)
    for number in (1, 2):
        redis.hset(keys.sweep(sid, "params"), str(number), '{"x":77131}')
    redis.set(keys.bundle(EVIL), bundle.pack(FILES))
    redis.hset(keys.sweep(sid), "bundle", EVIL)
    return sid


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(
    "words",
    [
        ("try", "{}/1"),
        ("best", "{}", "--args"),
        ("best", "{}", "--confirm", "2"),
        ("show", "{}", "--code", "out"),
    ],
)
def test_nothing_forged_passes_because_another_read_saw_another_record(
    desk: Desk,
    redis: Redis,
    keys: Keys,
    reader: StoreReader,
    forged: str,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    first: int,
) -> None:
    honest = (redis.hget(keys.sweep(forged), "launch") or b"").decode()
    records = itertools.cycle([honest, dumps({**json.loads(honest), "code": EVIL})])
    get_many, get_question = SweepReader.get_many, SweepReader.get_question
    started: list[dict[str, Any]] = []

    def swap() -> None:
        redis.hset(keys.sweep(forged), "launch", next(records))

    def then_swap(self: SweepReader, ids: list[str]) -> list[SweepView]:
        found = get_many(self, ids)
        swap()
        return found

    def then_swap_one(self: SweepReader, sid: str) -> Question[SweepView]:
        found = yield from get_question(self, sid)
        swap()
        return found

    def execve(_path: str, command: list[str], _environ: object) -> None:
        data = os.read(int(command[-1]), 1 << 20)
        started.append(json.loads(data.partition(b"\n")[0]))

    for _ in range(first + 1):
        swap()
    monkeypatch.setattr(os, "execve", execve)
    monkeypatch.setattr(SweepReader, "get_many", then_swap)
    monkeypatch.setattr(SweepReader, "get_question", then_swap_one)
    done = desk.hpq(*(word.format(forged) for word in words))
    monkeypatch.undo()
    assert "77131" not in done.stdout
    assert not [one for one in started if one["stored"]["launch"] == honest], "it would run"
    assert reader.sweeps.ids() == [forged], "signed anew"
    assert not (desk.folder / "out").exists(), "written as if it were signed"
