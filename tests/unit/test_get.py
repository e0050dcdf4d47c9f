"""`hpq get` out of a pod: the exec stream as the library reads it, and the command told instead."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import Callable

import pytest
from websocket import WebSocket

from producer.cluster.output import Output
from producer.cluster.tunnel import kubectl_in
from producer.cluster.volume import _line

DATA = bytes(range(256)) * 300
DONE = b"\x03" + json.dumps({"status": "Success"}).encode()
CLOSE = b"\x88\x02\x03\xe8"


def frame(data: bytes) -> bytes:
    """A binary frame as a server sends it."""
    return b"\x82\x7f" + len(data).to_bytes(8, "big") + data


def failed(said: bytes) -> list[bytes]:
    """What comes of a command that complains and fails."""
    status = {"status": "Failure", "message": "command terminated with exit code 1"}
    return [frame(b"\x02" + said), frame(b"\x03" + json.dumps(status).encode()), CLOSE]


Sent = Callable[..., io.BufferedReader]


@pytest.fixture
def sent() -> Sent:
    """The stream on which a server sends these frames and goes."""

    def make(*frames: bytes, size: int | None = None) -> io.BufferedReader:
        here, there = socket.socketpair()
        there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        there.sendall(b"".join(frames))
        there.close()
        stream = WebSocket()
        stream.sock, stream.connected = here, True
        return io.BufferedReader(Output(stream, size))

    return make


def test_what_a_command_prints_comes_byte_for_byte_also_after_word_of_its_end(sent: Sent) -> None:
    parts = [frame(b"\x01" + DATA[:70_000]), frame(DONE), frame(b"\x01" + DATA[70_000:]), CLOSE]
    with sent(frame(b"\x01"), *parts, size=len(DATA)) as out:
        assert out.read() == DATA


@pytest.mark.parametrize(
    ("end", "why"),
    [
        ([], "the stream out of its pod broke"),
        ([CLOSE], "the stream out of its pod broke"),
        ([frame(DONE), CLOSE], f"{len(DATA)} bytes came of {len(DATA) + 1}"),
        (failed(b"cat: x: Permission denied\n"), "cat: x: Permission denied"),
        (failed(b""), "command terminated with exit code 1"),
    ],
)
def test_what_is_not_all_is_an_error(sent: Sent, end: list[bytes], why: str) -> None:
    with sent(frame(b"\x01" + DATA), *end, size=len(DATA) + 1) as out, pytest.raises(OSError) as e:
        out.read()
    assert why in str(e.value) and not isinstance(e.value, FileNotFoundError)


def test_a_file_that_is_not_there_is_told_from_one_that_cannot_be_read(sent: Sent) -> None:
    out = sent(*failed(b"cat: x: No such file or directory\n"))
    with out, pytest.raises(FileNotFoundError):
        out.read()


def test_who_may_not_is_told_the_command_for_somebody_who_may() -> None:
    mount = {"name": "store", "mountPath": "/kept"}
    pod = {"containers": [{"name": "worker", "volumeMounts": [mount]}]}
    big = {"metadata": {"name": "hpq-worker-big"}, "spec": {"template": {"spec": pod}}}
    kubectl = kubectl_in("lab", "ml")
    assert _line(kubectl, [], "hpq/s-1/1/artifacts/my model.txt", "my model.txt") == (
        "kubectl --context lab -n ml exec deploy/hpq-worker --"
        " cat '/store/hpq/s-1/1/artifacts/my model.txt' > 'my model.txt'"
    )
    assert "deploy/hpq-worker-big -- cat /kept/a > a" in _line(kubectl, [big], "a", "a")
