"""`hpq run`: enqueue, start local workers, watch, print the summary."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace
from typing import Annotated

import typer

from hpq import datasets
from hpq.code.command import interpreter
from hpq.domain.snapshot import Worker
from hpq.domain.sweep import Counts, Sweep, SweepState
from hpq.errors import ExitCode, Held, NotFound, UserError
from hpq.notice import Notice
from hpq.settings import Settings
from hpq_producer import connection_record
from hpq_producer.commands.submit.append import Appended, print_appended
from hpq_producer.commands.submit.enqueue import print_enqueued, print_owner_and_name, submit
from hpq_producer.commands.submit.submit_options import SubmitOptions, submit_options
from hpq_producer.diagnosis.verdict import exit_code
from hpq_producer.diagnosis.waiting import explain_no_worker
from hpq_producer.enqueue import preflight
from hpq_producer.enqueue.submission import Submission
from hpq_producer.enqueue.submit import Enqueued
from hpq_producer.local_workers import LocalWorkers, exit_on_signals
from hpq_producer.reports.summary_page import print_summary
from hpq_producer.session import Session, load_settings, open_session
from hpq_producer.terminal.console import print_message, warn
from hpq_producer.terminal.text import trials_of
from hpq_producer.watch.app import watch_sweep

_PATIENCE_S = 3.0  # how long nobody may take the sweep before `run` says why and ends


@submit_options()
def run(
    options: SubmitOptions,
    workers: Annotated[int | None, typer.Option(help="Workers on this machine.")] = None,
) -> None:
    """Enqueue, train and watch on this machine."""
    is_sweep = not options.file.suffix and not options.file.exists()
    submission = None if is_sweep else options.submission()
    settings = load_settings()
    if submission is not None:
        _check(submission, settings)
    interpreter(os.environ, settings.python)  # no worker would start without it
    if (
        through := connection_record.connection_of_url(settings.home, settings.redis_url)
    ) is not None:
        raise UserError(
            f"run trains on this machine, and here Redis is that of {through.where};"
            " `hpq enqueue` the file there, or end the connection first: hpq connect --stop",
            code="connected-already",
        )
    with exit_on_signals(), open_session(settings) as session:
        try:
            if submission is None:
                sid = session.find(str(options.file))
                _go_on(session, session.reader.sweeps.get(sid))
            else:
                sid = _submit(session, submission, options)
            code = _train(session, sid, workers)
        finally:
            if session.attached is not None:
                session.attached.release(linger_s=0.0)
    raise typer.Exit(int(code))


def _check(submission: Submission, settings: Settings) -> None:
    """Print warnings about a sweep file.

    Raises:
        UserError: its sampler is not installed.
        DataMissing: the images of its trainer are not on this machine.
    """
    for warning in submission.warnings:
        warn(warning)
    if lacks := preflight.missing_sampler(submission):
        raise UserError(lacks, code="extra-missing")
    if lacks := preflight.missing_sampler_aid(submission):
        warn(lacks)
    if (trainer := submission.spec.trainer) in datasets.WANTED:
        datasets.find(trainer, settings.data)
    if slow := preflight.without_gpu(submission):
        warn(slow)


def _go_on(session: Session, sweep: Sweep) -> None:
    """Go on with an unfinished sweep, also with one that is paused or held."""
    if sweep.state.is_over:
        raise UserError(
            f"{sweep.id} is {sweep.state}; `hpq best {sweep.id}` has its winner, and `hpq retry"
            f" --failed {sweep.id}` queues what failed",
            code="sweep-over",
        )
    print_message(f"{sweep.id}: goes on, {_left(sweep.counts)}")
    if sweep.state in (SweepState.PAUSED, SweepState.HELD):
        session.control().resume(sweep.id)


def _submit(session: Session, submission: Submission, options: SubmitOptions) -> str:
    """Submit, or go on with the unfinished sweep of the same digest; return the sweep's id."""
    done = submit(session, submission, options)
    sweep = session.reader.sweeps.get(done.sid)
    if isinstance(done, Enqueued) and not done.is_new and sweep.state.is_over:
        has = f"{sweep.state.value}, {trials_of(sweep.counts.total)}"
        print_message(
            f"{sweep.id}: the same file, seed and code are there ({has}); another sweep of them"
            f" begins; `hpq best {sweep.id}` has the winner of the first"
        )
        done = submit(session, submission, replace(options, new=True))
        sweep = session.reader.sweeps.get(done.sid)
    if isinstance(done, Appended):
        print_appended(done, sweep)
    elif done.is_new:
        print_enqueued(session, done, sweep, submission)
        return sweep.id
    else:
        print_owner_and_name(session, sweep, submission.spec.name)
        _go_on(session, sweep)
        return sweep.id
    if sweep.state in (SweepState.PAUSED, SweepState.HELD):
        session.control().resume(sweep.id)
    return sweep.id


