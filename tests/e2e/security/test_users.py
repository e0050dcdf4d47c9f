"""People with a Redis user and a code key of their own: what a raw client of one of them may do."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from hpq.domain.sweep import PERSONAL_SCHEMA, SweepState
from hpq.domain.trial import FailureKind, TrialState
from tests.support.ids import ids, refused
from tests.support.lab import Lab, MakeLab

ROLES = ("producer", "worker", "viewer", "autoscaler")
PROGRAM = """
    import os
    from pathlib import Path
    Path("CODE", "ran-" + os.environ["HPQ_SWEEP_ID"]).touch()
    print("loss=1")
"""
WAITS = """
    import time
    from pathlib import Path
    Path("CODE", "began").touch()
    while not Path("CODE", "go").exists():
        time.sleep(0.02)
    print("loss=1")
"""
SWEEP = "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1]}}\n"
Env = dict[str, str]


class Group:
    """A server with the users of `hpq redis-acl`, where ana and ben were invited."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        for role in ROLES:
            (folder / role).write_text(f"pass of {role}\n", "utf-8")
        for text in lab.ok("redis-acl", "--passwords", folder).splitlines():
            lab.redis.execute_command(*text.split())
        self.ana, self.ben = self.invited("ana"), self.invited("ben")
        for name, text in (("train.py", PROGRAM), ("waits.py", WAITS)):
            lab.write(name, text.replace("CODE", str(lab.code)))  # workers run a copy

    def as_role(self, role: str) -> Env:
        url = self.lab.server.url.replace("://", f"://hpq-{role}@")
        return {"HPQ_REDIS_URL": url, "HPQ_REDIS_PASSWORD_FILE": str(self.folder / role)}

    def invited(self, name: str) -> Env:
        """Invite a person as the administrator, and join on a machine of that person."""
        token, home = self.folder / f"token of {name}", self.folder / name
        token.unlink(missing_ok=True)
        self.lab.ok("invite", "--user", name, "--file", token)
        env = {"HPQ_REDIS_URL": "", "HPQ_HOME": str(home), "HPQ_USER": "somebody"}
        assert "no worker" in self.lab.hpq("join", token, **env).stderr
        return env

    def raw(self, name: str) -> Redis:
        """A raw client with the password of a person."""
        password = (self.folder / name / "join" / "password").read_text()
        return Redis.from_url(self.lab.server.url, username=f"hpq-user-{name}", password=password)

    def worker(self, n: int = 1) -> None:
        """Start workers with their own role and the cluster's key."""
        self.lab.worker(n, **self.as_role("worker"))

    def has_run(self, sid: str) -> bool:
        return (self.lab.code / f"ran-{sid}").exists()


@pytest.fixture
def group(make_lab: MakeLab, tmp_path: Path) -> Group:
    return Group(make_lab(), tmp_path)


def forge(**fields: object) -> Callable[[Group, Redis, str, str], None]:
    def change(group: Group, raw: Redis, sid: str, _: str) -> None:
        raw.hset(group.lab.keys.sweep(sid), mapping=fields)  # type: ignore[arg-type]

    return change


def copy_of_bens(group: Group, raw: Redis, sid: str, bens: str) -> None:
    keys = group.lab.keys
    raw.hset(keys.sweep(sid), mapping=raw.hgetall(keys.sweep(bens)))
    raw.hset(keys.sweep(sid, "params"), mapping=raw.hgetall(keys.sweep(bens, "params")))


def another_command(group: Group, raw: Redis, sid: str, _: str) -> None:
    key = group.lab.keys.sweep(sid)
    launch = json.loads(raw.hget(key, "launch")) | {"command": ["touch", "ran"]}
    raw.hset(key, "launch", json.dumps(launch))


