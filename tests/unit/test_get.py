"""`hpq get` out of a pod: the exec stream as the library reads it, and the command told instead."""

from __future__ import annotations

import io
import json
import socket
from typing import Any

import pytest
from websocket import WebSocket

from hpq.errors import Forbidden, NotFound
from hpq.trial import Artifacts
from producer.cluster.output import Output
from producer.cluster.tunnel import kubectl_in
from producer.cluster.volume import _line, volume_of

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


def stream_of(*frames: bytes) -> WebSocket:
    """The stream on which a server sends these frames and goes."""
    here, there = socket.socketpair()
    there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    there.sendall(b"".join(frames))
    there.close()
    stream = WebSocket()
    stream.sock, stream.connected = here, True
    return stream


def sent(*frames: bytes, size: int | None = None) -> io.BufferedReader:
    """What comes out of it."""
    return io.BufferedReader(Output(stream_of(*frames), size))


class Server:
    """The few answers of an API server that matter here; pods say what they have as a store."""

    context, namespace, flags = "lab", "ml", " --namespace ml"

    def __init__(self, *pods: dict[str, Any], says: str = "", may: bool = True) -> None:
        self._pods, self._says, self._may = pods, says, may
        self.asked = list[str]()

    def of(self, path: str) -> str:
        return path

    def get(self, path: str, **query: str) -> Any:
        return {"items": list(self._pods)}

    def stream(self, path: str, **query: Any) -> WebSocket:
        if not self._may:
            raise Forbidden("pods/exec is forbidden; an administrator binds you to the Role")
        self.asked.append(path)
        return stream_of(frame(b"\x01" + self._says.encode()), frame(DONE), CLOSE)


def pod(name: str, owner: str, *, ready: bool = True, runs: bool = True) -> dict[str, Any]:
    """A worker's pod as the API has it."""
    container = {"name": "worker", "state": {"running" if runs else "waiting": {}}}
    condition = {"type": "Ready", "status": str(ready)}
    return {
        "metadata": {"name": name, "ownerReferences": [{"name": owner}]},
        "spec": {"containers": [{"name": "worker"}]},
        "status": {"containerStatuses": [container], "conditions": [condition]},
    }


LEFT = Artifacts(store="abcd1234", path="hpq/s-1/1/1-a/artifacts", files={"model.txt": 7})


def test_the_store_is_looked_for_in_one_pod_of_each_template_ready_ones_first() -> None:
    pods = [pod("a1", "a", ready=False), pod("a2", "a"), pod("b1", "b"), pod("c1", "c", runs=False)]
    here = Server(*pods, says="/kept\nabcd1234\n")
    found = volume_of(here, LEFT)  # type: ignore[arg-type]
    assert (found.pod, found.folder, found.container) == ("a2", "/kept", "worker")
    assert found.sizes == {"hpq/s-1/1/1-a/artifacts/model.txt": 7}
    other = Server(*pods, says="/kept\nanother1\n")
    with pytest.raises(NotFound, match=r"have store another1 at /kept$"):
        volume_of(other, LEFT)  # type: ignore[arg-type]
    assert other.asked == ["pods/a2/exec", "pods/b1/exec"]


@pytest.mark.parametrize(
    ("says", "told"),
    [
        ("\n", "the pods in namespace ml have no HPQ_STORE"),
        ("s3://me:secret@b/x\n", "HPQ_STORE=s3://me:***@b/x: set it here, too"),
        ("/kept\n", "have store without an id at /kept"),
    ],
)
def test_what_pods_have_in_place_of_the_store_is_told(says: str, told: str) -> None:
    with pytest.raises(NotFound) as error:
        volume_of(Server(pod("a1", "a"), says=says), LEFT)  # type: ignore[arg-type]
    assert told in str(error.value) and "secret" not in str(error.value)


def test_without_a_pod_or_the_right_to_exec_into_one_it_is_told_what_is_missing() -> None:
    scale = "`hpq scale 1 --namespace ml`"
    with pytest.raises(NotFound, match=f"no worker's pod runs in namespace ml; {scale}"):
        volume_of(Server(pod("a1", "a", runs=False)), LEFT)  # type: ignore[arg-type]
    with pytest.raises(Forbidden, match=r"pods/exec, namespace ml\), which hpq's Roles leave out"):
        volume_of(Server(pod("a1", "a"), may=False), LEFT)  # type: ignore[arg-type]


def test_what_a_command_prints_comes_byte_for_byte_also_after_word_of_its_end() -> None:
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
def test_what_is_not_all_is_an_error(end: list[bytes], why: str) -> None:
    with sent(frame(b"\x01" + DATA), *end, size=len(DATA) + 1) as out, pytest.raises(OSError) as e:
        out.read()
    assert why in str(e.value) and not isinstance(e.value, FileNotFoundError)


def test_a_file_that_is_not_there_is_told_from_one_that_cannot_be_read() -> None:
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
