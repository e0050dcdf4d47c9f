"""The Redis ACL users of hpq's roles on a server of a given version. Pure.

Each role may use only the keys of its prefix; producers and workers also RQ's keys for tickets and
the register of workers. No role may list keys; only producers and workers run hpq's scripts.

Operators' limits of owners are in PREFIX.limits, outside of PREFIX:*, since a prefix has no dot. Of
the users here, only that of the cluster file's limits can write them. Below Redis 7.0, which lacks
the right to read only, roles can.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256

ROLES = ("producer", "worker", "viewer", "autoscaler")
_PERSONAL = "user-"  # and a person's name: a producer whose user can be removed alone
Version = tuple[int, int]
# `default` cannot log in, but keeps its rights: Redis 7.0 replays its append-only file as
# `default`, and skips commands that `default` may not run.
DEFAULT_OFF = "user default off resetpass ~* &* +@all"

# What hpq and RQ send, and what the scripts call. AUTH and HELLO need no right.
_LINK = "ping select"
_READS = f"""{_LINK} exists get hexists hget hgetall hkeys hlen hmget info scard
    smembers smismember time xrange xread xrevrange zcard zcount zdiff zmscore zrange zrangebyscore
    zrevrange zscore"""
_WRITES = f"""{_READS} del evalsha exec expire hdel hincrby hset hsetnx llen ltrim
    multi persist pexpire rename rpush sadd script|load set sismember srem strlen unlink xadd
    xdel xlen zadd zincrby zrank zrem zremrangebyrank zremrangebyscore zrevrangebyscore zrevrank"""
_WORKS = f"{_WRITES} blpop client|setname lpush"
_SCALES = f"{_LINK} eval evalsha llen type"  # KEDA runs a script of its own
_NAMES_ITSELF = "client|setinfo"  # KEDA's client; that of hpq does not, since it takes round trips


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user: its role, its name on the server, and its rules without the password."""

    role: str
    name: str
    rules: tuple[str, ...]


def users(prefix: str, version: Version, people: Sequence[str] = ()) -> list[User]:
    """Return one user for each role of a prefix, on a server of this version.

    Each of `people` gets a user with the rights of a producer.
    """
    reads = "%R~" if version >= (7, 0) else "~"
    tickets = ("~rq:queues", f"~rq:queue:hpq:{prefix}:*", f"~rq:job:hpq_{prefix}_*")
    register = ("~rq:workers", f"~rq:workers:hpq:{prefix}:*", "~rq:worker:*")
    own = (f"~{prefix}", f"~{prefix}:*")  # the prefix alone is the one key that scripts declare
    limits = f"{reads}{prefix}.limits"
    keys_of = {
        "producer": (*own, limits, *tickets),
        "worker": (*own, limits, *tickets, *register),
        "viewer": (f"{reads}{prefix}:*", limits),
        "autoscaler": (f"~{prefix}:demand:*",),  # EVAL requires write access to its keys
    }
    sends = {"producer": _WRITES, "worker": _WORKS, "viewer": _READS, "autoscaler": _SCALES}
    # 7.0 refuses the name of a subcommand that it lacks; 6.2 takes any.
    if not (7, 0) <= version < (7, 2):
        sends["autoscaler"] += f" {_NAMES_ITSELF}"
    rights = {role: role for role in ROLES}
    rights |= {personal_role(name): "producer" for name in people}
    return [
        User(
            role=role,
            name=f"{prefix}-{role}",
            rules=(
                *("resetkeys", "resetchannels", *keys_of[right], "-@all"),
                *(f"+{command}" for command in sends[right].split()),
            ),
        )
        for role, right in rights.items()
    ]


def personal_role(name: str) -> str:
    """Return the role of one person's Redis user."""
    return f"{_PERSONAL}{name}"


def person_of(role: str) -> str:
    """Return the person whose Redis user has a role; "" for a role of hpq."""
    return role.removeprefix(_PERSONAL) if role.startswith(_PERSONAL) else ""


def administrator(prefix: str) -> User:
    """Return the user that may do everything on the server."""
    return User(role="admin", name=f"{prefix}-admin", rules=("~*", "&*", "+@all"))


def copier(prefix: str) -> User:
    """Return the user of backups, which can copy the server, with all prefixes, and nothing else.

    `redis-cli --rdb` copies it as a replica does, by SYNC; REPLCONF asks for the RDB alone.
    """
    rules = ("resetkeys", "resetchannels", "-@all", "+sync", "+replconf")
    return User(role="backup", name=f"{prefix}-backup", rules=rules)


def limiter(prefix: str) -> User:
    """Return the user that sets the limits of owners which a cluster file names."""
    keys = f"~{prefix}.limits"
    rules = ("resetkeys", "resetchannels", keys, "-@all", "+ping", "+del", "+hset")
    return User(role="limits", name=f"{prefix}-limits", rules=rules)


def line(user: User, passwords: Mapping[str, str], *, aclfile: bool) -> str:
    """Format a user for redis-cli or an aclfile, with the hash of its password.

    A missing password becomes a placeholder that the server rejects.
    """
    password = passwords.get(user.role)
    digest = sha256(password.encode()).hexdigest() if password else f"SHA256-FOR-{user.name}"
    head = f"user {user.name}" if aclfile else f"ACL SETUSER {user.name} reset"
    return " ".join((head, "on", f"#{digest}", *user.rules))
