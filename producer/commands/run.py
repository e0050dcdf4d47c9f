"""`hpq run`: enqueue, local workers, watch, summary; nothing is left running."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hpq.errors import ExitCode, Held, NotFound, UserError
from hpq.hyperparams import SHIPPED
from hpq.interpreter import interpreter
from hpq.snapshot import Worker
from hpq.sweep import Sweep, SweepState
from producer import enqueue as enqueuing
from producer import late
from producer.cluster import tunnel
from producer.commands import growing
from producer.commands.enqueue import say, warn
from producer.commands.into import Into, Leave, YesInto, check_into
from producer.commands.options import (
    AnyCode,
    Canary,
    CodeDir,
    Count,
    File,
    Force,
    Name,
    New,
    ReuseFlag,
    Seed,
    Sets,
    Tags,
    Trainer,
)
from producer.commands.sweep_file import read_file, reuse_of, tags_of
from producer.enqueue import Enqueued
from producer.here import settings_here
from producer.local import LocalWorkers, signals_unwind
from producer.look.outcome import exit_code
from producer.look.summary_page import print_summary
from producer.look.takers import why_not_taken
from producer.look.text import trials_of
from producer.look.watch import watch_sweep
from producer.progress import Bar
from producer.session import Session, open_session
from producer.sweepfile.spec import SweepSpec
from producer.sweepfile.spec import count as count_sets
from producer.writing import store_of

app = typer.Typer()
_PATIENCE_S = 3.0  # how long nobody may take the sweep before `run` says why and ends


@app.command()
def run(
    file: File,
    sets: Sets = None,
    count: Count = None,
    seed: Seed = None,
    name: Name = None,
    trainer: Trainer = None,
    code: CodeDir = None,
    force: Force = False,
    canary: Canary = 0,
    workers: Annotated[int | None, typer.Option(help="Workers on this machine.")] = None,
    new: New = False,
    tag: Tags = None,
    reuse: ReuseFlag = False,
    any_code: AnyCode = False,
    into: Into = None,
    leave: Leave = False,
    yes: YesInto = False,
) -> None:
    """Enqueue, train and watch on this machine."""
    spec = read_file(file, sets, count, seed, name, trainer, force)
    for warning in spec.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    if lacks := late.lacks(spec):
        raise UserError(lacks)
    if lacks := late.is_unaided(spec):
        warn(lacks)
    more: dict[str, Any] = {"tags": tags_of(tag), "reuse": reuse_of(reuse, any_code)}
    check_into(into, new or canary or any(more.values()) or name is not None, leave or yes)
    settings = settings_here()
    interpreter(os.environ, settings.python)  # no worker would start without it
    if (through := tunnel.of_url(settings.home, settings.redis_url)) is not None:
        raise UserError(
            f"run trains on this machine, and here Redis is that of {through.where};"
            " `hpq enqueue` the file there, or end the connection first: hpq connect --stop"
        )
    with signals_unwind(), open_session(settings) as session:
        try:
            if into is not None:
                flags = {"leave": leave, "yes": yes, "force": force, "is_run": True}
                sid = growing.enqueue_into(session, into, spec, file, code, **flags)
                _go_on(session, session.view.sweep(sid))
            else:
                with Bar(count_sets(spec), "writing sets") as bar:
                    done = _enqueue(session, spec, file, new, code, canary, bar, more)
                say(session, done, as_json=False, is_run=True, name=spec.name)
                sid = done.sid
            code_ = _train(session, sid, workers)
        finally:
            if session.attached is not None:
                session.attached.release(linger_s=0.0)
    raise typer.Exit(int(code_))


def _enqueue(
    session: Session,
    spec: SweepSpec,
    file: File,
    new: bool,
    code: str | None,
    canary: int,
    bar: Bar,
    more: Mapping[str, Any],
) -> Enqueued:
    """The unfinished sweep of the same digest, or else a new one."""

    def enqueue(again: bool) -> Enqueued:
        return enqueuing.enqueue(
            session,
            spec,
            file,
            again=again,
            code_dir=code,
            canary=canary,
            progress=bar.at,
            warn=warn,
            **more,
        )

    done = enqueue(again=new)
    if done.is_new:
        return done
    sweep = session.view.sweep(done.sid)
    if sweep.state.is_over:
        has = f"{sweep.state.value}, {trials_of(sweep.counts.total)}"
        print(
            f"{sweep.id}: the same file, seed and code are there ({has}); another sweep of them"
            f" begins; `hpq best {sweep.id}` has the winner of the first",
            file=sys.stderr,
        )
        return enqueue(again=True)
    _go_on(session, sweep)
    return done


def _go_on(session: Session, sweep: Sweep) -> None:
    if sweep.state in (SweepState.PAUSED, SweepState.HELD):
        store_of(session).control(sweep.id, "resume")


def _train(session: Session, sid: str, workers: int | None) -> ExitCode:
    unfinished = f"{sid}: unfinished; the same `hpq run` goes on with it"
    offer = f"{unfinished}\nending the workers; Ctrl-C again: at once"
    with LocalWorkers(session, session.view.sweep(sid), workers, offer) as local:
        stuck = Stuck(session, sid, local)
        local.wait_for_one(lambda: bool(stuck.takers()))
        state = watch_sweep(
            session, sid, until_done=True, leave=stuck.why, on_quit="q ends the run"
        )
        why = stuck.now()
    sweep = session.view.sweep(sid)
    if state.is_over or sweep.state.is_over:
        print_summary(session.view, sweep)
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
            sweep = self._session.view.sweep(self._sid)
        except NotFound:
            return "the sweep was removed"
        workers = self.takers()
        if not workers or sweep.counts.running or sweep.state.is_over:
            return None  # still starting, training, or done
        reason = why_not_taken(sweep, workers, SHIPPED)
        return reason.text if reason else None

    def takers(self) -> list[Worker]:
        """The live workers that are there for this sweep."""
        return [w for w in self._session.view.workers() if w.only == self._sid]
