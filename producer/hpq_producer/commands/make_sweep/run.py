"""`hpq run`: enqueue, start local workers, watch, print the summary."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from redis.exceptions import RedisError
from typer import Option

from hpq import datasets
from hpq.access import connection_record
from hpq.access.session import Session, load_settings, open_session
from hpq.code.command import interpreter
from hpq.domain.status import Worker
from hpq.domain.sweep import Counts, Launch, SweepState, SweepView
from hpq.error_codes import ExitCode
from hpq.errors import Held, NotFound, UserError
from hpq.notice import Notice, print_message, warn
from hpq.redis.client import TRANSIENT
from hpq.settings import Settings
from hpq_producer.actions import steer
from hpq_producer.actions.by_name import carry_out
from hpq_producer.commands.common_flags import GpusPerTrial, TrialsPerGpu, set_gpus
from hpq_producer.commands.make_sweep.enqueue import (
    enqueue_prepared,
    print_enqueued,
    print_owner_and_name,
)
from hpq_producer.commands.make_sweep.enqueue_options import EnqueueOptions, enqueue_options
from hpq_producer.enqueue.prepare import PreparedSweep, missing_samplers, without_gpu
from hpq_producer.local_workers import LocalWorkers, exit_on_signals
from hpq_views.command_output.summary_page import print_summary
from hpq_views.text.console import discard_stdout
from hpq_views.text.screen import ask_key
from hpq_views.text.text import trials_of
from hpq_views.watch.app import watch_sweep
from hpq_views.why.able_workers import explain_no_worker
from hpq_views.why.verdict import exit_code

_PATIENCE_S = 3.0  # without a worker that can run the sweep, until `run` exits


@enqueue_options()
def run(
    options: EnqueueOptions,
    workers: Annotated[
        int | None,
        Option(
            min=1,
            max=1000,
            help="Number of workers. Default: one per GPU; without a GPU one per core, at most 4.",
        ),
    ] = None,
    gpus: GpusPerTrial = None,
    trials_per_gpu: TrialsPerGpu = None,
) -> None:
    """Enqueue a sweep file, train on this machine, watch, and print the summary.

    FILE may be the id of an unfinished sweep, which then continues.

    Examples:
      hpq run sweep.yaml
      hpq run sweep.yaml --workers 2 --count 20
    """
    set_gpus(gpus, trials_per_gpu)
    is_sweep = not options.file.suffix and not options.file.exists()
    prepared = None if is_sweep else options.prepare(trains_here=True)
    settings = load_settings()
    if prepared is not None:
        _check(prepared, settings)
    interpreter(os.environ, settings.python)  # fail before the sweep is enqueued
    if (
        through := connection_record.connection_of_url(settings.home, settings.redis_url)
    ) is not None:
        raise UserError(
            f"run trains on this machine, but Redis is that of {through.where}; use `hpq enqueue`,"
            " or first run `hpq connect --stop`",
            code="connected-already",
        )
    with exit_on_signals(), open_session(settings) as session:
        try:
            if prepared is None:
                sid = _find(session, options.file)
                _go_on(session, session.reader.sweeps.get(sid))
            else:
                sid = _enqueue(session, prepared, options)
            code = _train(session, sid, workers)
        finally:
            if session.attached is not None:
                session.attached.release(linger_s=0.0)
    raise typer.Exit(int(code))


def _find(session: Session, what: Path) -> str:
    """Return the id of a sweep. Raises NotFound if no sweep begins so, and no file has the name."""
    try:
        return session.find(str(what))
    except NotFound as error:
        raise NotFound(f"no file {str(what)!r}, and {error}", code=error.code) from None


def _check(prepared: PreparedSweep, settings: Settings) -> None:
    """Print warnings about a sweep file.

    Raises:
        UserError: its trials call a function, or its sampler is not installed.
        DataMissing: the images of its trainer are not on this machine.
    """
    _refuse_function(prepared.spec.name, prepared.code.launch)
    for warning in prepared.warnings:
        warn(warning)
    needs, could_use = missing_samplers(prepared)
    if needs:
        raise UserError(needs, code="extra-missing")
    if could_use:
        warn(could_use)
    if (trainer := prepared.spec.keys.trainer) in datasets.WANTED:
        datasets.find(trainer, settings.data)
    if slow := without_gpu(prepared):
        warn(slow)


def _refuse_function(what: str, launch: Launch) -> None:
    if launch.is_function:
        text = f"{what}: only the script that calls wandb.agent or hpq.agent can run its trials"
        raise UserError(f"{text}; run `hpq exec python SCRIPT`", code="wrong-place")


def _go_on(session: Session, sweep: SweepView) -> None:
    """Continue an unfinished sweep, also a paused or held one."""
    _refuse_function(sweep.id, sweep.launch)
    if sweep.state.is_over:
        raise UserError(
            f"{sweep.id} is {sweep.state}; `hpq best {sweep.id}` prints its best trial,"
            f" `hpq retry {sweep.id}` queues its failed trials (--cancelled: the cancelled ones)",
            code="sweep-over",
        )
    print_message(f"{sweep.id}: continues, {_left(sweep.counts)}")
    if sweep.state in (SweepState.PAUSED, SweepState.HELD):
        steer.resume(session, sweep)


def _enqueue(session: Session, prepared: PreparedSweep, options: EnqueueOptions) -> str:
    """Enqueue, or continue the unfinished sweep of the same digest; return the sweep's id."""
    done = enqueue_prepared(session, prepared, options)
    sweep = session.reader.sweeps.get(done.sid)
    if not done.is_new and sweep.state.is_over:
        has = f"{sweep.state.value}, {trials_of(int(sweep.counts.progress[1]))}"
        print_message(
            f"{sweep.id}: {has}, with the same file, seed and code; starting another copy;"
            f" `hpq best {sweep.id}` prints the best trial of the earlier sweep"
        )
        done = enqueue_prepared(session, prepared, replace(options, new=True))
        sweep = session.reader.sweeps.get(done.sid)
    if done.is_new:
        print_enqueued(session, done, sweep, prepared)
    else:
        print_owner_and_name(session, sweep, prepared.spec.name)
        _go_on(session, sweep)
    return sweep.id


