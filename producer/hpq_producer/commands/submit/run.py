"""`hpq run`: enqueue, local workers, watch, summary; nothing is left running."""

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
from hpq.domain.sweep import Counts, SweepState
from hpq.domain.trainer_specs import SHIPPED
from hpq.errors import ExitCode, Held, NotFound, UserError
from hpq_producer import connection_record
from hpq_producer.commands.submit.append import Appended, print_appended
from hpq_producer.commands.submit.enqueue import print_enqueued, print_owner_and_name, submit
from hpq_producer.commands.submit.options import SubmitOptions, submit_options
from hpq_producer.diagnosis.verdict import exit_code
from hpq_producer.diagnosis.waiting import explain_no_worker
from hpq_producer.enqueue import preflight
from hpq_producer.enqueue.submission import Submission
from hpq_producer.enqueue.submit import Enqueued
from hpq_producer.local_workers import LocalWorkers, exit_on_signals
from hpq_producer.reports.summary_page import print_summary
from hpq_producer.session import Session, load_settings, open_session
from hpq_producer.terminal.console import warn
from hpq_producer.terminal.text import trials_of
from hpq_producer.watch.app import watch_sweep

app = typer.Typer()
_PATIENCE_S = 3.0  # how long nobody may take the sweep before `run` says why and ends


@app.command()
@submit_options()
def run(
    options: SubmitOptions,
    workers: Annotated[int | None, typer.Option(help="Workers on this machine.")] = None,
) -> None:
    """Enqueue, train and watch on this machine."""
    submission = options.submission()
    for warning in submission.warnings:
        warn(warning)
    if lacks := preflight.missing_sampler(submission):
        raise UserError(lacks)
    if lacks := preflight.missing_sampler_aid(submission):
        warn(lacks)
    settings = load_settings()
    if (trainer := submission.spec.trainer) in datasets.WANTED:
        datasets.find(trainer, settings.data)
    if (slow := preflight.without_gpu(submission)) is not None:
        warn(slow)
    interpreter(os.environ, settings.python)  # no worker would start without it
    if (
        through := connection_record.connection_of_url(settings.home, settings.redis_url)
    ) is not None:
        raise UserError(
            f"run trains on this machine, and here Redis is that of {through.where};"
            " `hpq enqueue` the file there, or end the connection first: hpq connect --stop"
        )
    with exit_on_signals(), open_session(settings) as session:
        try:
            sid = _submit(session, submission, options)
            code = _train(session, sid, workers)
        finally:
            if session.attached is not None:
                session.attached.release(linger_s=0.0)
    raise typer.Exit(int(code))


def _submit(session: Session, submission: Submission, options: SubmitOptions) -> str:
    """Submit, or go on with the unfinished sweep of the same digest; return the sweep's id."""
    done = submit(session, submission, options)
    sweep = session.reader.sweeps.get(done.sid)
    if isinstance(done, Enqueued) and not done.is_new and sweep.state.is_over:
        has = f"{sweep.state.value}, {trials_of(sweep.counts.total)}"
        print(
            f"{sweep.id}: the same file, seed and code are there ({has}); another sweep of them"
            f" begins; `hpq best {sweep.id}` has the winner of the first",
            file=sys.stderr,
        )
        done = submit(session, submission, replace(options, new=True))
        sweep = session.reader.sweeps.get(done.sid)
    if isinstance(done, Appended):
        print_appended(done, sweep)
    elif done.is_new:
        print_enqueued(session, done, sweep)
        return sweep.id
    else:
        print_owner_and_name(session, sweep, submission.spec.name)
        print(f"{sweep.id}: goes on, {_left(sweep.counts)}", file=sys.stderr)
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
        state = watch_sweep(
            session, sid, until_done=True, leave=stuck.why, on_quit="q ends the run"
        )
        why = stuck.now()
    sweep = session.reader.sweeps.get(sid)
    if state.is_over or sweep.state.is_over:
        print_summary(session.reader, sweep)
        return exit_code(sweep)
    if state is SweepState.HELD:
        return ExitCode.HELD
    if why is not None:
        raise Held(f"{sid}: {why} (the workers' log: {local.log})")
    print(unfinished, file=sys.stderr)
    return ExitCode.INTERRUPTED


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
        return reason if time.monotonic() - self._since > _PATIENCE_S else None

    def now(self) -> str | None:
        """Why nothing will come of it as things stand; None while a worker is on it."""
        if ended := self._local.ended():
            return ended
        try:
            sweep = self._session.reader.sweeps.get(self._sid)
        except NotFound:
            return "the sweep was removed"
        workers = self.takers()
        if not workers or sweep.counts.running or sweep.state.is_over:
            return None  # still starting, training, or done
        reason = explain_no_worker(sweep, workers, SHIPPED)
        return reason.text if reason else None

    def takers(self) -> list[Worker]:
        """The live workers that are there for this sweep."""
        return [w for w in self._session.reader.workers.live() if w.only == self._sid]
