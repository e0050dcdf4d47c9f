"""Settings: what the environment may say, and what nobody may see."""

from __future__ import annotations

from pathlib import Path
from random import Random
from urllib.parse import quote, unquote

import pytest

from hpq import process_start as hpq_process
from hpq.errors import SettingsError
from hpq.redis import credentials
from hpq.redis.client import connect
from hpq.redis.credentials import redact
from hpq.settings import ABOUT, describe, read, unknown_settings
from tests.support.ids import raises


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


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("HPQ_PORT", "abc", "0 to 65535"),
        ("HPQ_LOST_MAX", "1.5", "1 to 1000"),
        ("HPQ_LEASE_S", "30s", "seconds"),
    ],
)
def test_what_is_no_number_is_told_what_would_be(name: str, value: str, said: str) -> None:
    with raises("setting-invalid", f"{name}: {value!r} ", said):
        read({name: value})


@pytest.mark.parametrize("name", ["HPQ_HOME", "HPQ_SCRATCH", "HPQ_DATA", "HPQ_CODE", "HPQ_STORE"])
def test_a_directory_that_is_a_file_or_below_one_or_has_too_long_a_name_is_refused(
    tmp_path: Path, name: str
) -> None:
    code = "home-unusable" if name in ("HPQ_HOME", "HPQ_SCRATCH") else "setting-invalid"
    (tmp_path / "file").touch()
    for path in ("file", "file/below", "file/below/it"):
        with raises(code, name, f"{tmp_path}/file is a file"):
            read({name: str(tmp_path / path)})
    with raises(code, name, "too long"):
        read({name: str(tmp_path / ("x" * 300) / "home")})
    assert read({name: str(tmp_path / "new" / "folder")})
    with raises(code, name):
        read({name: "~no-such-user/x"})


def test_a_default_home_that_is_a_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".hpq").touch()
    with raises("home-unusable", "HPQ_HOME"):
        read({})


def test_secrets_are_hidden_in_what_is_shown_and_in_errors() -> None:
    env = {"HPQ_REDIS_URL": "redis://me:pa55word@h:1/0", "HPQ_CODE_KEY": "k3y-of-16-letters"}
    shown = describe(read(env))
    assert shown["HPQ_REDIS_URL"] == "redis://me:***@h:1/0" and shown["HPQ_CODE_KEY"] == "***"
    with pytest.raises(SettingsError) as caught:
        read({"HPQ_REDIS_URL": "http://me:pa55word@h"})
    assert "pa55word" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "redis://me:pa55qvz9@h:1/0",
        "redis://me:pa55@qvz9@h:1/0",
        "redis://:pa55qvz9@h:1/0",
        "redis://h:1/0?db=1&password=pa55qvz9",
        "unix://:pa55qvz9@/tmp/x.sock",
    ],
)
def test_no_form_of_a_url_shows_its_password(url: str) -> None:
    settings = read({"HPQ_REDIS_URL": url, "HPQ_CODE_KEY": "k3y-of-16-letters"})
    for text in (redact(url), repr(settings), str(describe(settings))):
        assert "pa55" not in text and "qvz9" not in text
        assert "k3y-of-16-letters" not in text


STORES = [
    "s3://me:pa55qvz9@bucket/a",
    "s3://me:pa55/qvz9@bucket/a",
    "s3://me:pa55 qvz9@bucket/a",
    "s3://m/e:pa55qvz9@bucket/a?token=pa55 qvz9",
    "s3://me:pa55%2Fqvz9@bucket/a",
    "simplecache::sftp://me:pa55@qvz9@host/a",
    "abfs://box/a?account_key=pa55qvz9&x=1",
    "s3://bucket/a?key=me55&secret=pa55qvz9",
    "https://host/a?X-Amz-Signature=pa55qvz9&token=pa55qvz9",
]


