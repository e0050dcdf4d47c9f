"""Notices of sweeps that are held or over: one webhook, once, whatever number of workers look."""

from __future__ import annotations

import json
import logging
import queue
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
from redis import Redis

from hpq.domain.attempt import WorkerPresence
from hpq.domain.sweep import Goal, Metric
from hpq.store.control import SweepControl
from hpq.store.reader import StoreReader
from hpq.store.trials import TrialStore
from hpq_worker.lease.notices import Notices
from tests.conftest import MakeSweep
from tests.constants import DEADLINE_S
from tests.store_calls import end, take


class Hook:
    """A webhook on loopback: what was posted, and which answers it gives first."""

    def __init__(self) -> None:
        self.posted: queue.Queue[str] = queue.Queue()
        self.answers: list[int] = []
        hook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                code = hook.answers.pop(0) if hook.answers else 200
                self.send_response(code)
                self.end_headers()
                if code == 200:
                    hook.posted.put(body["text"])

            def log_message(self, *args: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/s3cret-path"

    def next(self) -> str:
        return self.posted.get(timeout=DEADLINE_S)


@pytest.fixture
def hook() -> Iterator[Hook]:
    one = Hook()
    thread = threading.Thread(target=one.server.serve_forever)
    thread.start()
    yield one
    one.server.shutdown()
    thread.join()
    one.server.server_close()


@pytest.fixture
def workers(hook: Hook, reader: StoreReader, store: TrialStore) -> Iterator[list[Notices]]:
    found = [Notices(hook.url, "default", reader, store) for _ in range(3)]
    yield found
    for one in found:
        one.close()


def look(workers: list[Notices]) -> None:
    for one in workers:
        one.look(at_once=True)


def test_the_end_of_a_sweep_is_told_once_with_its_best(
    hook: Hook,
    workers: list[Notices],
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    redis: Redis,
) -> None:
    sweep_of(1, metric=Metric(name="acc", goal=Goal.MAXIMIZE))
    look(workers)
    end(store, take(store, who, "a"), 0.75)
    look(workers)
    look(workers)
    said = hook.next()
    assert "demo-00000 is finished" in said and "1 of 1" in said and "acc 0.75" in said
    for one in workers:
        one.close()
    assert hook.posted.empty()
    raw = b"".join(redis.dump(key) or b"" for key in redis.scan_iter())
    assert b"s3cret" not in raw, "the URL is a secret, and never goes to Redis"


def test_what_was_over_before_a_worker_came_is_no_news(
    hook: Hook, workers: list[Notices], sweep_of: MakeSweep, control: SweepControl
) -> None:
    sweep_of(1, "old-00000")
    control.cancel("old-00000")
    look(workers)
    sweep_of(1, "new-00000")
    look(workers)
    control.cancel("new-00000")
    look(workers)
    assert "new-00000 is cancelled" in hook.next()
    assert hook.posted.empty()


def test_a_second_end_after_a_retry_is_told_too(
    hook: Hook,
    workers: list[Notices],
    store: TrialStore,
    who: WorkerPresence,
    sweep_of: MakeSweep,
    control: SweepControl,
) -> None:
    sweep_of(2)
    look(workers)
    control.cancel("demo-00000", [1])
    end(store, take(store, who, "a"), 0.5)
    look(workers)
    assert "is finished" in hook.next()
    control.retry("demo-00000", [1])
    look(workers)
    assert hook.posted.empty()
    end(store, take(store, who, "b"), 0.25)
    look(workers)
    assert "2 of 2 finished" in hook.next()
    assert hook.posted.empty()


def test_a_webhook_that_fails_is_tried_again_and_its_url_stays_out_of_logs(
    hook: Hook,
    workers: list[Notices],
    sweep_of: MakeSweep,
    control: SweepControl,
    caplog: pytest.LogCaptureFixture,
) -> None:
    hook.answers = [500]
    sweep_of(1)
    look(workers)
    control.cancel("demo-00000")
    with caplog.at_level(logging.DEBUG):
        look(workers)
        assert "is cancelled" in hook.next()
    assert "not sent" in caplog.text and "s3cret" not in caplog.text


def test_without_a_url_nothing_is_read(reader: StoreReader, store: TrialStore) -> None:
    one = Notices("", "default", reader, store)
    one.look(at_once=True)
    assert one._seen is None