def _left(counts: Counts) -> str:
    if counts.is_open_ended:
        return "open-ended"
    return f"{int(counts.planned) - counts.ended} of {trials_of(int(counts.planned))} left"


def _train(session: Session, sid: str, workers: int | None) -> ExitCode:
    unfinished = f"{sid}: unfinished; the same `hpq run` goes on with it"
    offer = f"{unfinished}\nending the workers; Ctrl-C again: at once"
    with LocalWorkers(session, session.reader.sweeps.get(sid), workers, offer) as local:
        stuck = Stuck(session, sid, local)
        local.wait_for_one(lambda: bool(stuck.takers()))
        seen = _watch(session, sid, stuck, local)
    if seen is None:
        print_message(
            f"{sid}: its workers keep running (log: {local.log}); `hpq run {sid}` attaches to"
            f" them, `hpq watch {sid}` shows them"
        )
        return ExitCode.DONE
    state, why = seen
    sweep = session.reader.sweeps.get(sid)
    if (state and state.is_over) or sweep.state.is_over:
        print_summary(session.reader, sweep)
        return exit_code(sweep)
    if state is SweepState.HELD:
        return ExitCode.HELD
    if why is not None:
        raise Held(f"{sid}: {why.text} (the workers' log: {local.log})", code=why.code)
    print_message(unfinished)
    return ExitCode.INTERRUPTED


def _watch(
    session: Session, sid: str, stuck: Stuck, local: LocalWorkers
) -> tuple[SweepState | None, Notice | None] | None:
    """Watch a sweep; return its state and why nothing comes of it, or None: its workers are left.

    Raises:
        KeyboardInterrupt: Ctrl-C, and the workers are to stop.
    """
    try:
        state = watch_sweep(
            session, sid, until_done=True, leave=stuck.why, on_quit="q ends or leaves the run"
        )
        why = stuck.now()
        is_done = state is not None and (state.is_over or state is SweepState.HELD)
        if is_done or why is not None or not _leaves():
            return state, why
    except KeyboardInterrupt:
        if not _leaves():
            raise
    local.leave()
    return None


def _leaves() -> bool:
    """Ask whether the workers are to go on without this command; no terminal means no."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    try:
        answer = input("Stop the workers, or leave them running? [S/l] ")
    except EOFError:
        return False
    return answer.strip().lower().startswith("l")


class Stuck:
    """Whether a sweep can still get anywhere with the workers it has."""

    def __init__(self, session: Session, sid: str, local: LocalWorkers) -> None:
        self._session, self._sid, self._local = session, sid, local
        self._since: float | None = None

    def why(self) -> str | None:
        """Why nothing will come of it, once that has been so for a few seconds."""
        reason = self.now()
        if reason is None:
            self._since = None
            return None
        self._since = self._since or time.monotonic()
        return reason.text if time.monotonic() - self._since > _PATIENCE_S else None

    def now(self) -> Notice | None:
        """Why nothing will come of it as things stand; None while a worker is on it."""
        if ended := self._local.ended():
            return Notice("no-worker", ended)
        try:
            sweep = self._session.reader.sweeps.get(self._sid)
        except NotFound:
            return Notice("sweep-not-found", "the sweep was removed")
        workers = self.takers()
        if not workers or sweep.counts.running or sweep.state.is_over:
            return None  # still starting, training, or done
        return explain_no_worker(sweep, workers)

    def takers(self) -> list[Worker]:
        """The live workers that are there for this sweep."""
        return [w for w in self._session.reader.workers.live() if w.only == self._sid]
