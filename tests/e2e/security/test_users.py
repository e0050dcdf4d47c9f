"""People with a Redis user of their own: what a raw client of one of them may do, and its end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from redis import Redis
from redis.exceptions import NoPermissionError, RedisError

from hpq.domain.sweep import SweepState
from tests.support.ids import refused
from tests.support.lab import Lab, MakeLab

ROLES = ("producer", "worker", "viewer", "autoscaler", "user-ana", "user-ben")
PEOPLE = ("--user", "ana", "--user", "ben")
WAITS = """
    import time
    from pathlib import Path
    Path("CODE", "began").touch()
    while not Path("CODE", "go").exists():
        time.sleep(0.02)
    print("loss=1")
"""
SWEEP = "program: waits.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}\n"
Env = dict[str, str]


class Group:
    """A server with the users of `hpq redis-acl`, two of them of single people."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        for role in ROLES:
            (folder / role).write_text(f"pass of {role}\n", "utf-8")
        for text in lab.ok("redis-acl", "--passwords", folder, *PEOPLE).splitlines():
            lab.redis.execute_command(*text.split())
        lab.write("waits.py", WAITS.replace("CODE", str(lab.code)))  # workers run a copy

    def as_role(self, role: str) -> Env:
        url = self.lab.server.url.replace("://", f"://hpq-{role}@")
        return {"HPQ_REDIS_URL": url, "HPQ_REDIS_PASSWORD_FILE": str(self.folder / role)}

    def raw(self, name: str) -> Redis:
        """A raw client with the password of a person."""
        password = (self.folder / f"user-{name}").read_text().strip()
        return Redis.from_url(self.lab.server.url, username=f"hpq-user-{name}", password=password)


@pytest.fixture
def group(make_lab: MakeLab, tmp_path: Path) -> Group:
    return Group(make_lab(), tmp_path)


def test_a_person_works_as_a_producer_and_is_removed_alone(group: Group) -> None:
    lab, ana, ben = group.lab, group.as_role("user-ana"), group.as_role("user-ben")
    sid = lab.enqueue(SWEEP, HPQ_USER="ana", **ana)
    lab.ok("set", sid, "priority=3", HPQ_USER="ana", **ana)
    lab.worker(**group.as_role("worker"))
    lab.wait_until((lab.code / "began").exists, "the first trial")
    with group.raw("ana") as raw:
        connected = raw.connection_pool.get_connection()
        lab.redis.execute_command("ACL", "DELUSER", "hpq-user-ana")
        with pytest.raises(RedisError):
            connected.send_command("PING")
            connected.read_response()
    refused(lab.hpq("ls", **ana), "redis-password-refused", exit=4)
    assert sid in lab.ok("ls", **ben)
    (lab.code / "go").touch()
    lab.wait_over(sid)
    view = lab.reader.sweeps.get(sid)
    assert (view.owner, view.priority, view.counts.finished) == ("ana", 3, 2)
    assert view.state is SweepState.FINISHED and "Traceback" not in lab.log()


WRITES = (
    ("HSET", "hpq.limits", "ana/priority", "1000"),
    ("DEL", "hpq.limits"),
    ("ACL", "SETUSER", "hpq-user-ana", "allkeys"),
    ("ACL", "LIST"),
    ("CONFIG", "SET", "requirepass", "x"),
)


def test_a_person_reads_limits_and_cannot_write_them(group: Group) -> None:
    done = group.lab.hpq("user", "ana", "--limit", "running=9", **group.as_role("user-ana"))
    refused(done, "redis-forbidden", exit=4)
    with group.raw("ana") as raw:
        assert raw.hgetall("hpq.limits") == {}
        for words in WRITES:
            with pytest.raises(NoPermissionError):
                raw.execute_command(*words)


def test_a_person_has_the_rights_of_a_producer_and_a_password_of_their_own(group: Group) -> None:
    lab = group.lab
    found = {one["role"]: one for one in json.loads(lab.ok("redis-acl", *PEOPLE, "--json"))}
    assert found["user-ana"]["name"] == "hpq-user-ana"
    assert found["user-ana"]["rules"] == found["producer"]["rules"]
    assert set(found) == set(ROLES)
    before = {role: (group.folder / role).read_text() for role in ROLES}
    lab.ok("redis-acl", "--rotate", "--passwords", group.folder, "--user", "ana")
    after = {role: (group.folder / role).read_text() for role in ROLES}
    assert {role for role in ROLES if before[role] == after[role]} == {"user-ben"}
    assert lab.hpq("ls", **group.as_role("user-ana")).returncode == 0
    refused(lab.hpq("redis-acl", "--user", "Eve.X"), "usage")
    refused(lab.hpq("redis-acl", "--rotate", "--user", "ana"), "usage")
    refused(lab.hpq("redis-acl", "--passwords", group.folder, "--user", "eve"), "file-unreadable")