@pytest.mark.parametrize("url", STORES)
def test_no_form_of_a_store_shows_its_password(url: str) -> None:
    settings = read({"HPQ_STORE": url})
    library = f"no bucket at {url.partition('://')[2]}, asked with 'pa55/qvz9'"
    told = credentials.hide(library, credentials.carried(url))
    for text in (redact(f"{url}: no"), repr(settings), str(describe(settings))):
        assert "pa55" not in text and "qvz9" not in text, text
    assert "pa55qvz9" not in told and "pa55@qvz9" not in told, told


@pytest.mark.parametrize("store", ["/data/me:x@y", "s3://bucket/a", "gs://b/a?x=1"])
def test_a_store_without_a_secret_is_shown_as_it_is(store: str) -> None:
    assert not credentials.carried(store) and "HPQ_STORE" not in hpq_process.ours(
        {"HPQ_STORE": store}
    )
    assert describe(read({"HPQ_STORE": store}))["HPQ_STORE"] == store


URL_FORMS = ["redis://{}127.0.0.1:6520/0", "rediss://{}[::1]:1/3?ssl_cert_reqs=none",
             "unix://{}/tmp/x y.sock?db=1"]  # fmt: skip


@pytest.mark.parametrize("form", URL_FORMS)
def test_a_url_is_read_with_its_whole_password_or_refused(form: str) -> None:
    """Characters that end a URL's user, host or path would cut the password, or show it."""
    rng = Random(form)
    words = ["my secret pw", "a[b", "p@ss/w#rd", "/abc", "12?x=1", "12/0?a=", "@", "\u2100", "a\tb"]
    words += ["".join(rng.choices("aZ19:@/?#[]%& \"'\\$é\n=,*", k=7)) for _ in range(200)]
    for word in words:
        secret = f"q{word}vz"
        for userinfo in (f":{secret}@", f"me:{secret}@"):
            url = form.format(userinfo)
            try:
                settings = read({"HPQ_REDIS_URL": url})
            except SettingsError as error:
                assert "%XX" in str(error) and secret not in str(error)
                assert any(c in "/?#[]\u2100" or c.isspace() for c in secret), secret
            else:
                assert credentials.of(url) == unquote(secret)
                assert connect(url).connection_pool.connection_kwargs["password"] == unquote(secret)
                assert secret not in str(describe(settings))
            assert secret not in redact(url) and redact(url).endswith(form[-6:])
        encoded = form.format(f"me:{quote(secret, safe='')}@")
        assert credentials.of(read({"HPQ_REDIS_URL": encoded}).redis_url) == secret


@pytest.mark.parametrize(
    "url", ["redis://h:99999/0", "redis://h:x/0", "redis://h/abc", "unix://tmp/x.sock", "redis://::1/0",
            "redis://h:1/0?ssl_ca_certs=/a@b", "redis://h/0#1", "redis://[::1/0", "redis+file://h/x",
            "redis://a:1,b:1/0", "redis+sentinel://a:1,b:1/main/0"]
)  # fmt: skip
def test_a_url_that_would_be_misread_is_refused(url: str) -> None:
    with raises("setting-invalid", "HPQ_REDIS_URL", "unix:///PATH"):
        read({"HPQ_REDIS_URL": url})


@pytest.mark.parametrize(
    "url", ["redis://h", "redis://", "redis://h:/", "redis:///1", "redis://h/0/",
            "unix:///a@b/c d.sock", "rediss://[::1]:1", "redis+file:///home/a@b/address", "redis://me@h:1/0"]
)  # fmt: skip
def test_a_url_of_a_server_is_read(url: str) -> None:
    assert read({"HPQ_REDIS_URL": url}).redis_url == url
    assert redact(url) == url


