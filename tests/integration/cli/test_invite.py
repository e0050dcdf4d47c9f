"""`hpq invite` and `hpq join` refuse unsafe files and bad tokens; a token keeps what it holds."""

from __future__ import annotations

import base64
import hashlib
import os
import pty
import socket
import subprocess
import zlib
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from hpq.access.connection_record import ConnectionRecord, with_joined
from hpq.access.invitation import TOKEN_PREFIX, Invitation, joined, keep
from hpq.errors import Forbidden, OutOfReach
from hpq.redis import credentials
from hpq.redis.client import check_server, connect
from hpq.settings import read
from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S
from tests.support.desk import drawn_here, run_here
from tests.support.ids import ids, raises, refused

GOOD = {"url": "redis://h", "settings": {}, "files": {"code.key": "k" * 20}, "versions": {}}
WHOLE = Invitation(**GOOD).encode()


def invited(hpq, tmp_path: Path, **settings: str) -> str:
    """Return the token of an invitation."""
    done = hpq("invite", "--file", tmp_path / "invitation", **settings)
    assert done.returncode == 0, done.stderr
    return (tmp_path / "invitation").read_text().strip()


@pytest.fixture
def token(hpq, tmp_path: Path) -> str:
    return invited(hpq, tmp_path)


@pytest.fixture
def away(tmp_path: Path) -> dict[str, str]:
    """The settings of another machine."""
    return {"HPQ_REDIS_URL": "", "HPQ_HOME": str(tmp_path / "other")}


def saved(tmp_path: Path, text: str, mode: int = 0o600) -> Path:
    path = tmp_path / "token"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_without_a_server_that_others_reach_both_remedies_are_named(hpq, away) -> None:
    done = hpq("invite", **away)
    refused(done, "setting-missing", "redis-server", "HPQ_REDIS_URL", "scale deployment")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda token: "", "no token"),
        (lambda token: "hello", "no token"),
        (lambda token: token[:-1], "incomplete"),
        (lambda token: token[: len(token) // 2], "incomplete"),
        (lambda token: token[:40] + "A" + token[41:], "incomplete"),
        (lambda token: TOKEN_PREFIX, "incomplete"),
        (lambda token: token + "é", "incomplete"),
        (lambda token: token.replace("-1-", "-2-"), "another version"),
    ],
)
def test_a_token_that_is_not_whole_is_refused_and_nothing_is_kept(
    hpq, away, tmp_path, change, words
) -> None:
    refused(hpq("join", saved(tmp_path, change(WHOLE)), **away), "invitation-invalid", words)
    assert not (tmp_path / "other").exists()


def test_a_token_may_be_wrapped_over_lines(hpq, away, tmp_path, token) -> None:
    text = "\n".join(token[i : i + 60] for i in range(0, len(token), 60))
    done = hpq("join", "--no-worker", saved(tmp_path, f"  {text}\n"), **away)
    assert done.returncode == 0, done.stderr
    assert hpq("ls", **away).returncode == 0


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604])
def test_a_token_that_others_can_read_is_refused_as_ssh_refuses_such_a_key(
    hpq, away, tmp_path, environ, mode: int
) -> None:
    path = saved(tmp_path, WHOLE, mode)
    refused(hpq("join", path, **away), "token-exposed", f"chmod 600 {path}")
    with path.open("r+") as out:
        done = run_here(["invite"], tmp_path, environ, stdout=out)
    refused(done, "token-exposed", "--file")


