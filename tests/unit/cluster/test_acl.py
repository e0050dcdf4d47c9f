"""The ACL users as text: what each version of the server takes, and that no password is in it."""

from __future__ import annotations

import re

import pytest

from hpq.redis.acl import ROLES, line, users
from tests.support.constants import ROOT

CALL = re.compile(r"redis\.p?call\([^'\n]*'([A-Z]+)'(?: or '([A-Z]+)')?")


def rules(role: str, version: tuple[int, int]) -> tuple[str, ...]:
    return next(user.rules for user in users("lab", version) if user.role == role)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("version", [(6, 2), (7, 0), (7, 2), (8, 0)])
def test_every_role_is_a_list_of_commands_without_a_category(role, version) -> None:
    got = rules(role, version)
    assert "-@all" in got and "resetchannels" in got and not {"allkeys", "~*"} & set(got)
    assert not any(rule.startswith("+@") for rule in got)
    assert not any(rule.startswith("(") for rule in got)  # no selectors
    assert all("lab" in rule or "rq:" in rule for rule in got if "~" in rule)


def test_a_worker_may_send_every_command_of_the_scripts() -> None:
    scripts = [*(ROOT / "hpq/store/lua").rglob("*.lua")]
    sent = {name.lower() for file in scripts for name in sum(CALL.findall(file.read_text()), ())}
    got = {rule.removeprefix("+").partition("|")[0] for rule in rules("worker", (7, 2))}
    assert {"hget", "zrank", "zrevrank"} <= sent  # they are found
    assert sent - {""} <= got


def test_read_only_keys_are_written_so_from_7_0_on() -> None:
    for role in ROLES:
        assert not any(rule.startswith("%R~") for rule in rules(role, (6, 2)))
    assert "%R~lab:*" in rules("viewer", (7, 0)) and "~lab:*" in rules("viewer", (6, 2))


def test_a_subcommand_that_7_0_lacks_is_left_out_there() -> None:
    """7.0 refuses the whole user then; 6.2 takes any subcommand of a command that it has."""
    name = "+client|setinfo"
    assert name not in rules("autoscaler", (7, 0))
    assert {name} <= set(rules("autoscaler", (6, 2))) & set(rules("autoscaler", (7, 2)))


def test_a_line_holds_the_hash_and_never_the_password() -> None:
    (user,) = [u for u in users("lab", (7, 0)) if u.role == "worker"]
    text = line(user, {"worker": "s3cret"}, aclfile=True)
    assert text.startswith("user lab-worker on #") and "s3cret" not in text
    assert "#SHA256-FOR-lab-worker" in line(user, {}, aclfile=False)
