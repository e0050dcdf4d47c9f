"""Settings: what the environment may say, and what nobody may see."""

from __future__ import annotations

import pytest

from hpq.errors import SettingsError
from hpq.settings import describe, read


def test_an_empty_variable_counts_as_not_set() -> None:
    assert read({"HPQ_LEASE_S": "", "HPQ_PREFIX": " "}).lease_s == 30.0


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HPQ_LEASE_S", "abc"),
        ("HPQ_LEASE_S", "0"),
        ("HPQ_LEASE_S", "nan"),
        ("HPQ_PREFIX", "A b"),
        ("HPQ_QUEUE", "-x"),
        ("HPQ_LOST_MAX", "0"),
        ("HPQ_PORT", "70000"),
        ("HPQ_REDIS_URL", "http://x"),
        ("HPQ_LOG", "loud"),
    ],
)
def test_a_malformed_variable_is_named(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: "):
        read({name: value})


def test_secrets_are_hidden_in_what_is_shown_and_in_errors() -> None:
    env = {"HPQ_REDIS_URL": "redis://me:pa55word@h:1/0", "HPQ_CODE_KEY": "k3y"}
    shown = describe(read(env))
    assert shown["HPQ_REDIS_URL"] == "redis://me:***@h:1/0" and shown["HPQ_CODE_KEY"] == "***"
    with pytest.raises(SettingsError) as caught:
        read({"HPQ_REDIS_URL": "http://me:pa55word@h"})
    assert "pa55word" not in str(caught.value)


def test_a_user_that_no_file_knows_still_has_a_name() -> None:
    assert read({"LOGNAME": "me"}).user == "me"
    assert read({}).user