def test_a_token_of_stdin_that_others_can_read_is_refused(away, tmp_path, environ) -> None:
    with saved(tmp_path, WHOLE, 0o640).open("rb") as source:
        done = subprocess.run(
            [HPQ, "join"], env=environ | away, stdin=source, capture_output=True, text=True,
            timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    refused(done, "token-exposed", "chmod 600")


def test_a_token_is_no_argument(hpq, away) -> None:
    refused(hpq("join", WHOLE, **away), "token-exposed", "redis-acl --rotate")


def test_an_invitation_overwrites_no_file(hpq, tmp_path) -> None:
    path = saved(tmp_path, "mine")
    done = hpq("invite", "--file", path)
    refused(done, "file-unwritable")
    assert "warning" not in done.stderr, "it refuses first"
    assert path.read_text() == "mine"


def test_a_terminal_shows_the_token_with_a_warning(environ, redis, tmp_path) -> None:
    drawn = drawn_here(["invite"], tmp_path, environ)
    assert TOKEN_PREFIX in drawn and "run code" in drawn


def test_a_token_that_is_typed_at_a_terminal_is_not_shown(environ, away, tmp_path, token) -> None:
    typist, terminal = pty.openpty()
    process = subprocess.Popen(
        [HPQ, "join", "--no-worker"], env=environ | away, stdin=terminal, stdout=terminal,
        stderr=terminal, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    drawn, is_typed = b"", False
    with suppress(OSError):  # EIO: the process, the terminal's last, has ended
        while data := os.read(typist, 10_000):
            drawn += data  # a read may end within the prompt, or within a character
            if b"Token: " in drawn and not is_typed:
                is_typed = os.write(typist, f"{token}\n".encode()) > 0
    shown = drawn.decode()
    assert process.wait() == 0 and "joined" in shown, shown
    assert token not in shown and token[-20:] not in shown
    assert (tmp_path / "other" / "join" / "code.key").exists()
    os.close(typist)


def test_a_token_carries_the_settings_that_all_machines_need_alike(hpq, away, tmp_path) -> None:
    store = tmp_path / "store"
    given = {"HPQ_PREFIX": "team", "HPQ_QUEUE": "a100", "HPQ_LEASE_S": "7", "HPQ_STORE": str(store)}
    token = invited(hpq, tmp_path, HPQ_CODE_KEY="k" * 20, HPQ_GRACE_S="9", **given)
    done = hpq("join", "--no-worker", saved(tmp_path, token), **away)
    assert ids(done.stderr) == ["store-differs"], done.stderr
    settings = read(with_joined({}, tmp_path / "other"))
    assert (settings.prefix, settings.queue, settings.lease_s) == ("team", "a100", 7.0)
    assert (settings.store, settings.code_key) == (str(store), "k" * 20)
    assert settings.grace_s != 9.0
    mine = read(with_joined({"HPQ_QUEUE": "mine"}, tmp_path / "other"))
    assert (mine.queue, mine.prefix) == ("mine", "team")


@pytest.mark.parametrize("url", [
    "rediss://ann:p%40ss%2F@h:6380/2?ssl_ca_certs={ca}&health_check_interval=5",
    "rediss://ann@h:6380/2?ssl_ca_certs={ca}&health_check_interval=5&password_file={password}",
])  # fmt: skip
def test_password_and_tls_files_reach_the_other_machine_as_files(tmp_path: Path, url: str) -> None:
    (tmp_path / "ca").write_text("-----BEGIN CERTIFICATE-----\n")
    (tmp_path / "password").write_text("p@ss/\n")
    url = url.format(ca=tmp_path / "ca", password=tmp_path / "password")
    found = Invitation.decode(Invitation.of(url, "k" * 20, {}, {}).encode())
    home = tmp_path / "home"
    keep(found.write(home), home)
    folder = home / "join"
    environ = joined(folder)
    assert environ["HPQ_REDIS_URL"].startswith("rediss://ann@h:6380/2?health_check_interval=5&")
    settings = read(environ)
    assert credentials.of(settings.redis_url) == "p@ss/"
    assert f"ssl_ca_certs={folder}/ssl_ca_certs" in settings.redis_url
    assert (folder / "ssl_ca_certs").read_text() == "-----BEGIN CERTIFICATE-----\n"


FORGED_URLS = [
    "redis://h?password_file=/k", "redis://h?db=1&pass%77ord_file=/k", "redis://h?password%5ffile=/k",
    "redis://h?\tpassword_file=/k", "redis://h?pass\nword_file=/k", "unix:///s?password_file=/k",
    "rediss://h?ssl_ca_certs=/k", "rediss://h?ssl_certfile=/k&ssl_keyfile=/k",
    "redis://h?password=x",
    "rediss://h?ssl_ca_path=/", "redis+file:///k", "redis+file://h/k?password_file=/k", "file:///k",
    "http://h", "", "/k", "redis://h?host=other", "unix:///s?path=/other", "redis://[::1",
    "redis://h?redis_connect_func=x", "redis://h?credential_provider=x", "redis://h/\x1b[2J",
    "redis://h?PASSWORD_FILE=/k", "REDIS+FILE:///k",
]  # fmt: skip
FORGED_STORES = [
    "reference::http://h/x.json", "/x::reference::http://h/x.json", "s3://b::reference::http://h/x",
    "reference://x", "http://h/x", "ssh://h/x", "github://a:b@c/", "s3://b?endpoint_url=http://h",
    "store", "~/store", "../store", "", "simplecache::s3://b/x", "file://h/x", "/a://b",
]  # fmt: skip
FORGED = [
    {"files": {"../../evil": "x", "code.key": "k" * 20}}, {"settings": {"HPQ_HOME": "/"}},
    {"settings": {"PATH": "/evil"}}, {"files": {}}, {"settings": {"HPQ_LEASE_S": 7}}, {"url": 7},
    {"files": {"code.key": ["k"]}}, {"settings": ["HPQ_STORE"]}, {"versions": {"hpq": "1\nhpq: 2"}},
    {"settings": {"HPQ_PREFIX": "a\x1b[2J"}}, {"versions": {"torch": None}},
    {"files": {"code.key": "\ud800" * 20}}, {"files": {"code.key": "k\0" * 20}},
    *({"url": url} for url in FORGED_URLS),
    *({"settings": {"HPQ_STORE": store}} for store in FORGED_STORES),
]  # fmt: skip


@pytest.mark.parametrize("fields", FORGED)
def test_a_forged_token_names_no_file_and_no_variable_and_writes_no_other_file(
    fields: dict[str, Any],
) -> None:
    with raises("invitation-invalid"):
        Invitation.decode(Invitation(**{**GOOD, **fields}).encode())


@pytest.mark.parametrize("fields", [
    {}, {"url": "rediss://ann@h:6380/2?db=1&ssl_check_hostname=no&health_check_interval=5"},
    {"url": "unix://ann@/run/redis.sock?db=1"}, {"settings": {"HPQ_STORE": "s3://k:s@b/hpq"}},
    {"settings": {"HPQ_STORE": "/mnt/a b:c", "HPQ_QUEUE": "a100"}},
    {"settings": {"HPQ_STORE": "file:///mnt/hpq"}},
])  # fmt: skip
def test_an_invitation_that_another_machine_can_use_is_read(fields: dict[str, Any]) -> None:
    made = Invitation(**{**GOOD, **fields})
    assert Invitation.decode(made.encode()) == made


def test_a_token_whose_text_is_none_is_refused_in_one_line(hpq, away, tmp_path) -> None:
    for text in (b"[" * 200_000, b"\xff", b"7", b"[]", b"null", b"{}"):
        body = zlib.compress(text)
        word = (
            TOKEN_PREFIX
            + base64.urlsafe_b64encode(hashlib.sha256(body).digest()[:8] + body).decode()
        )
        refused(hpq("join", saved(tmp_path, word), **away), "invitation-invalid")
    assert not (tmp_path / "other").exists()


@pytest.fixture
def listener() -> Iterator[tuple[int, list[bytes]]]:
    """The port of an attacker's server, and the bytes that clients have sent to it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        sent: list[bytes] = []

        def serve() -> None:
            with suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client, suppress(OSError):
                        while data := client.recv(65_536):
                            sent.append(data)
                            client.sendall(b"-ERR no\r\n")

        Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1], sent
        server.shutdown(socket.SHUT_RDWR)


def test_joining_sends_no_file_to_the_server_of_a_token(hpq, away, tmp_path, listener) -> None:
    """The sender names a file of this machine: it would be the password of the first command."""
    (port, sent), key = listener, tmp_path / "id_ed25519"
    key.write_text("private to its owner\n")
    url = f"redis://127.0.0.1:{port}/0?password_file={key}"
    token = Invitation(**{**GOOD, "url": url}).encode()
    done = hpq("join", "--no-worker", saved(tmp_path, token), **away)
    assert not [data for data in sent if b"private" in data], "the file has arrived"
    refused(done, "invitation-invalid")
    assert not (tmp_path / "other").exists()


def test_a_user_that_a_cluster_names_stays_a_user(tmp_path, listener) -> None:
    """The writer of a cluster's Secret names no other server, and no file of this machine."""
    (port, sent), key = listener, tmp_path / "id_ed25519"
    key.write_text("private to its owner\n")
    user = f"x@127.0.0.1:{port}/0?password_file={key}&client_name="
    record = ConnectionRecord(
        pid=1, port=1, context="c", namespace="n", service="hpq-redis", user=user, prefix="hpq",
        password_file=str(tmp_path / "token"),
    )  # fmt: skip
    (tmp_path / "token").write_text("of the cluster")
    with pytest.raises((OutOfReach, Forbidden)):
        url = read(record.environ()).redis_url
        check_server(connect(url, retries=0), url)
    assert not sent, "the file has arrived"


def test_an_invitation_that_join_would_refuse_is_not_written(hpq, environ, tmp_path) -> None:
    for name, text in (
        ("HPQ_REDIS_URL", f"{environ['HPQ_REDIS_URL']}?client_name=me"),
        ("HPQ_STORE", "sftp://h/x"),
        ("HPQ_STORE", "simplecache::s3://b/x"),
    ):
        done = hpq("invite", "--file", tmp_path / "token", **{name: text})
        refused(done, "setting-invalid", "client_name" if "URL" in name else name)
    assert not (tmp_path / "token").exists()


def test_what_join_wrote_and_a_user_broke_names_leave(hpq, away, tmp_path, token) -> None:
    hpq("join", "--no-worker", saved(tmp_path, token), **away)
    (tmp_path / "other" / "join" / "server.json").write_text("{")
    refused(hpq("ls", **away), "file-unreadable", "hpq leave")
    assert hpq("leave", **away).returncode == 0
    assert hpq("doctor", "--settings", **away).returncode == 0
