"""Who may use the private server, how long it stays, and what is left when they are gone."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import stat
import sys

import pytest
from redis import Redis

from hpq.private_server import keeper
from hpq.private_server.attach_or_start import attach, running_socket
from tests.support.private_server import Home

STOPPING = "Background append only file rewriting started"
LOOSE_CHILD = """
child = subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL, close_fds=False)
print(child.pid, flush=True)
sys.stdin.readline()
"""
SAY_RUN_ID = """
from hpq.private_server import keeper
lines = keeper.ask(str(held.home.read_record().socket), "INFO server").splitlines()
print(next(line for line in lines if line.startswith("run_id:"))[7:], flush=True)
sys.stdin.readline()
"""
EXEC = """
held.keep_across_exec()
os.execv(sys.executable, [sys.executable, "-c", "print('exec', flush=True); input()"])
"""


def is_stopping(home: Home) -> bool:
    """Whether the keeper holds users.lock, so that nobody can share it."""
    users = home.place.lock(keeper.USERS)
    try:
        return not keeper.try_lock(users, fcntl.LOCK_SH)
    finally:
        os.close(users)


@pytest.mark.parametrize("orphan", [False, True], ids=["from nothing", "after a dead keeper"])
def test_ten_processes_that_attach_at_once_get_one_server(home: Home, orphan: bool) -> None:
    users = [home.user(then=SAY_RUN_ID) for _ in range(10)]
    if orphan:
        held = home.attach()
        os.kill(home.record().keeper_pid, signal.SIGKILL)
        home.until_unkept()
        held.release(linger_s=0)
    for user in users:
        user.say()
    assert {user.hear() for user in users} == {str(home.record().socket)}
    assert {user.hear() for user in users} == {home.info("run_id")}
    assert len(home.processes()) == 2  # a keeper and a server


def test_the_data_are_there_tomorrow(home: Home) -> None:
    first = home.attach()
    with Redis.from_url(first.url) as redis:
        redis.set("winner", "set 7")
    run_id = home.info("run_id")
    first.release(linger_s=0)
    home.until_nothing_runs()

    second = home.attach()
    with Redis.from_url(second.url) as redis:
        assert redis.get("winner") == b"set 7"
    assert home.info("run_id") != run_id
    second.release(linger_s=0)


def test_the_append_only_file_is_rewritten_before_the_server_stops(home: Home) -> None:
    held = home.attach()
    with Redis.from_url(held.url) as redis:
        for i in range(200):
            redis.set("key", f"{i} {'x' * 1000}")
    grown = home.place.data_bytes()
    held.release(linger_s=0)
    home.until_nothing_runs()
    assert home.place.data_bytes() < grown / 10


@pytest.mark.skipif(sys.platform != "linux", reason="sees in /proc that the keeper has looked")
def test_the_server_stays_while_anybody_uses_it(home: Home) -> None:
    first, second = home.attach(), home.user()
    second.attach()
    run_id = home.info("run_id")
    first.release(linger_s=0)
    home.make_keeper_look()
    third = home.user()
    third.attach()
    assert home.info("run_id") == run_id
    assert STOPPING not in home.place.log.read_text()


@pytest.mark.skipif(sys.platform != "linux", reason="sees in /proc that the keeper has looked")
def test_the_server_outlives_its_last_user_by_the_quiet_time(home: Home) -> None:
    user = home.user(linger_s=3600)
    user.attach()
    run_id = home.info("run_id")
    user.kill()
    home.make_keeper_look()
    again = home.attach()
    assert home.info("run_id") == run_id
    assert STOPPING not in home.place.log.read_text()
    again.release(linger_s=0)


def test_a_killed_user_leaves_nothing_behind(home: Home) -> None:
    user = home.user()
    user.attach()
    user.kill()
    home.until_nothing_runs()
    assert not home.place.socket().parent.exists()


def test_children_of_a_user_do_not_hold_the_server(home: Home) -> None:
    user = home.user(then=LOOSE_CHILD)
    user.attach()
    child = int(user.hear())
    user.kill()
    home.until_nothing_runs()
    os.kill(child, signal.SIGKILL)  # it was there all the time


def test_a_program_that_a_user_becomes_holds_the_server_if_told_so(home: Home) -> None:
    user = home.user(then=EXEC)
    user.attach()
    assert user.hear() == "exec"
    users = home.place.lock(keeper.USERS)
    assert not keeper.try_lock(users)
    user.kill()
    home.until(lambda: keeper.try_lock(users))
    os.close(users)


def test_who_attaches_while_the_server_stops_gets_the_next_one(home: Home) -> None:
    held = home.attach()
    run_id, server = home.info("run_id"), home.record().server_pid
    user = home.user()
    os.kill(server, signal.SIGSTOP)
    held.release(linger_s=0)
    home.until(lambda: is_stopping(home))
    user.say()
    os.kill(server, signal.SIGCONT)
    assert user.hear() == str(home.record().socket)
    assert home.info("run_id") != run_id


def test_stopping_and_starting_again_and_again_loses_nothing(home: Home) -> None:
    for count in range(1, 11):
        held = home.attach()
        with Redis.from_url(held.url) as redis:
            assert redis.incr("starts") == count
        held.release(linger_s=0)


def test_two_names_of_a_home_are_one_home(home: Home) -> None:
    held = home.attach()
    link = home.path.with_name("link")
    link.symlink_to(home.path)
    other = attach(link, linger_s=0)
    assert other.url == held.url
    assert other.home == held.home
    other.release(linger_s=0)
    held.release(linger_s=0)


def test_nobody_else_may_enter_a_home_whatever_the_umask(home: Home) -> None:
    before = os.umask(0)
    try:
        held = home.attach()
    finally:
        os.umask(before)
    for path in (home.path, home.place.data_dir, home.place.socket().parent, home.place.socket()):
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path
    held.release(linger_s=0)


def test_a_removed_home_takes_its_server_with_it(home: Home) -> None:
    user = home.user(linger_s=3600)
    user.attach()
    home.record()
    shutil.rmtree(home.path)
    home.until_nothing_runs()


def test_a_home_that_is_made_anew_starts_empty(home: Home) -> None:
    old = home.attach()
    with Redis.from_url(old.url) as redis:
        redis.set("key", "old")
    home.record()
    shutil.rmtree(home.path)
    new = home.attach()
    with Redis.from_url(new.url) as redis:
        assert redis.get("key") is None
    home.until_one_server_runs()
    new.release(linger_s=0)
    os.close(old.users_lock)


def test_the_socket_does_not_lie_where_a_logout_removes_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = home.path.parent / "run"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert not home.place.socket().is_relative_to(runtime)


def test_a_server_that_runs_is_found_and_nothing_is_made(home: Home) -> None:
    assert not running_socket(home.path)
    assert not home.path.exists()
    held = home.attach()
    record = home.record()
    assert running_socket(home.path) == record.socket
    assert home.has_keeper() and home.place.data_bytes() > 0
    assert record.server_pid == int(home.info("process_id"))
    held.release(linger_s=0)
    home.until_nothing_runs()
    assert not running_socket(home.path)
    home.until(lambda: not home.has_keeper())  # its lock outlives its name by a moment
