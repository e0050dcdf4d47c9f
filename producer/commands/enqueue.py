"""`hpq enqueue`."""

from __future__ import annotations

import json as jsonlib
import sys

import typer

from hpq.codes import Notice
from hpq.errors import ExitCode
from hpq.sweep import Sweep
from producer import enqueue as enqueuing
from producer import late
from producer.commands import growing
from producer.commands.into import Into, Leave, YesInto, check_into
from producer.commands.options import (
    AnyCode,
    AsJson,
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
from producer.look.early_lines import target_words
from producer.look.text import clean, size, trials_of
from producer.progress import Bar
from producer.session import Session, open_session
from producer.sweepfile.spec import SweepSpec
from producer.sweepfile.spec import count as count_sets
from producer.taking import say_if_not_kept, say_if_not_taken

app = typer.Typer()
_NO_METRIC = (
    "it names no metric, so nothing will be ranked; metric: {name: val_loss, goal: minimize} in the"
    " file does, where trials print val_loss=0.3 or call hpq.report({...})"
)


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
    tag: Tags = None,
    reuse: ReuseFlag = False,
    any_code: AnyCode = False,
    into: Into = None,
    leave: Leave = False,
    yes: YesInto = False,
    json: AsJson = False,
) -> None:
    """Put a sweep file's trials on the queue."""
    spec = read_file(file, sets, count, seed, name, trainer, force)
    for warning in spec.warnings:
        warn(warning)
    tags, which = tags_of(tag), reuse_of(reuse, any_code)
    check_into(into, new or canary or tags or which or name is not None, leave or yes)
    if into is not None:
        with open_session() as session:
            growing.enqueue_into(
                session, into, spec, file, code, leave=leave, yes=yes, force=force, as_json=json
            )
        return
    with open_session() as session, Bar(count_sets(spec), "writing sets") as bar:
        if session.tunnel is None:  # pods have an image of their own
            _warn_of_samplers(spec)
        done = enqueuing.enqueue(
            session,
            spec,
            file,
            again=new,
            code_dir=code,
            canary=canary,
            tags=tags,
            reuse=which,
            progress=bar.at,
            warn=warn,
        )
        bar.close()
        say(session, done, as_json=json, name=spec.name, reuse=reuse)
    raise typer.Exit(int(ExitCode.DONE))


def warn(line: Notice | str) -> None:
    """Say what the user should know before it hurts."""
    print(f"warning: {line}", file=sys.stderr)


def _warn_of_samplers(spec: SweepSpec) -> None:
    """What lacks here lacks in workers, most often, which make the sets."""
    if lacks := late.lacks(spec):
        warn(f"{lacks}; it is not installed here, and workers need it")
    elif lacks := late.is_unaided(spec):
        warn(f"{lacks}; it is not installed here, and workers may want it")


def _size(sweep: Sweep) -> str:
    counts = sweep.counts
    if counts.is_open_ended:
        return f"open-ended, {trials_of(counts.total)} so far"
    return trials_of(int(counts.planned))


def _queued(sweep: Sweep, count: int, reused: int) -> str:
    """What was enqueued; where sets are made while the sweep runs, by whom."""
    if sweep.reached:
        return f"nothing to train; {target_words(sweep)}"
    if not sweep.sampler:
        return f"{trials_of(count - reused)} queued"
    if sweep.counts.is_open_ended:
        return f"open-ended, sets by {sweep.sampler} as workers ask; `hpq stop {sweep.id}` ends it"
    left = trials_of(int(sweep.counts.planned) - reused)
    return f"{left}, sets by {sweep.sampler} as workers ask"


def _where(session: Session, sweep: Sweep) -> str:
    """Where the user's code runs; "" for what is installed where workers are."""
    if not sweep.launch.bundled:
        return f"in {sweep.launch.code_dir}" if sweep.launch.code_dir else ""
    files = len(session.view.manifest(sweep.launch.code))
    packed = len(session.view.bundle(sweep.bundle) or b"")
    return f"from the code sent: {files} file{'' if files == 1 else 's'}, {size(packed)} packed"


def _say_whose(session: Session, sweep: Sweep, name: str | None) -> None:
    """Say what may surprise of a sweep that was there: another's, or of another name."""
    if sweep.owner != session.settings.user:
        print(f"{sweep.id} is {clean(sweep.owner)}'s sweep", file=sys.stderr)
    if name is not None and name != sweep.name:
        print(
            f"its name is {clean(sweep.name)}: the name is not part of what a sweep is;"
            f" --new makes another one, {clean(name)}",
            file=sys.stderr,
        )


def _say_there(sweep: Sweep, reuse: bool) -> None:
    """Say that nothing was done, and what makes another sweep."""
    remedy = "--new makes another sweep of them"
    if reuse:
        remedy = "--new --reuse begins another one with the older results"
    print(
        f"{sweep.id}: the same file, seed and code are there ({sweep.state},"
        f" {_size(sweep)}); nothing was added. {remedy}",
        file=sys.stderr,
    )


def say(
    session: Session,
    done: Enqueued,
    *,
    as_json: bool,
    is_run: bool = False,
    name: str | None = None,
    reuse: bool = False,
) -> None:
    """Say what was enqueued: data on stdout, the rest on stderr."""
    sweep = session.view.sweep(done.sid)
    if as_json:
        fact = {"sweep": done.sid, "new": done.is_new, "trials": done.trials, "state": sweep.state}
        print(jsonlib.dumps({**fact, "reused": done.reused}))
        return
    if done.is_new:
        print(f"{done.sid}: {_queued(sweep, done.trials, done.reused)}", file=sys.stderr)
        for note in done.notes:
            print(note, file=sys.stderr)
        if sweep.metric is None:
            print(_NO_METRIC, file=sys.stderr)
        if not is_run:  # which has a store of its own
            say_if_not_kept(session, sweep)
        if where := _where(session, sweep):
            print(f"runs {sweep.launch.what} {where}", file=sys.stderr)
    elif is_run:
        _say_whose(session, sweep, name)
        counts = sweep.counts
        left = "open-ended"
        if not counts.is_open_ended:
            left = f"{int(counts.planned) - counts.ended} of {trials_of(int(counts.planned))} left"
        print(f"{done.sid}: goes on, {left}", file=sys.stderr)
    else:
        _say_there(sweep, reuse)
        _say_whose(session, sweep, name)
    if is_run:
        return
    say_if_not_taken(session, done.sid, code_is_read=True)
    print(done.sid)
