"""What a command says of a real server that restarted without its last writes, or empty."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from hpq.redis.acl import users
from hpq.store.keys import Keys
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from tests.support.desk import run_here
from tests.support.ids import ids
from tests.support.server import Server, find_server

SWEEP = "trainer: digits\nmethod: grid\nparameters: {epochs: {value: 1}}\n"


class Place:
    """A server with an append-only file, and users whose HPQ_HOMEs see it."""

    def __init__(self, data: Path, folder: Path) -> None:
        self._data, self._folder = data, folder
        (folder / "sweep.yaml").write_text(SWEEP)
        self._server = Server(data, find_server())
        self._server.start()
        self.redis = Redis.from_url(self._server.url)
        self._urls: dict[str, str] = {}

    def hpq(self, user: str, *words: str) -> subprocess.CompletedProcess[str]:
        env = {
            **os.environ,
            "HPQ_REDIS_URL": self._urls.get(user, self._server.url),
            "HPQ_HOME": str(self._folder / user),
            "HPQ_USER": user,
        }
        done = run_here(words, self._folder, env)
        assert done.returncode == 0, done.stderr
        return done

    def told(self, user: str) -> int:
        """Return how often `hpq ls` prints the notice."""
        return ids(self.hpq(user, "ls").stderr).count("server-went-back")

    def may_only_read(self, user: str) -> None:
        """Create the viewer's Redis user, which no restart keeps."""
        (viewer,) = (one for one in users("hpq", (7, 0)) if one.role == "viewer")
        rules = [rule.replace("%R~", "~") for rule in viewer.rules]  # Redis 6.2 has no %R
        self.redis.execute_command("ACL", "SETUSER", "v", "reset", "on", "nopass", *rules)
        self._urls[user] = self._server.url.replace("unix://", "unix://v:any@")

    def reap(self) -> None:
        """Do what a worker does each few seconds."""
        store = TrialStore(StoreContext.open(self.redis, Keys("hpq"), mints=False))
        store.reap("default", lease_ms=0, lost_max=3, as_of_ms=None, every_ms=0)

    def copy(self) -> Path:
        """Copy the data as they are now."""
        there = self._folder / "copy"
        shutil.rmtree(there, ignore_errors=True)
        is_socket = lambda _, names: [name for name in names if name.endswith(".sock")]  # noqa: E731
        return shutil.copytree(self._data, there, ignore=is_socket)

    def aof(self) -> Path:
        """Return the file to which the server appends."""
        return max(self._data.rglob("*.aof*"), key=lambda path: path.stat().st_mtime_ns)

    def restart(self, change: Callable[[], object] = lambda: None) -> None:
        """kill -9, change the data, start again."""
        self._server.kill()
        change()
        self._server.start()

    def come_back_with(self, copy: Path | None) -> None:
        """Replace the data by a copy, or by none, and restart."""

        def change() -> None:
            for path in self._data.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if copy:
                shutil.copytree(copy, self._data, dirs_exist_ok=True)

        self.restart(change)

    def end(self) -> None:
        self.redis.close()
        self._server.kill()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """A place with a sweep, of which ana and ben know."""
    data = Path(tempfile.mkdtemp(prefix="hpq-l-"))  # a socket's path has 108 bytes
    made = Place(data, tmp_path)
    try:
        made.hpq("ana", "enqueue", "sweep.yaml")
        assert made.told("ana") == made.told("ben") == 0
        yield made
    finally:
        made.end()
        shutil.rmtree(data)


def lose_all(place: Place) -> None:
    place.come_back_with(None)


def lose_a_command(place: Place) -> None:
    copy = place.copy()
    place.hpq("ana", "pause")
    assert place.told("ben") == 0
    place.come_back_with(copy)


def lose_the_end_of_the_file(place: Place) -> None:
    """As in a power failure with `appendfsync everysec`."""
    size = place.aof().stat().st_size
    place.hpq("ana", "pause")
    assert place.told("ben") == 0
    place.restart(lambda: os.truncate(place.aof(), size))


def lose_what_a_worker_wrote(place: Place) -> None:
    copy = place.copy()
    place.reap()
    assert place.told("ana") == place.told("ben") == 0
    place.come_back_with(copy)


def flush_without_a_restart(place: Place) -> None:
    place.redis.flushall()


def nobody(_: Place) -> None:
    """The first command finds the server as it came back."""


def another_user(place: Place) -> None:
    place.hpq("eve", "enqueue", "sweep.yaml", "--new")


def others_and_a_second_restart(place: Place) -> None:
    """What is written meanwhile is newer than what was lost."""
    place.reap()
    place.restart()
    place.reap()
    another_user(place)


@pytest.mark.parametrize("before", [nobody, others_and_a_second_restart])
@pytest.mark.parametrize(
    "lose",
    [
        lose_all,
        lose_a_command,
        lose_the_end_of_the_file,
        lose_what_a_worker_wrote,
        flush_without_a_restart,
    ],
)
def test_each_home_that_saw_what_a_server_lost_is_told_once(
    place: Place, lose: Callable[[Place], None], before: Callable[[Place], None]
) -> None:
    lose(place)
    before(place)
    for user in ("ana", "ben"):
        assert place.told(user) == 1, user
        assert place.told(user) == 0, user
    assert place.told("a newcomer") == 0
    place.hpq("ana", "enqueue", "sweep.yaml", "--new")
    assert place.told("ana") == place.told("ben") == 0


def test_a_server_that_kept_its_data_is_not_noticed(place: Place) -> None:
    for change in (place.reap, lambda: another_user(place), lambda: None):
        change()
        place.restart()
        place.reap()
        assert place.told("ana") == place.told("ben") == 0


def test_a_viewer_is_told_without_a_write(place: Place) -> None:
    place.may_only_read("vic")
    assert place.told("vic") == 0
    copy = place.copy()
    place.hpq("ana", "pause")
    assert place.told("vic") == 0
    place.come_back_with(copy)
    place.may_only_read("vic")
    assert place.told("vic") == 1
    assert place.told("vic") == 0 and place.redis.acl_log() == []


def test_a_command_without_its_home_goes_on(place: Place, tmp_path: Path) -> None:
    (tmp_path / "ana" / "seen.json").write_text("[1]")
    assert place.told("ana") == 0
    place.come_back_with(None)
    assert place.told("ana") == 1