@pytest.mark.parametrize(
    ("url", "plain", "user"),
    [
        ("redis://h:1/0", "redis://h:1/0", ""),
        ("unix:///tmp/x.sock?db=1", "unix:///tmp/x.sock?db=1", ""),
        ("unix://me@/tmp/x.sock", "unix:///tmp/x.sock", "me"),
        ("rediss://a%40b@h:1/0", "rediss://h:1/0", "a@b"),
    ],
)
def test_a_password_file_travels_in_the_url(url: str, plain: str, user: str) -> None:
    settings = read({"HPQ_REDIS_URL": url, "HPQ_REDIS_PASSWORD_FILE": "/run/a b"})
    assert credentials.split(settings.redis_url) == (plain, user, Path("/run/a b"))
    again = {"HPQ_REDIS_URL": settings.redis_url, "HPQ_REDIS_PASSWORD_FILE": "/run/a b"}
    assert read(again).redis_url == settings.redis_url


def test_a_password_file_without_a_server_is_refused() -> None:
    with raises("setting-missing", "HPQ_REDIS_URL"):
        read({"HPQ_REDIS_PASSWORD_FILE": "/run/secret"})


@pytest.mark.parametrize("url", ["redis://:pa55@h/0?password_file=/x", "redis://:pa/55@h:1/0"])
def test_a_url_that_cannot_be_read_gives_nothing_of_its_password_away(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        connect(url)
    assert "55" not in str(caught.value) and "HPQ_REDIS_URL" in str(caught.value)


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
        ("HPQ__PORT", "HPQ_PORT"),
    ],
)
def test_a_name_close_to_a_setting_is_refused(name: str, meant: str) -> None:
    with raises("setting-unknown", name, meant):
        read({name: "3"})


def test_names_of_others_are_let_be() -> None:
    given = "ATTEMPT ATTEMPT_ID CHECKPOINT_DIR OUT PARAMS REPORT SWEEP_ID TRIAL_ID".split()
    others = ["REDIS_SERVICE_HOST", "REDIS_PORT", "PORT_6379_TCP_ADDR", "MY_OWN"]
    assert read({f"HPQ_{name}": "tcp://x:1" for name in given + others}) == read({})
    assert read({"LEASE_S": "3"}).lease_s == 30.0


def test_a_variable_that_is_no_setting_is_named_but_none_of_programs_and_services() -> None:
    environ = dict.fromkeys(["HPQ_LEES_S", "HPQ_MY_OWN", "HPQ_LEASE_S", "HOME"], "1")
    given = "ATTEMPT ATTEMPT_ID CHECKPOINT_DIR OUT PARAMS REPORT SEED SWEEP_ID TRIAL_ID".split()
    links = ["SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_REDIS", "PORT", "PORT_6379_TCP_ADDR"]
    environ |= {f"HPQ_{name}": "1" for name in given + [f"REDIS_{link}" for link in links]}
    lees, own = unknown_settings(environ)
    assert lees.code == own.code == "setting-unknown"
    assert "HPQ_LEASE_S" in lees.text and "HPQ_MY_OWN" in own.text


def test_every_setting_has_a_word_on_it_and_its_own_type() -> None:
    shown = describe(read({"HPQ_NODE": "n1", "HPQ_DATA": "/data"}))
    assert {name.removeprefix("HPQ_").lower() for name in shown} <= ABOUT.keys()
    assert (shown["HPQ_LEASE_S"], shown["HPQ_PORT"], shown["HPQ_NODE"]) == (30.0, 0, "n1")
    assert shown["HPQ_DATA"] == "/data"


def test_data_sets_lie_under_the_home_unless_hpq_data_names_another_place() -> None:
    assert read({"HPQ_HOME": "/h"}).data == Path("/h/data")
    assert read({}).data == Path("~/.hpq/data").expanduser()
    assert read({"HPQ_HOME": "/h", "HPQ_DATA": "/data"}).data == Path("/data")


def test_a_code_key_that_could_be_found_by_trying_is_refused_and_not_shown() -> None:
    with raises("setting-invalid", "HPQ_CODE_KEY", "(hidden)") as caught:
        read({"HPQ_CODE_KEY": "fifteen letters"})
    assert "fifteen" not in str(caught.value)
    assert read({"HPQ_CODE_KEY": "sixteen letters!"}).code_key
