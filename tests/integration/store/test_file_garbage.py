"""Which files of a store go, which stay, and what a look at the store costs."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from redis import Redis

from hpq.domain.attempt import Reason
from hpq.domain.sweep import Keep, Launch, SweepView
from hpq.domain.trial import TrialId, Unstored
from hpq.redis.client import connect
from hpq.store.control import SweepControl
from hpq.store.file_garbage import FileGarbage
from hpq.store.keys import Keys
from hpq.store.scripts import StoreContext
from hpq.store.sweep_writer import SweepWriter
from hpq.store.trials import TrialStore
from hpq.store.wire.row import NewRow
from tests.support.store_calls import Shelf, beat, end, remove_all, take, was_killed

SID = "demo-00000"
STEPS = ("file_garbage.py", "local.py", "shutil.py")  # the code that may be killed at each line


@pytest.fixture
def fill(
    store: TrialStore, sweep_of, who, shelf: Shelf, control: SweepControl
) -> Callable[[], set[str]]:
    """Return a function that writes needed and unneeded files; it returns the needed ones."""
    gone = sweep_of(1, sid="gone-00000")
    removed = take(store, who, "x")
    control.remove(gone.id)
    sweep_of(4)
    finished, released, running, late = (take(store, who, nonce) for nonce in "abcd")
    waiting = shelf.put(late, "artifacts-late")
    unstored = Unstored(store=waiting.store, path=waiting.path, folder="/home/me/out")
    end(store, late, 1.0, unstored=unstored)
    artifacts = shelf.artifacts(finished)
    end(store, finished, 1.0, artifacts=artifacts)
    beat(store, who, released, 1, 1, checkpoint=shelf.put(released, "checkpoint-2"))
    store.release(released, Reason.STOPPING)

    def write() -> set[str]:
        needed = [artifacts, shelf.put(released, "checkpoint-2")]
        needed += [shelf.put(running, "checkpoint-1"), shelf.put(running, "artifacts")]
        needed += [shelf.put(late, "artifacts-late")]  # a worker copies them
        shelf.put(late, "artifacts")
        for claim in (finished, released):
            for part in ("one", "two/three"):
                shelf.put(claim, f"checkpoint-1/{part}")
        for name in ("checkpoint-1", "artifacts"):
            shelf.put(removed, name)
        return {pointer.path.removeprefix("hpq/") for pointer in needed}

    return write


def look(redis_url: str, shelf: Shelf) -> None:
    context = StoreContext.open(connect(redis_url), Keys("hpq"), mints=False)
    remove_all(FileGarbage(context), shelf.files)


def test_a_worker_killed_at_any_step_takes_no_needed_file_and_the_next_one_finishes(
    redis_url: str, redis: Redis, keys: Keys, shelf: Shelf, fill, store_context: StoreContext
) -> None:
    """Files: kill -9 of a worker that removes unneeded files, at any line."""
    steps, line, kills = random.Random(4), 0, 0
    while True:
        line += steps.randint(5, 40)
        needed = fill()
        is_killed = was_killed(line, STEPS, partial(look, redis_url, shelf))
        names = {name.removesuffix("/file") for name in shelf.files.names("hpq")}
        assert needed <= names, f"killed at line {line}"
        redis.delete(keys.sweep("gone-00000", "restoring"))  # its lock expires
        remove_all(FileGarbage(store_context), shelf.files)  # the next worker
        names = {name.removesuffix("/file") for name in shelf.files.names("hpq")}
        assert names == needed
        if not is_killed:
            break
        kills += 1
    assert kills > 10


def test_files_that_an_older_copy_of_redis_does_not_know_of_stay(
    store: TrialStore, sweep_of, who, shelf: Shelf, redis: Redis
) -> None:
    """Files: a server comes back with data older than the files."""
    sweep_of(2)
    first = take(store, who, "a")
    kept = shelf.put(first, "checkpoint-1")
    beat(store, who, first, 1, 1, checkpoint=kept)
    store.release(first, Reason.STOPPING)
    copy = {key: redis.dump(key) for key in redis.keys("*")}
    second, other = take(store, who, "b"), take(store, who, "c")
    sweep_of(1, sid="newer-00000")
    newer = take(store, who, "d")
    for claim in (second, other, newer):
        end(store, claim, 1.0, artifacts=shelf.artifacts(claim))
    redis.flushall()
    for key, value in copy.items():
        redis.restore(key, 0, value)
    names = shelf.files.names("hpq")
    assert len(names) == 4 and len(shelf.left()) == 4
    again = take(store, who, "e")
    assert again.checkpoint == kept and again.attempt == 2
    end(store, again, 1.0)
    assert len(shelf.left()) == 2, "of the attempt that this one replaced, nothing is needed"


def test_servers_that_share_a_store_remove_no_files_of_each_other(
    redis_url: str, store: TrialStore, sweep_of, who, shelf: Shelf, tmp_path
) -> None:
    """Files: two servers with one prefix and one store."""
    sweep_of(1)
    mine = shelf.artifacts(take(store, who, "a")).path
    second = connect(f"{redis_url}?db=1")
    context = StoreContext.open(second, Keys("hpq"))
    try:
        other, theirs = SweepControl(context), Shelf(tmp_path / "store", second, Keys("hpq"))
        sweep = SweepView(
            id="other-00000", name="other", digest="d", launch=Launch(trainer="digits")
        )
        writer = SweepWriter(context)
        writer.add_rows(sweep.id, 1, [NewRow("{}", bytes(16))])
        writer.create(sweep)
        yours = theirs.artifacts(take(TrialStore(context), who, "b")).path
        both = [path.removeprefix("hpq/") for path in (mine, yours)]
        assert shelf.left() == both and theirs.left() == both
        other.remove(sweep.id)
        assert shelf.left() == both and theirs.left() == both[:1]
    finally:
        second.flushdb()
        second.close()


def test_one_worker_of_a_store_looks_at_all_of_it_and_a_removed_sweep_calls_the_next(
    store: TrialStore, sweep_of, who, shelf: Shelf, keys: Keys, redis: Redis, control, tmp_path
) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    end(store, claim, 1.0, artifacts=shelf.artifacts(claim))
    other = Shelf(tmp_path / "other", redis, keys)
    assert [shelf.garbage.is_due(shelf.files) for _ in range(3)] == [True, False, False]
    assert other.garbage.is_due(other.files) and not shelf.garbage.is_due(shelf.files)
    assert 0 < redis.ttl(keys.collected(shelf.files.id)) <= 600
    control.remove(SID)
    assert shelf.garbage.is_due(shelf.files) and not other.garbage.is_due(other.files)


def test_a_full_server_lets_the_whole_store_wait_and_not_the_files_of_an_ended_trial(
    store: TrialStore, sweep_of, who, shelf: Shelf, redis: Redis, control: SweepControl
) -> None:
    sweep_of(1)
    claim = take(store, who, "a")
    shelf.put(claim, "checkpoint-1")
    gone = sweep_of(1, sid="gone-00000")
    shelf.put(take(store, who, "b"), "checkpoint-1")
    control.remove(gone.id)
    end(store, claim, 1.0)
    redis.config_set("maxmemory", 1)
    try:
        assert not shelf.garbage.is_due(shelf.files)
        shelf.garbage.remove_of_trial(shelf.files, claim.trial, has_keep=False)
        assert shelf.left() == ["gone-00000/1/1-b/checkpoint-1"]
    finally:
        redis.config_set("maxmemory", 0)
    assert shelf.left() == [] and shelf.garbage.is_due(shelf.files)


class Counted:
    """A file store that records which folders are listed."""

    def __init__(self, shelf: Shelf) -> None:
        self.id, self._files, self.listed = shelf.files.id, shelf.files, list[str]()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def names(self, folder: str) -> list[str]:
        self.listed.append(folder)
        return self._files.names(folder)


def test_a_sweep_without_events_is_listed_twice_and_again_after_the_next_event(
    store: TrialStore, sweep_of, who, shelf: Shelf, control: SweepControl
) -> None:
    sweep_of(1)
    claim, files = take(store, who, "a"), Counted(shelf)
    shelf.put(claim, "checkpoint-1")
    for _ in range(4):
        remove_all(shelf.garbage, files)
    assert files.listed == [f"hpq/{SID}"] * 2
    end(store, claim, 1.0)
    remove_all(shelf.garbage, files)
    assert files.listed == [f"hpq/{SID}"] * 3 and shelf.files.names("hpq") == []


@pytest.mark.parametrize("keep", [None, Keep(best=1)])
def test_what_an_ended_trial_and_a_keep_leave_goes_at_once_and_costs_few_commands(
    store: TrialStore, sweep_of, who, shelf: Shelf, redis: Redis, keep: Keep | None
) -> None:
    sweep_of(50, keep=keep)
    for n in range(50):
        claim = take(store, who, f"n{n}")
        beat(store, who, claim, 1, 1, checkpoint=shelf.put(claim, "checkpoint-1"))
        end(store, claim, float(n), artifacts=shelf.artifacts(claim))
        redis.config_resetstat()
        files = Counted(shelf)
        shelf.garbage.remove_of_trial(files, claim.trial, has_keep=keep is not None)
        stats = redis.info("commandstats")
        names = {name.removesuffix("/file") for name in shelf.files.names(f"hpq/{SID}")}
        mine = claim.trial.number
        assert f"{mine}/{claim.token}/artifacts" in names
        assert not any("checkpoint" in name and name.startswith(f"{mine}/{claim.token}/")
                       for name in names) or keep  # fmt: skip
        if keep:
            assert {name.partition("/")[0] for name in names} == {str(mine)}
        assert len(files.listed) <= 2
        asked = sum(row["calls"] for name, row in stats.items() if "config" not in name)
        assert asked <= (4 if keep else 1)


def test_a_link_in_the_store_and_a_removal_in_redis_remove_no_other_directory(
    shelf: Shelf, store: TrialStore, sweep_of, who, redis: Redis, keys: Keys, tmp_path
) -> None:
    """An attacker with the store writes a link, and with Redis the name of what it leads to."""
    thesis = tmp_path / "home" / "thesis" / "1" / "1-a" / "checkpoint-1"
    thesis.mkdir(parents=True)
    (thesis / "chapter").write_text("ours")
    (root := tmp_path / "store").joinpath("hpq").symlink_to(tmp_path / "home")
    redis.zadd(keys.removed, {"thesis": 1})
    for act in (shelf.garbage.sweeps_in, partial(shelf.garbage.remove_of_sweep, sid="thesis")):
        with pytest.raises(OSError, match="link"):
            act(shelf.files)
    sweep_of(1, sid="thesis")  # now as files of a trial that has ended
    end(store, take(store, who, "a"), 1.0)
    with pytest.raises(OSError, match="link"):
        shelf.garbage.remove_of_trial(shelf.files, TrialId(sweep="thesis", number=1), has_keep=True)
    (root / "hpq").unlink()
    (root / "hpq").mkdir()
    (root / "hpq" / "thesis").symlink_to(tmp_path / "home" / "thesis")
    assert shelf.garbage.sweeps_in(shelf.files) == []
    redis.delete(keys.sweep("thesis"))
    shelf.garbage.remove_of_sweep(shelf.files, "thesis")
    assert not (root / "hpq").exists() and (thesis / "chapter").read_text() == "ours"


def test_odd_names_in_a_store_hinder_no_removal(
    shelf: Shelf, store: TrialStore, sweep_of, who, tmp_path
) -> None:
    sweep_of(2, keep=Keep(best=1))
    for value in (1.0, 2.0):
        claim = take(store, who, f"n{value:g}")
        end(store, claim, value, artifacts=shelf.artifacts(claim))
    for name in (b"\xff", b"\x1b[2J", b"a\\b", b"\xef\xbc\x91", b"9" * 250):
        os.mkdir(os.path.join(os.fsencode(tmp_path), b"store/hpq", SID.encode(), name))
    shelf.garbage.remove_of_trial(shelf.files, claim.trial, has_keep=True)
    assert len(shelf.files.names("hpq")) == 1
