"""The ACL users that hpq's roles want on a server of a given version. Pure.

Each role gets the keys of the prefix and no more; producers and workers also RQ's keys that tickets
and the register of workers need. Nobody lists keys, and nobody but them runs scripts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

ROLES = ("producer", "worker", "viewer", "autoscaler")
Version = tuple[int, int]
# Nobody comes in without a name. The user keeps its rights all the same: a server may play its
# append-only file back as `default`, and then leaves out what that may not do (Redis 7.0 does).
DEFAULT_OFF = "user default off resetpass ~* &* +@all"

_READS = ("-@all", "+@read", "+@connection", "-@dangerous", "-scan", "-randomkey", "-dbsize")
_WRITES = ("-@all", "+@read", "+@write", "+@connection", "+@transaction", "-@dangerous", "-@admin",
           "-scan", "-randomkey", "-dbsize", "+evalsha", "+script|load")  # fmt: skip
# Scripts and readers ask the server's clock and version; below 7.0 CLIENT is one dangerous command.
_ALL = ("+time", "+info")
_NAMES_ITSELF = ("+client|setname", "+client|setinfo")
# KEDA asks by a script of its own, which can do no more than these.
_SCALES = ("-@all", "+@connection", "-@dangerous", "+llen", "+type", "+eval", "+evalsha")


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """One user: its role, its name on the server, and its rules without the password."""

    role: str
    name: str
    rules: tuple[str, ...]


def users(prefix: str, version: Version) -> list[User]:
    """One user a role for a prefix on a server of this version."""
    reads = "%R~" if version >= (7, 0) else "~"
    tickets = ("~rq:queues", f"~rq:queue:hpq:{prefix}:*", f"~rq:job:hpq_{prefix}_*")
    register = ("~rq:workers", f"~rq:workers:hpq:{prefix}:*", "~rq:worker:*")
    own = (f"~{prefix}", f"~{prefix}:*")  # the prefix alone: scripts are told it as their one key
    keys_of = {
        "producer": (*own, *tickets),
        "worker": (*own, *tickets, *register),
        "viewer": (f"{reads}{prefix}:*",),
        "autoscaler": (f"~{prefix}:demand:*",),  # an EVAL wants the right to write its keys
    }
    does = {"producer": _WRITES, "worker": _WRITES, "viewer": _READS, "autoscaler": _SCALES}
    more = _ALL if version >= (7, 0) else (*_ALL, *_NAMES_ITSELF)
    return [
        User(
            role=role,
            name=f"{prefix}-{role}",
            rules=("resetkeys", "resetchannels", *keys_of[role], *does[role], *more),
        )
        for role in ROLES
    ]


def line(user: User, passwords: Mapping[str, str], *, aclfile: bool) -> str:
    """A user as a line for redis-cli or for an aclfile; no password stands in it, only its hash.

    A password that is not given leaves a mark which the server refuses: nobody gets in by mistake.
    """
    password = passwords.get(user.role)
    mark = sha256(password.encode()).hexdigest() if password else f"SHA256-FOR-{user.name}"
    head = f"user {user.name}" if aclfile else f"ACL SETUSER {user.name} reset"
    return " ".join((head, "on", f"#{mark}", *user.rules))
