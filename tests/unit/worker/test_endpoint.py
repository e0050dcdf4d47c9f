"""What callers of HPQ_PORT can do to a fleet: nothing."""

from __future__ import annotations

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest

from hpq_worker.health import endpoint
from hpq_worker.health.endpoint import Endpoint, pages
from hpq_worker.health.health import Health, StateWriter
from tests.support.constants import DEADLINE_S

Serve = Callable[..., int]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves pages; answers the port."""
    made: list[Endpoint] = []

    def start(**pages: WSGIApplication) -> int:
        made.append(Endpoint(0, {f"/{name}": page for name, page in pages.items()}))
        return made[-1].port

    yield start
    for one in made:
        one.close()


def ok(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
    start_response("200 OK", [])
    return [b"ok\n"]


def ask(port: int, method: str = "GET", page: str = "/livez", host: str = "127.0.0.1"):
    """The status, the headers and the text."""
    call = http.client.HTTPConnection(host, port, timeout=DEADLINE_S)
    try:
        call.request(method, page)
        answer = call.getresponse()
        return answer.status, dict(answer.headers), answer.read()
    finally:
        call.close()


def is_hung_up_on(caller: socket.socket) -> bool:
    try:
        return caller.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_page_answers_get_alone_and_other_paths_are_not_found(serve: Serve) -> None:
    port = serve(livez=ok)
    status, headers, text = ask(port)
    assert (status, text, headers["Content-Length"]) == (200, b"ok\n", "3")
    assert ask(port, page="/livez?verbose")[0] == 200
    assert ask(port, page="/else")[0] == 404 and b"/livez" in ask(port, page="/else")[2]
    assert ask(port, "POST")[0] == 405


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="no IPv6 here")
def test_why_a_pod_is_not_ready_is_in_its_log_once(caplog: pytest.LogCaptureFixture) -> None:
    reasons = iter(["a", "a", "a", "", "b", "c", "c\nd", "c\nd", "c\nd", "c\nd"])

    class Sick(Health):
        def not_ready(self) -> str:
            return next(reasons)

    readyz = pages(Sick(1, 5.0))["/readyz"]
    for _ in range(10):
        readyz({}, lambda *_: None)
    assert [record.getMessage() for record in caplog.records] == ["not ready: a", "not ready: c; d"]


def test_a_kubelet_that_has_ipv6_only_is_answered(serve: Serve) -> None:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError as error:
        pytest.skip(f"no ::1 here: {error}")
    port = serve(livez=ok)
    assert ask(port, host="::1")[0] == ask(port)[0] == 200


def test_callers_that_hang_are_hung_up_on_and_leave_room_for_others(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_CALL_S", 2.0)
    monkeypatch.setattr(endpoint, "_MOST", 8)
    port, before = serve(livez=ok), threading.active_count()
    callers = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    dribbler = callers[0]
    until, most = time.monotonic() + DEADLINE_S, 0
    dribbler.settimeout(0.05)
    while not is_hung_up_on(dribbler):
        assert time.monotonic() < until, "a caller that dribbles is answered for ever"
        most = max(most, threading.active_count() - before)
        try:
            dribbler.send(b"G")
        except OSError:
            break
    assert most <= endpoint._MOST
    for caller in callers[1:]:
        caller.settimeout(DEADLINE_S)
        assert is_hung_up_on(caller)
        caller.close()
    dribbler.close()
    while threading.active_count() > before:  # a connection counts until its thread has ended
        assert time.monotonic() < until, "a thread of a closed connection stays"
        time.sleep(0.01)
    assert ask(port)[0] == 200


def test_a_caller_that_leaves_in_the_middle_leaves_no_line(serve: Serve, capfd) -> None:
    gone, heard = threading.Event(), threading.Event()

    def slow(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        heard.set()
        gone.wait(DEADLINE_S)
        start_response("200 OK", [])
        return [b"x" * 10_000_000]

    port = serve(livez=ok, slow=slow)
    early = socket.create_connection(("127.0.0.1", port))
    early.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    early.close()  # a reset
    late = socket.create_connection(("127.0.0.1", port))
    late.sendall(b"GET /slow HTTP/1.1\r\n\r\n")
    assert heard.wait(DEADLINE_S)
    late.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    late.close()
    gone.set()
    until = time.monotonic() + DEADLINE_S
    while any("process_request" in thread.name for thread in threading.enumerate()):
        assert time.monotonic() < until
        time.sleep(0.01)
    assert ask(port)[0] == 200
    assert capfd.readouterr().err == ""


def test_a_page_that_fails_answers_500_and_the_traceback_is_logged_not_printed(
    serve: Serve, capfd, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        raise ValueError("no figures")

    caplog.set_level("DEBUG", "hpq.health")
    assert ask(serve(broken=broken), page="/broken")[0] == 500
    assert capfd.readouterr().err == "" and "no figures" in caplog.text


def test_a_thousand_probes_while_workers_come_and_go_are_all_answered(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint, "_CALL_S", DEADLINE_S)  # a busy machine answers late
    health, is_over = Health(2, 0.0), threading.Event()
    port = serve(**{path[1:]: page for path, page in pages(health).items()})

    def live() -> None:
        while not is_over.wait(0.0001):
            for slot in (0, 1):
                StateWriter(health.worker_started(slot)).redis_answered()
                health.worker_ended(slot)

    fleet = threading.Thread(target=live, daemon=True)
    fleet.start()
    with ThreadPoolExecutor(8) as pool:
        ready = list(pool.map(lambda _: ask(port, page="/readyz"), range(500)))
        alive = list(pool.map(lambda _: ask(port, page="/livez"), range(500)))
    is_over.set()
    assert {status for status, _, _ in ready} <= {200, 503}
    assert {status for status, _, _ in alive} == {200}
    fleet.join(DEADLINE_S)
