"""Settings: what the environment may say, and what nobody may see."""

from __future__ import annotations

import pytest

from hpq.errors import SettingsError
from hpq.settings import ABOUT, describe, read


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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("HPQ_LEAS_S", "HPQ_LEASE_S"),
        ("HPQ_REDISURL", "HPQ_REDIS_URL"),
        ("HPQ_REDIS_URI", "HPQ_REDIS_URL"),
        ("HPQ_TRIALS_PER_GPUS", "HPQ_TRIALS_PER_GPU"),
        ("HPQ_home", "HPQ_HOME"),
    ],
)
def test_a_name_close_to_a_setting_is_refused(name: str, meant: str) -> None:
    with pytest.raises(SettingsError, match=f"^{name}: .* did you mean {meant}\\?$"):
        read({name: "3"})


def test_names_of_others_are_let_be() -> None:
    given = "ATTEMPT ATTEMPT_ID CHECKPOINT_DIR OUT PARAMS REPORT SWEEP_ID TRIAL_ID".split()
    others = ["REDIS_SERVICE_HOST", "REDIS_PORT", "PORT_6379_TCP_ADDR", "MY_OWN"]
    assert read({f"HPQ_{name}": "tcp://x:1" for name in given + others}) == read({})
    assert read({"LEASE_S": "3"}).lease_s == 30.0


def test_every_setting_has_a_word_on_it_and_its_own_type() -> None:
    shown = describe(read({"HPQ_ALLOW": "a.py;b.py", "HPQ_NODE": "n1", "HPQ_DATA": "/data"}))
    assert {name.removeprefix("HPQ_").lower() for name in shown} <= ABOUT.keys()
    assert (shown["HPQ_LEASE_S"], shown["HPQ_PORT"], shown["HPQ_NODE"]) == (30.0, 0, "n1")
    assert (shown["HPQ_ALLOW"], shown["HPQ_DATA"]) == (["a.py", "b.py"], "/data")
    assert describe(read({}))["HPQ_DATA"] is None
