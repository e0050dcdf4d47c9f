"""`hpq enqueue`."""

from __future__ import annotations

import json as jsonlib
import sys

import typer

from hpq.errors import ExitCode
from hpq.sweep import Sweep
from producer import enqueue as enqueuing
from producer import late
from producer.commands.options import (
    AsJson,
    Canary,
    CodeDir,
    Count,
    File,
    Force,
    Name,
    New,
    Seed,
    Sets,
    Trainer,
)
from producer.commands.sweep_file import read_file
from producer.enqueue import Enqueued
from producer.look.text import trials_of
from producer.progress import Bar
from producer.session import Session, open_session
from producer.sweepfile.spec import count as count_sets
from producer.taking import say_if_not_kept, say_if_not_taken

app = typer.Typer()


@app.command()
def enqueue(
    file: File,
    sets: Sets = None,
    count: Count = None,
    seed: Seed = None,
    name: Name = None,
    trainer: Trainer = None,
    code: CodeDir = None,
    force: Force = False,
    canary: Canary = 0,
    new: New = False,
    json: AsJson = False,
) -> None:
    """Put a sweep file's trials on the queue."""
    spec = read_file(file, sets, count, seed, name, trainer, force)
    for warning in spec.warnings:
        warn(warning)
    if lacks := late.lacks(spec):
        warn(f"{lacks}; it is not installed here, and workers need it")
    with open_session() as session, Bar(count_sets(spec), "writing sets") as bar:
        done = enqueuing.enqueue(
            session,
            spec,
            file,
            again=new,
            code_dir=code,
            canary=canary,
            progress=bar.at,
            warn=warn,
        )
        bar.close()
        say(session, done, as_json=json)
    raise typer.Exit(int(ExitCode.DONE))


def warn(line: str) -> None:
    """Say what the user should know before it hurts."""
    print(f"warning: {line}", file=sys.stderr)


def _size(sweep: Sweep) -> str:
    counts = sweep.counts
    if counts.is_open_ended:
        return f"open-ended, {trials_of(counts.total)} so far"
    return trials_of(int(counts.planned))


def _queued(sweep: Sweep) -> str:
    """What was enqueued; where sets are made while the sweep runs, by whom."""
    if not sweep.sampler:
        return f"{trials_of(sweep.counts.queued)} queued"
    if sweep.counts.is_open_ended:
        return f"open-ended, sets by {sweep.sampler} as workers ask; `hpq stop {sweep.id}` ends it"
    return f"{_size(sweep)}, sets by {sweep.sampler} as workers ask"


def say(session: Session, done: Enqueued, *, as_json: bool, is_run: bool = False) -> None:
    """Say what was enqueued: data on stdout, the rest on stderr."""
    sweep = session.view.sweep(done.sid)
    if as_json:
        fact = {"sweep": done.sid, "new": done.is_new, "trials": done.trials, "state": sweep.state}
        print(jsonlib.dumps(fact))
        return
    if done.is_new:
        print(f"{done.sid}: {_queued(sweep)}", file=sys.stderr)
        if not is_run:  # which has a store of its own
            say_if_not_kept(session, sweep)
        if sweep.launch.code_dir:
            what = sweep.launch.program or sweep.launch.trainer
            print(f"runs {what} in {sweep.launch.code_dir}", file=sys.stderr)
    elif is_run:
        counts = sweep.counts
        left = "open-ended"
        if not counts.is_open_ended:
            left = f"{int(counts.planned) - counts.ended} of {trials_of(int(counts.planned))} left"
        print(f"{done.sid}: goes on, {left}", file=sys.stderr)
    else:
        print(
            f"{done.sid}: the same file, seed and code are there ({sweep.state},"
            f" {_size(sweep)}); nothing was added. --new makes another sweep of them",
            file=sys.stderr,
        )
    if is_run:
        return
    say_if_not_taken(session, done.sid)
    print(done.sid)