def _left(counts: Counts) -> str:
    if counts.is_open_ended:
        return "no trial limit"
    done, of = counts.progress
    return f"{int(of) - done} of {trials_of(int(of))} left"


def _train(session: Session, sid: str, workers: int | None) -> ExitCode:
    """Start the workers, watch the sweep and print the summary.

    Raises:
        Held: no worker can run the sweep.
        RedisError: Redis does not answer.
    """
    unfinished = f"{sid}: unfinished; `hpq run {sid}` continues it"
    offer = f"{unfinished}\nstopping the workers; press Ctrl-C again to stop at once"
    with LocalWorkers(session, session.reader.sweeps.get(sid), workers, offer) as local:
        stuck = Stuck(session, sid, local)
        local.wait_for_one(lambda: bool(stuck.takers()))
        try:
            seen = _watch(session, sid, stuck, local)
        except BrokenPipeError:  # `hpq run … | head` stops the workers, as Ctrl-C does
            discard_stdout()
            print_message(f"stdout was closed; {unfinished}")
            return ExitCode.INTERRUPTED
        except RedisError:
            print_message(unfinished)
            raise
        if seen is not None:
            _wait_for_store(session, sid, local)
    if seen is None:
        print_message(
            f"{sid}: its workers continue (log: {local.log}); `hpq run {sid}` attaches to them,"
            f" `hpq watch {sid}` shows them"
        )
        return ExitCode.DONE
    state, why = seen
    sweep = session.reader.sweeps.get(sid)
    if line := local.logged("file-overwritten"):
        print_message(f"! {line}")
    if (state and state.is_over) or sweep.state.is_over:
        print_summary(session, sweep)
        return exit_code(sweep, session.reader.sweeps.best_objective(sweep))
    if state is SweepState.HELD:
        return exit_code(sweep, None)
    if why is not None:
        text = f"{sid}: {why.text} (the workers' log: {local.log}); `hpq run {sid}` continues it"
        raise Held(text, code=why.code)
    print_message(unfinished)
    return ExitCode.INTERRUPTED


def _wait_for_store(session: Session, sid: str, local: LocalWorkers) -> None:
    """Let the workers of a sweep that is over wait for its store, as long as they do, or Ctrl-C."""

    def lacks_files() -> bool:
        with suppress(*TRANSIENT):
            sweep = session.reader.sweeps.get(sid)
            return sweep.state.is_over and sweep.unstored > 0
        return True

    with suppress(KeyboardInterrupt, NotFound):  # the sweep was removed
        if lacks_files():
            print_message("waiting for the store; Ctrl-C leaves the files on this disk")
        local.wait_while(lacks_files)


def _watch(
    session: Session, sid: str, stuck: Stuck, local: LocalWorkers
) -> tuple[SweepState | None, Notice | None] | None:
    """Watch a sweep; return its state and why no worker can run it; None: leave the workers.

    Raises:
        KeyboardInterrupt: the user pressed Ctrl-C and chose to stop the workers.
    """
    try:
        state = watch_sweep(
            session,
            sid,
            partial(carry_out, session),
            until_done=True,
            leave=stuck.why,
            on_quit="leave (asks about the workers)",
        )
        why = stuck.now()
    except KeyboardInterrupt:
        if not _leaves():
            raise
    else:
        is_done = state is not None and (state.is_over or state is SweepState.HELD)
        if is_done or why is not None or not _leaves():
            return state, why
    local.leave()
    return None


def _leaves() -> bool:
    """Ask whether the workers should continue without this command; no terminal means no."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return False
    return ask_key("[S]top the workers, or [l]eave them running? ") in ("l", "L")


class Stuck:
    """Find out if the workers of a sweep can run it."""

    def __init__(self, session: Session, sid: str, local: LocalWorkers) -> None:
        self._session = session
        self._sid = sid
        self._local = local
        self._since: float | None = None

    def why(self) -> str | None:
        """Return why no worker can run the sweep, if that lasted a few seconds."""
        reason = self.now()
        if reason is None:
            self._since = None
            return None
        self._since = self._since or time.monotonic()
        return reason.text if time.monotonic() - self._since > _PATIENCE_S else None

    def now(self) -> Notice | None:
        """Return why no worker can run the sweep now; None while one can, or waits for Redis."""
        if ended := self._local.ended():
            return Notice("no-worker", ended)
        try:
            sweep = self._session.reader.sweeps.get(self._sid)
        except NotFound:
            return Notice("sweep-not-found", "the sweep was removed")
        except TRANSIENT:  # the view names it
            if self._session.attached is not None:
                self._session.attached.revive()
            return None
        workers = self.takers()
        if not workers or sweep.counts.running or sweep.state.is_over:
            return None  # still starting, training, or done
        why = explain_no_worker(sweep, workers)
        return None if why is not None and why.code == "disk-full" else why

    def takers(self) -> list[Worker]:
        """Return the live workers that were started for this sweep; none while Redis is away."""
        with suppress(*TRANSIENT):
            return [w for w in self._session.reader.workers.live() if w.only == self._sid]
        return []
