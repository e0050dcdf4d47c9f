"""The scripts of k8s/ that copy a Redis server and start one from a copy, on real servers."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError

from hpq.domain.attempt import CommitReply, HeartbeatReply, Nothing, Reason
from hpq.domain.trial import TrialState
from hpq.redis.acl import copier, limiter, line
from hpq.store.reader import StoreReader
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from hpq_ops.audit.sweep_audit import audit_sweep
from tests.support.constants import DEADLINE_S
from tests.support.manifests import by_name, rendered
from tests.support.server import Server
from tests.support.store_calls import beat, end, reaped
from tests.support.store_calls import take as claimed

LIMITS = "{'*': {priority: 10}, 'ana b': {running: 0, gpu_hours: 1.5}}"
OBJECTS = by_name(rendered(f"store: {{}}\nbackup: {{keep: 2}}\nlimits: {LIMITS}"))
PROGRAMS = ("redis-cli", "redis-server", "redis-check-rdb")
pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, PROGRAMS)), reason="no redis-cli beside the server"
)
# Ends well and has written half of a copy.
HALF = "#!/bin/sh\nfor last; do :; done\nprintf REDIS0011 >$last\n"
Done = subprocess.CompletedProcess[str]


@pytest.fixture
def backup(redis: Redis, port: int, tmp_path: Path) -> Iterator[Callable[..., Done]]:
    """Return a function that does what the CronJob does, as its Redis user."""
    delay = redis.config_get("repl-diskless-sync-delay")["repl-diskless-sync-delay"]
    redis.config_set("repl-diskless-sync-delay", 0)
    user = copier("hpq")
    redis.execute_command("ACL", "SETUSER", user.name, "reset", "on", ">secret", *user.rules)
    job = OBJECTS["CronJob", "hpq-backup"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = job["containers"]
    (tmp_path / "password").write_text("secret\n")

    def run(folder: Path, at: str = f"127.0.0.1:{port}", path: str = "") -> Done:
        env = {
            "PATH": f"{path}:{os.environ['PATH']}",
            "HPQ_REDIS_URL": f"redis://hpq-worker@{at}/0",
            "REDIS_USER": user.name,
            "PASSWORD_FILE": str(tmp_path / "password"),
        }
        words = [*container["command"], str(folder), container["args"][1]]
        return subprocess.run(words, env=env, capture_output=True, text=True, check=False)

    yield run
    redis.config_set("repl-diskless-sync-delay", delay)
    redis.execute_command("ACL", "DELUSER", user.name)


class Restored:
    """A server that starts as the pod of Redis does."""

    def __init__(self) -> None:
        # A socket's path has 108 bytes.
        self.data = Path(tempfile.mkdtemp(prefix="hpq-b-"))
        data = OBJECTS["ConfigMap", redis_conf()]["data"]
        text = data["start.sh"].replace("/data", str(self.data))
        text = text.replace("/etc/redis/redis.conf", "").replace("/etc/redis", str(self.data))
        text = text.replace("/run/secrets/hpq-limits", str(self.data))
        text = text.replace("-p 6379", f"-s {self.data}/redis.sock")
        user = limiter("hpq")
        (self.data / "username").write_text(user.name)
        (self.data / "password").write_text("secret")
        acl = [
            "user default on nopass ~* &* +@all",
            line(user, {user.role: "secret"}, aclfile=True),
        ]
        (self.data / "users.acl").write_text("".join(f"{one}\n" for one in acl))
        script = self.data / "start"
        script.write_text(f"#!/bin/sh\n{text}")
        script.chmod(0o700)
        self.server = Server(self.data, str(script), "--aclfile", f"{self.data}/users.acl")
        self.redis = Redis.from_url(self.server.url, decode_responses=True)

    def start(self, copy: Path | None = None) -> None:
        """Start it again, with a copy to restore if one is given."""
        self.server.kill()
        if copy is not None:
            shutil.copy(copy, self.data / "restore.rdb")
        self.server.start()

    def left(self) -> set[str]:
        """Return the names of the files that say what became of a copy."""
        names = (name.partition("-2")[0] for name in os.listdir(self.data))
        return {name for name in names if name.endswith((".rdb", "before-restore"))}


def redis_conf() -> str:
    return next(name for kind, name in OBJECTS if name.startswith("hpq-redis-conf"))


@pytest.fixture
def restored() -> Iterator[Restored]:
    made = Restored()
    yield made
    made.redis.close()
    made.server.kill()
    shutil.rmtree(made.data)


def until(is_so: Callable[[], bool]) -> None:
    """Poll until a condition is true."""
    end_at = time.monotonic() + DEADLINE_S
    while not is_so():
        assert time.monotonic() < end_at
        time.sleep(0.02)


def copies(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def test_a_copy_appears_when_it_is_whole_and_the_newest_stay(
    backup: Callable[..., Done], redis: Redis, tmp_path: Path
) -> None:
    folder, programs = tmp_path / "backups", tmp_path / "bin"
    for old in ("2026-01-01T030000Z.rdb", "2026-01-02T030000Z.rdb", "mine.rdb"):
        folder.mkdir(exist_ok=True)
        (folder / old).touch()
    redis.set("k", "v")
    done = backup(folder)
    assert done.returncode == 0, done.stderr
    older, newest, mine = copies(folder)
    assert older.name == "2026-01-02T030000Z.rdb" and mine.name == "mine.rdb"
    assert newest.stat().st_mode & 0o777 == 0o600 and f"backup: {newest}" in done.stdout

    programs.mkdir()
    (programs / "redis-cli").write_text(HALF)
    (programs / "redis-cli").chmod(0o700)
    for failed in (backup(folder, at="127.0.0.1:1"), backup(folder, path=str(programs))):
        assert failed.returncode != 0 and "backup: " not in failed.stdout
        assert copies(folder) == [older, newest, mine]


def test_the_user_of_backups_can_do_nothing_else(
    backup: Callable[..., Done], port: int, redis: Redis
) -> None:
    redis.set("k", "v")
    login = ["redis-cli", "-p", str(port), "--user", "hpq-backup", "-a", "secret"]
    for words in (["GET", "k"], ["SET", "k", "w"], ["KEYS", "*"], ["EVAL", "return 1", "0"]):
        done = subprocess.run([*login, *words], capture_output=True, text=True, check=False)
        assert "NOPERM" in done.stdout, words


def test_a_copy_becomes_the_data_of_a_server_without_sweeps_and_of_no_other(
    backup: Callable[..., Done], restored: Restored, sweep_of, tmp_path: Path
) -> None:
    sweep_of(3)
    assert backup(tmp_path / "backups").returncode == 0
    (copy,) = copies(tmp_path / "backups")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(copy.read_bytes()[:-20])

    restored.start()
    restored.redis.set("rq:worker:w", "1")  # of workers that found it empty
    (restored.data / "before-restore").mkdir()  # by a person, as the page says
    (restored.data / "before-restore" / "mine").touch()
    restored.start(damaged)
    assert restored.left() == {"damaged.rdb", "before-restore"}
    assert restored.redis.keys("*") == ["rq:worker:w"]
    restored.start(copy)
    assert len(list(restored.data.glob("before-restore*/*.manifest"))) == 1
    assert (restored.data / "before-restore" / "mine").exists()
    assert restored.redis.zrange("hpq:sweeps", 0, -1) == ["demo-00000"]
    restored.redis.set("newer", "1")
    restored.start(copy)
    assert "refused.rdb" in restored.left() and restored.redis.get("newer") == "1"
    restored.redis.flushall()
    marked = tmp_path / "marked"
    marked.write_bytes(copy.read_bytes() + b"e" * 40)
    restored.start(marked)
    assert restored.redis.exists("hpq:sweeps") and not restored.redis.exists("newer")
    restored.redis.set("newer", "1")
    restored.redis.bgrewriteaof()
    restored.start()
    assert restored.redis.get("newer") == "1" and restored.redis.exists("hpq:sweeps")


def test_limits_of_the_cluster_file_and_no_others_hold_after_each_start(
    restored: Restored,
) -> None:
    wanted = {"*/priority": "10", "ana b/running": "0", "ana b/gpu_ms": "5400000"}

    def has_them() -> bool:
        return bool(restored.redis.hgetall("hpq.limits") == wanted)

    text = OBJECTS["ConfigMap", redis_conf()]["data"]["limits"]
    (restored.data / "limits").write_text(text)
    restored.start()
    until(has_them)
    restored.redis.hset("hpq.limits", mapping={"ben/running": 1, "*/priority": 20})
    restored.start()
    until(has_them)
    user = Redis.from_url(restored.server.url, username="hpq-limits", password="secret")
    for words in (["HGETALL", "hpq.limits"], ["HSET", "hpq:sweeps", "a", "1"], ["FLUSHALL"]):
        with pytest.raises(NoPermissionError):
            user.execute_command(*words)
    user.close()


def test_attempts_that_began_before_a_copy_go_on_and_later_ones_do_not_count(
    backup: Callable[..., Done], restored: Restored, sweep_of, store, who, keys, tmp_path: Path
) -> None:
    """The trial of each attempt runs again, unless its own attempt still runs."""
    sid = sweep_of(3).id
    store.reap("default", lease_ms=1, lost_max=3)
    running, ended = claimed(store, who), claimed(store, who)
    assert beat(store, who, running, 1, 1) is beat(store, who, ended, 1, 1) is HeartbeatReply.OK
    assert backup(tmp_path / "backups").returncode == 0
    assert end(store, ended, 0.5) is CommitReply.DONE
    later = claimed(store, who)
    assert beat(store, who, later, 1, 1) is HeartbeatReply.OK

    restored.start(*copies(tmp_path / "backups"))
    redis = Redis.from_url(restored.server.url)
    again, reader = TrialStore(StoreContext.open(redis, keys)), StoreReader(redis, keys, 30_000)
    assert beat(again, who, running, 2, 2) is HeartbeatReply.OK
    assert beat(again, who, later, 2, 2) is HeartbeatReply.UNKNOWN  # its training ends
    assert end(again, later, 0.7) is CommitReply.UNKNOWN  # and stays on the worker's disk
    other = claimed(again, who)
    assert other.trial == later.trial
    assert end(again, later, 0.7) is CommitReply.STALE

    assert end(again, running, 0.6) is CommitReply.DONE
    assert reaped(again, "default", lease_ms=30_000, lost_max=3) is None  # one lease long
    redis.zadd(keys.leases, {str(ended.trial): 1})
    redis.hset(keys.server, "since", 1)
    assert reaped(again, "default", lease_ms=1, lost_max=3) == 1
    third = claimed(again, who)
    assert (third.trial, third.attempt) == (ended.trial, 2)
    assert end(again, third, 0.5) is end(again, other, 0.7) is CommitReply.DONE
    assert again.claim(who, nonce="none", lease_ms=30_000) == Nothing()
    found = audit_sweep(reader, sid)
    assert not found.violations and not found.open
    states = [reader.trials.get(one.trial).state for one in (running, ended, later)]
    assert states == [TrialState.FINISHED] * 3
    redis.close()


def test_a_result_of_a_later_attempt_of_a_trial_in_the_copy_is_stale_at_once(
    backup: Callable[..., Done], restored: Restored, sweep_of, store, who, keys, tmp_path: Path
) -> None:
    sweep_of(1)
    store.release(claimed(store, who), Reason.STOPPING)
    assert backup(tmp_path / "backups").returncode == 0
    later = claimed(store, who)
    assert later.attempt == 2
    restored.start(*copies(tmp_path / "backups"))
    redis = Redis.from_url(restored.server.url)
    again = TrialStore(StoreContext.open(redis, keys))
    assert end(again, later, 0.7) is CommitReply.STALE
    assert claimed(again, who).attempt == 2
    redis.close()
