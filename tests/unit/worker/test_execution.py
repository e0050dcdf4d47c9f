"""In which order a worker reads what a trial says: pipes and a socket, without a runner."""

from __future__ import annotations

import json
import os
import selectors
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpq.domain.attempt import HeartbeatReply
from hpq.domain.sweep import Launch, SweepView
from hpq.domain.trial import Claim, TrialId
from hpq_worker.attempt.execution import Execution, Result
from hpq_worker.attempt.report_socket import ReportSocket
from hpq_worker.health.usage import TrialUsage
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import AttemptEnd, LineBuffer, RunRequest, end_message
from hpq_worker.process.secrets import Mask
from hpq_worker.process.signals import Signals
from hpq_worker.process.watchdog import Progress

RUN = RunRequest(trial="s-00000/1", attempt=1, params={}, argv=("train.py",))


class Said:
    """What a runner and its program say; the worker's end of it is an Execution."""

    def __init__(self, path: str) -> None:
        self.reports, self.signals, self._path = ReportBuffer(None), Signals(), path
        answers, self.answers = os.pipe()
        output, self.output = os.pipe()
        self._socket = ReportSocket(path)
        for fd in (answers, output):
            os.set_blocking(fd, False)
        self._fds = (answers, output, self.answers, self.output)
        self._runner: Any = SimpleNamespace(
            answers=answers, output=output, lines=LineBuffer(), run=lambda _: None
        )
        self.read()

    def read(self, **provenance: Any) -> None:
        """Prepare the reader of a sweep of this provenance."""
        sweep = SweepView(id="s-00000", name="s", digest="d", owner="me",
                          launch=Launch(program="train.py"),
                          provenance=provenance)  # fmt: skip
        claim = Claim(trial=TrialId(sweep="s-00000", number=1), attempt=1, nonce="n")
        self.execution = Execution(
            claim,
            sweep,
            self._runner,
            TrialUsage(),
            self.reports,
            self._socket,
            Mask(()),
            3.0,
            Progress(),
        )

    def send(self, data: bytes) -> None:
        """Send a datagram, as hpq.report does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(data, self._path)

    def end(self) -> None:
        """Let the runner end the attempt."""
        os.write(self.answers, end_message(RUN.id, AttemptEnd()))

    def run(self, notify: Callable[[], object] = lambda: None) -> Result:
        """Run the attempt to its end; `notify` is called after each read."""
        heartbeat: Any = SimpleNamespace(reply=HeartbeatReply.OK, notify=notify)
        return self.execution.run(RUN, heartbeat, self.signals)

    def close(self) -> None:
        self._socket.close()
        for fd in self._fds:
            os.close(fd)


@pytest.fixture
def said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Said]:
    monkeypatch.chdir(tmp_path)  # a socket's path has 108 bytes
    said = Said("report")
    yield said
    said.close()


@pytest.mark.parametrize("first", ["the line", "the report"])
@pytest.mark.parametrize(
    "said_else", ['{"ignore_printed": true}', '{"report": {"acc": 1}, "step": 3}', ""]
)
def test_printed_lines_of_code_that_may_report_otherwise_count_if_the_trial_does_not(
    said: Said, said_else: str, first: str
) -> None:
    said.read(reporter={"place": "train.py:1", "by": "wandb"})
    before: list[tuple[str, ...]] = []

    def go_on() -> None:
        if not before:
            before.append(said.reports.names)
            if said_else and first == "the line":
                said.send(said_else.encode())
            os.write(said.output, b"loss=2\n")
            said.end()

    if said_else and first == "the report":
        said.send(said_else.encode())
    os.write(said.output, b"loss=1\n")
    said.run(notify=go_on)
    if said_else:
        assert "loss" not in said.reports.names
    else:
        assert before == [()] and (said.reports.names, said.reports.step) == (("loss",), 2)
        assert b"neither wandb.init nor hpq.report" in said.reports.batch().log


def test_lines_printed_after_a_program_asked_to_ignore_them_are_no_reports(said: Said) -> None:
    said.send(b'{"ignore_printed": true}')
    os.write(said.output, b"loss=1\n")
    said.end()
    said.run()
    assert said.reports.names == ()


def test_a_dropped_metric_is_named_once_in_the_log(said: Said) -> None:
    for names in (range(150), range(150, 302), range(302, 303)):
        said.send(json.dumps({"report": {f"m{n}": 1 for n in names}, "step": 1}).encode())
    said.end()
    said.run()
    assert said.reports.batch().log.count(b"\n") == 1 and b"'m300'" in said.reports.batch().log


def test_a_metric_that_is_reported_and_then_printed_counts_once(said: Said) -> None:
    said.send(b'{"report": {"loss": 0.5}, "step": null}')
    os.write(said.output, b"loss=0.5\n")
    said.end()
    said.run()
    assert (said.reports.names, said.reports.step) == (("loss",), 1)


def test_another_thread_reads_what_arrived_and_the_waiting_main_thread_hears_of_the_end(
    said: Said, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[int] = []

    class Late(selectors.DefaultSelector):
        """The main thread is about to wait; meanwhile the other thread reads all there is."""

        def select(self, timeout: float | None = None) -> Any:
            if not steps:
                said.send(b'{"report": {"loss": 0.5}, "step": 8}')
                said.end()
                with ThreadPoolExecutor(1) as thread:
                    thread.submit(said.execution.read_arrived).result()
                steps.append(said.reports.step)
            return super().select(timeout)

    monkeypatch.setattr("hpq_worker.attempt.execution.selectors.DefaultSelector", Late)
    assert said.run().is_whole and steps == [8]


def test_what_a_program_sets_beside_numbers_is_bounded_whoever_sends_it(said: Said) -> None:
    many = {f"k{i}": "x" * 90 for i in range(1000)}
    said.send(json.dumps({"run_info": {"a": {"b": many}, "nan": float("nan")}}).encode())
    for bad in (b'{"run_info": 3}', b'{"run_info": [1]}', b'{"run_info": null}', b'{"run_info"'):
        said.send(bad)
    said.end()
    said.run()
    info = said.reports.batch().run_info
    assert 4_000 < len(info) < 10_000 and json.loads(info)["nan"] == "nan"
    said.reports.acknowledge(said.reports.batch())
    assert not said.reports.batch().run_info, "sent once"


def test_an_exit_code_that_a_program_reports_is_the_attempts(said: Said) -> None:
    said.send(b'{"exit_code": 3}')
    said.end()
    outcome = said.run().outcome
    assert outcome is not None and outcome.state == "failed"
    assert outcome.failure is not None and "exit status 3" in outcome.failure.message


def test_an_end_that_follows_garbage_on_the_runners_pipe_does_not_hide_it(said: Said) -> None:
    # Output and answers are both ready, so one turn reads the pipes twice; the end comes between.
    os.write(said.output, b"printed\n")
    os.write(said.answers, b"no message\n")
    outcome = said.run(notify=said.end).outcome
    assert outcome is not None and outcome.failure is not None
    assert "pipe" in outcome.failure.message