BUILT_IN = json.dumps({"trainer": "digits"})
ATTACKS = {
    "another owner": forge(owner="ben"),
    "a priority": forge(priority=1000),
    "a priority as an older hpq signs": forge(priority=1000, schema=3),
    "another owner as an older hpq signs": forge(owner="ben", schema=3),
    "ben's signed sweep": copy_of_bens,
    "another command": another_command,
    "no signature": forge(signature="", schema=3),
    "a built-in trainer for ben": forge(launch=BUILT_IN, owner="ben", signature="", schema=3),
    "a built-in trainer of her own": forge(launch=BUILT_IN, priority=1000),
}


def test_a_raw_client_forges_no_owner_and_no_priority_and_bens_sweep_runs(group: Group) -> None:
    """Security: each attack of ana is refused, with limits set; ben's own sweep runs."""
    lab = group.lab
    lab.ok("user", "ana", "--limit", "running=50")
    bens = lab.enqueue(SWEEP, **group.ben)
    forged = {}
    with group.raw("ana") as raw:
        for i, (what, attack) in enumerate(ATTACKS.items()):
            sid = forged[what] = lab.enqueue(SWEEP, "--new", "--name", f"a{i}", **group.ana)
            attack(group, raw, sid, bens)
    group.worker()
    for what, sid in forged.items():
        assert lab.refusal(sid).code == "code-not-signed", what
    lab.wait_over(bens)
    assert group.has_run(bens) and not any(map(group.has_run, forged.values()))
    assert lab.reader.sweeps.get(bens).owner == "ben"
    sound = lab.enqueue(SWEEP, "--new", "--name", "sound", **group.ana)
    lab.wait_over(sound)
    view = lab.reader.sweeps.get(sound)
    assert (view.owner, view.schema) == ("ana", PERSONAL_SCHEMA)
    (ana,) = json.loads(lab.ok("user", "ana", "-o", "json"))
    assert ana["limits"]["running"] == 50 and ana["gpu_hours"] > 0 and ana["running"] == 0
    counted = int(lab.redis.hget(lab.keys.counters, "code_refused"))
    assert counted == len(forged) and "Traceback" not in lab.log()


def test_a_row_of_another_sweep_fails_its_trial(group: Group) -> None:
    lab = group.lab
    first = lab.enqueue(SWEEP, **group.ana)
    second = lab.enqueue(SWEEP.replace("[1]", "[2]"), **group.ana)
    with group.raw("ana") as raw:
        row = raw.hget(lab.keys.sweep(first, "params"), "1")
        raw.hset(lab.keys.sweep(second, "params"), "1", row)
    group.worker()
    lab.wait_until(lambda: lab.trial(second).state.is_terminal, "its end")  # the audit reports it
    failure = lab.trial(second).failure
    assert failure and failure.kind is FailureKind.DISTRUSTED
    lab.wait_over(first)
    assert lab.trial(first).state is TrialState.FINISHED


def test_a_place_in_the_queue_is_not_worth_more_than_the_priority(group: Group) -> None:
    lab = group.lab
    mine = lab.enqueue(SWEEP, **group.ana)
    bens = lab.enqueue(SWEEP + "priority: 5\n", "--new", **group.ben)
    with group.raw("ana") as raw:
        raw.zadd(lab.keys.queue("default", "open"), {mine: -1e18})
    group.worker()
    lab.wait_over(mine)
    lab.wait_over(bens)
    assert lab.trial(bens).claimed_ms <= lab.trial(mine).claimed_ms


WRITES = (
    ("HSET", "hpq.limits", "ana/priority", "1000"),
    ("DEL", "hpq.limits"),
    ("HSET", "hpq.spent", "ana", "0"),
    ("DEL", "hpq.running:ana"),
    ("ACL", "SETUSER", "hpq-user-ana", "allkeys"),
    ("ACL", "LIST"),
    ("CONFIG", "SET", "requirepass", "x"),
)


def test_a_person_reads_limits_and_cannot_write_them(group: Group) -> None:
    done = group.lab.hpq("user", "ana", "--limit", "running=9", **group.ana)
    refused(done, "redis-forbidden", exit=4)
    with group.raw("ana") as raw:
        for name in ("hpq.limits", "hpq.spent", "hpq.running:ana"):
            assert raw.hgetall(name) == {}
        for words in WRITES:
            with pytest.raises(NoPermissionError):
                raw.execute_command(*words)


