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
from hpq.domain.sweep import (
    EarlyTerminate,
    Launch,
    Metric,
    ObjectiveValue,
    SweepView,
    TerminationRule,
)
from hpq.domain.trial import Checkpoint, Claim, FailureKind, TrialId, TrialState
from hpq_worker.attempt.execution import Execution
from hpq_worker.attempt.outcome import Result
from hpq_worker.attempt.report_socket import ReportSocket
from hpq_worker.health.usage import TrialUsage
from hpq_worker.lease.report_buffer import ReportBuffer
from hpq_worker.process.protocol import AttemptEnd, Halt, LineBuffer, RunRequest, end_message
from hpq_worker.process.secrets import Mask
from hpq_worker.process.signals import Signals
from hpq_worker.process.watchdog import Progress

RUN = RunRequest(trial="s-00000/1", attempt=1, params={}, argv=("train.py",))


class Said:
    """What a runner and its program say; the worker's end of it is an Execution."""

    def __init__(self, path: str) -> None:
        self.signals, self._path = Signals(), path
        self.warnings: list[str] = []
        self.alerts: list[str] = []
        answers, self.answers = os.pipe()
        output, self.output = os.pipe()
        self._socket = ReportSocket(path)
        for fd in (answers, output):
            os.set_blocking(fd, False)
        self._fds = (answers, output, self.answers, self.output)
        self.runner: Any = SimpleNamespace(
            answers=answers, output=output, lines=LineBuffer(), run=lambda _: None
        )
        self.read()

    def read(self, metric: Metric | None = None, early: EarlyTerminate | None = None) -> None:
        """Prepare the reader of a sweep of this metric."""
        self.reports = ReportBuffer(metric)
        sweep = SweepView(id="s-00000", name="s", digest="d", owner="me",
                          launch=Launch(program="train.py"),
                          metric=metric, early=early)  # fmt: skip
        claim = Claim(trial=TrialId(sweep="s-00000", number=1), attempt=1, nonce="n")
        self.execution = Execution(
            claim,
            sweep,
            self.runner,
            TrialUsage(),
            self.reports,
            self._socket,
            Mask(()),
            3.0,
            Progress(),
            self.warnings.append,
            self.alerts.append,
        )

    def send(self, data: bytes) -> None:
        """Send a datagram, as hpq.report does."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.sendto(data, self._path)

    def end(self, status: int = 0) -> None:
        """Let the runner end the attempt."""
        os.write(self.answers, end_message(RUN.id, AttemptEnd(status=status)))

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
    said.send(b'{"may_report": true}')
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


def test_a_checkpoint_counts_what_was_printed_before_it_and_the_end_the_rest(said: Said) -> None:
    said.send(b'{"may_report": true}')
    steps: list[int] = []

    def go_on() -> None:
        if len(steps) < 2:
            steps.append(said.reports.step)
            said.execution.read_arrived()
        if len(steps) == 2:
            steps.append(said.reports.step)
            os.write(said.output, b"loss=3\n")
            said.end()

    os.write(said.output, b"loss=1\nloss=2\n")
    said.run(notify=go_on)
    assert steps[0] == 0 and steps[-1] == 2 and said.reports.step == 3
    assert said.reports.batch().log.count(b"neither wandb.init nor hpq.report") == 1


@pytest.mark.parametrize("is_early", [True, False])
@pytest.mark.parametrize("line", [b"loss=2\n", b"epoch=2\n"])
def test_a_trial_is_warned_if_early_termination_could_not_see_its_printed_metric(
    said: Said, line: bytes, is_early: bool
) -> None:
    rule = EarlyTerminate(rule=TerminationRule.MEDIAN, bands=(1,))
    said.read(Metric(name="loss"), rule if is_early else None)
    said.send(b'{"may_report": true}')
    os.write(said.output, line)
    said.end()
    said.run()
    is_unseen = is_early and line.startswith(b"loss")
    assert ["hpq.report" in text for text in said.warnings] == ([True] if is_unseen else [])


@pytest.mark.parametrize("take", ObjectiveValue)
def test_a_trial_whose_metric_stays_nan_is_ended_as_diverged(
    said: Said, take: ObjectiveValue
) -> None:
    said.read(metric=Metric(name="loss", take=take, terminate_on_nan=2))
    os.write(said.output, b"loss=1\nloss=nan\nacc=nan\nloss=inf\n")
    asked: list[str] = []

    def stop(why: str) -> None:
        asked.append(why)
        os.write(said.answers, end_message(RUN.id, AttemptEnd(stopped=True, status=1)))

    said.runner.stop = stop
    outcome = said.run().outcome
    assert outcome is not None and outcome.failure is not None and asked == [Halt.DIVERGED]
    assert (outcome.state, outcome.failure.kind) == (TrialState.FAILED, FailureKind.DIVERGED)
    assert "terminate_on_nan" in outcome.failure.message
    assert b"terminate_on_nan" in said.reports.batch().log


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


def test_a_printed_number_that_cannot_be_read_is_named_once_and_the_others_count(
    said: Said,
) -> None:
    said.read(Metric(name="loss"))
    os.write(said.output, b"epoch 1 loss: 0.5\nepoch 2 loss: 3,4\nepoch 3 loss: 7ms\n")
    said.end()
    outcome = said.run().outcome
    assert outcome is not None and outcome.failure is None and outcome.objective == 0.5
    log = said.reports.batch().log
    assert log.count(b"hpq: ") == 1 and b"'epoch 2 loss: 3,4'" in log and b"not '3,4'" in log
    assert len(said.warnings) == 1 and "'epoch 2 loss: 3,4'" in said.warnings[0]


@pytest.mark.parametrize("of_process", [True, False])
@pytest.mark.parametrize("is_reported", [True, False])
def test_the_reason_is_named_for_which_a_value_of_the_metric_was_dropped(
    said: Said, is_reported: bool, of_process: bool
) -> None:
    said.read(Metric(name="loss"))
    said.send(b'{"may_report": true}')
    if is_reported:
        said.send(b'{"report": {"loss": 0.5}, "step": 1}')
    for name, why in (("loss", "step 3 is below 5"), ("loss", "another"), ("other", "a text")):
        message = {"dropped": name, "why": why, "of_process": of_process}
        said.send(json.dumps(message).encode())
    for bad in (b'{"dropped": "loss"}', b'{"dropped": []}'):
        said.send(bad)
    said.end()
    outcome = said.run().outcome
    assert outcome is not None
    if is_reported:
        assert outcome.failure is None and outcome.objective == 0.5
    else:
        assert outcome.failure is not None
        assert "step 3 is below 5" in outcome.failure.message, "and not: call wandb.log"
        assert "call wandb.log" not in outcome.failure.message
    named = [] if of_process else ["a value of loss is dropped: step 3 is below 5"]
    assert said.warnings == named, "a rank above 0 drops its values in each trial"
    assert (b"step 3 is below 5" in said.reports.batch().log) == (not of_process)


def test_colours_hide_neither_an_error_nor_where_it_was_raised(said: Said) -> None:
    frame = b'  File \x1b[35m"/a/train.py"\x1b[0m, line \x1b[35m2\x1b[0m, in \x1b[35mf\x1b[0m\n'
    error = b"\x1b[1;35mKeyError\x1b[0m: \x1b[35m'missing'\x1b[0m\n"
    os.write(said.output, b"Traceback (most recent call last):\n" + frame + error)
    said.end(status=1)
    outcome = said.run().outcome
    assert outcome is not None and outcome.failure is not None
    assert outcome.failure.message == "exit status 1: KeyError: 'missing'"
    assert outcome.failure.fingerprint == "KeyError train.py:2"


def test_of_a_long_line_only_what_follows_a_carriage_return_is_read(said: Said) -> None:
    said.read(Metric(name="loss"))
    bars = b"".join(b"%d%% val_loss=0.1\r" % n for n in range(600))
    os.write(said.output, bars + b"\r100% loss=0.5\n" + b"x" * 5000 + b" loss=0.7\n")
    os.write(said.output, b"_" * 4090 + b"val_loss=0.9\n")
    said.end()
    said.run()
    assert said.reports.lasts == {"loss": 0.5}


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


def test_a_run_before_the_trials_own_leaves_no_value_and_no_exit_code(said: Said) -> None:
    said.read(Metric(name="loss", take=ObjectiveValue.BEST))
    said.reports.resume(Checkpoint(store="", path="", step=2, best=0.5, logged=1))
    for text in (
        '{"report": {"loss": 0.0, "only": 1}, "step": 9}',
        '{"exit_code": 3}',
        '{"begin_again": true}',
        '{"report": {"loss": 0.7}, "step": 3}',
    ):
        said.send(text.encode())
    said.end()
    outcome = said.run().outcome
    assert outcome is not None and outcome.state is TrialState.FINISHED
    assert (outcome.objective, outcome.best, outcome.step) == (0.5, 0.5, 3)
    batch = said.reports.batch()
    assert [(p.step, p.name, p.value) for p in batch.points] == [(3, "loss", 0.7)]
    assert batch.restarted, "Redis removes what it has"


def test_a_trial_that_has_reported_nothing_does_not_begin_again(said: Said) -> None:
    said.send(b'{"begin_again": true}')
    said.end()
    said.run()
    assert said.reports.batch().restarted == ""


def test_the_first_ten_different_alerts_of_a_script_are_passed_on(said: Said) -> None:
    for newest in (1, 2, 8, 14):
        last = [f"WARN slow: {n}" for n in range(newest)][-10:]
        said.send(json.dumps({"run_info": {"alerts": [*last, last[-1], 7]}}).encode())
    said.send(b'{"run_info": {"alerts": "WARN"}}')
    said.end()
    said.run()
    assert said.alerts == [f"WARN slow: {n}" for n in range(10)]
