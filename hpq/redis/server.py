"""Read how a Redis server is set up, and change its users."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.exceptions import RedisError, ResponseError


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatus:
    """A server's role, whether it keeps an append-only file, and its configuration file."""

    role: str  # master | slave
    has_aof: bool
    config_file: str  # "" if the server was started without one


@dataclass(frozen=True, slots=True, kw_only=True)
class AclStatus:
    """What a restart does to a server's ACL users."""

    default_has_all: bool  # the user `default` may run every command on every key
    unsaved: int | None  # users that no aclfile keeps; None: not known


def read_status(redis: Redis) -> ServerStatus:
    """Read the role and the persistence of a server."""
    pipe = redis.pipeline(transaction=False)
    for section in ("replication", "persistence", "server"):
        pipe.info(section)
    answers: list[Any] = pipe.execute()
    replication, persistence, server = answers
    return ServerStatus(
        role=str(replication["role"]),
        has_aof=bool(int(persistence.get("aof_enabled", 0))),
        config_file=str(server.get("config_file", "")),
    )


def read_acl(redis: Redis) -> AclStatus | None:
    """Read a server's ACL users; None if these credentials may not ask."""
    try:
        default = redis.acl_getuser("default") or {}
    except (RedisError, ValueError):
        return None
    has_commands = "+@all" in str(default.get("categories"))
    has_keys = "*" in str(default.get("keys"))
    return AclStatus(default_has_all=has_commands and has_keys, unsaved=_unsaved(redis))


def _unsaved(redis: Redis) -> int | None:
    try:
        (aclfile,) = redis.config_get("aclfile").values()
        return 0 if aclfile else len(set(redis.acl_users()) - {"default"})
    except (RedisError, ValueError):  # managed servers refuse CONFIG
        return None


def change_password(redis: Redis, user: str, password: str) -> bool:
    """Change a user's password and disconnect its other clients.

    Returns whether the server saved the change in its aclfile or redis.conf.
    """
    if user == "default":  # ACL SETUSER would leave `requirepass` as it was
        redis.config_set("requirepass", password)
    else:
        redis.acl_setuser(user, enabled=True, reset_passwords=True, passwords=f"+{password}")
    redis.client_kill_filter(user=user)
    return _save_users(redis)


def _save_users(redis: Redis) -> bool:
    for save in (redis.acl_save, redis.config_rewrite):
        with suppress(ResponseError):  # the server has no such file
            save()
            return True
    return False
