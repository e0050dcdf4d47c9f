"""The ACL users as text: what each version of the server takes, and that no password is in it."""

from __future__ import annotations

import pytest

from hpq_producer.manifests.acl import ROLES, line, users


def rules(role: str, version: tuple[int, int]) -> tuple[str, ...]:
    return next(user.rules for user in users("lab", version) if user.role == role)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("version", [(6, 2), (7, 0), (7, 2), (8, 0)])
def test_every_role_may_ask_the_time_and_nobody_lists_keys(role, version) -> None:
    got = rules(role, version)
    assert "+time" in got and "-@all" in got and "resetchannels" in got
    assert not {"+keys", "+scan", "allkeys", "~*", "+@all", "+config", "+acl"} & set(got)
    assert not any(rule.startswith("(") for rule in got)  # no selectors
    assert all("lab" in rule or "rq:" in rule for rule in got if "~" in rule)


def test_read_only_keys_are_written_so_from_7_0_on() -> None:
    for role in ROLES:
        assert not any(rule.startswith("%R~") for rule in rules(role, (6, 2)))
    assert "%R~lab:*" in rules("viewer", (7, 0)) and "~lab:*" in rules("viewer", (6, 2))


def test_viewers_run_no_script_and_write_nothing() -> None:
    got = rules("viewer", (6, 2))
    assert not {"+eval", "+evalsha", "+script|load", "+@write", "+@scripting"} & set(got)


def test_a_line_holds_the_hash_and_never_the_password() -> None:
    (user,) = [u for u in users("lab", (7, 0)) if u.role == "worker"]
    text = line(user, {"worker": "s3cret"}, aclfile=True)
    assert text.startswith("user lab-worker on #") and "s3cret" not in text
    assert "#SHA256-FOR-lab-worker" in line(user, {}, aclfile=False)