def test_a_person_works_under_one_name_whatever_the_settings_and_the_file_say(
    group: Group,
) -> None:
    lab = group.lab
    sid = lab.enqueue(
        SWEEP, HPQ_USER="ben", **{k: v for k, v in group.ana.items() if k != "HPQ_USER"}
    )
    assert lab.reader.sweeps.get(sid).owner == "ana"
    path = lab.write("bens.yaml", f"owner: ben\n{SWEEP}")
    refused(lab.hpq("enqueue", path, "--new", **group.ana), "sweep-of-another", "owner", exit=4)
    said = json.loads(lab.hpq("doctor", "--json", **group.ana).stdout)
    assert any("ana" in one["what"] for one in said if one["code"] == "code-key")
    assert "code-key-differs" not in {one["code"] for one in said}
    bens = lab.enqueue(SWEEP, "--new", **group.ben)
    for words in (("show", bens), ("results", bens), ("ls",)):
        assert "parameters-unverified" not in ids(lab.hpq(*words, **group.ana).stderr)
    refused(lab.hpq("set", bens, "priority=1", **group.ana), "sweep-of-another", exit=4)
    forced = lab.hpq("set", bens, "priority=1", "--force", **group.ana)
    refused(forced, "code-key-differs", "ben")
    lab.ok("set", sid, "priority=3", **group.ana)
    lab.ok("set", bens, "priority=4", "--force")  # by the holder of the cluster's key
    lab.ok("enqueue", lab.write("more.yaml", SWEEP.replace("[1]", "[1, 2]")), "--into", sid,
           **group.ana)  # fmt: skip
    group.worker()
    for one, owner, priority in ((sid, "ana", 3), (bens, "ben", 4)):
        lab.wait_over(one)
        view = lab.reader.sweeps.get(one)
        assert (view.owner, view.priority, view.counts.failed) == (owner, priority, 0)
    best = lab.hpq("best", sid, "--args", **group.ana)
    assert best.returncode == 0, best.stderr


def test_a_removed_person_is_disconnected_and_the_sweep_runs_to_its_end(group: Group) -> None:
    lab = group.lab
    text = SWEEP.replace("train.py", "waits.py").replace("[1]", "[1, 2]")
    sid = lab.enqueue(text, **group.ana)
    group.worker()
    lab.wait_until((lab.code / "began").exists, "the first trial")
    with group.raw("ana") as raw:
        assert raw.ping()
        connected = raw.connection_pool.get_connection()
        lab.ok("invite", "--user", "ana", "--revoke")
        with pytest.raises(RedisError):
            connected.send_command("PING")
            connected.read_response()
    refused(lab.hpq("ls", **group.ana), "redis-password-refused", exit=4)
    (lab.code / "go").touch()
    lab.wait_over(sid)
    view = lab.reader.sweeps.get(sid)
    assert view.state is SweepState.FINISHED and (view.owner, view.counts.finished) == ("ana", 2)
    refused(
        lab.hpq("invite", "--user", "ana", "--revoke"), "not-found", "hpq invite --user ana", exit=4
    )
    lab.hpq("leave", **group.ana)
    again = group.invited("ana")
    assert sid in lab.ok("ls", "--all", **again)


def test_only_an_administrator_with_the_key_of_the_group_invites(group: Group) -> None:
    lab = group.lab
    for env in (group.as_role("producer"), group.as_role("worker")):
        path = lab.folder / "no token"
        refused(
            lab.hpq("invite", "--user", "eve", "--file", path, **env), "redis-forbidden", exit=4
        )
        assert not path.exists()
    path = lab.folder / "a token"
    refused(lab.hpq("invite", "--file", path, **group.ana), "code-key-differs")
    refused(lab.hpq("invite", "--revoke"), "usage")
    refused(lab.hpq("invite", "--user", "Eve.X"), "usage")
