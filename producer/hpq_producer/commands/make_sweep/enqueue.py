"""`hpq enqueue`, and what `hpq run` shares with it.

A new option of enqueue, run and plan is a field of EnqueueOptions (enqueue_options.py).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hpq.access.session import Session, open_session
from hpq.code.command import interpreter, is_in_users_directory
from hpq.code.editable import editable_installs
from hpq.domain.sweep import Launch, SweepState, SweepView
from hpq.notice import Notice, print_message, warn
from hpq_producer.actions.set_limits import check_tags
from hpq_producer.commands.common_flags import Output
from hpq_producer.commands.make_sweep.enqueue_options import EnqueueOptions, enqueue_options
from hpq_producer.enqueue.code_discovery import DiscoveredCode
from hpq_producer.enqueue.enqueue_sweep import Enqueued, enqueue_sweep
from hpq_producer.enqueue.prepare import PreparedSweep, missing_samplers
from hpq_views.analysis.early_termination import describe_target
from hpq_views.analysis.output_records import state_word
from hpq_views.text.console import progress_bar
from hpq_views.text.output import Format, show_data
from hpq_views.text.text import clean, first_of, size, trials_of
from hpq_views.why.waiting import explain_no_start
from hpq_views.why.warn import print_if_no_store

_NO_METRIC = (
    "the file has no metric, so hpq cannot rank the trials; add metric: {name: val_loss,"
    " goal: minimize}, and print val_loss=0.3 or call hpq.report({...}) in each trial"
)


@enqueue_options()
def enqueue(options: EnqueueOptions, output: Output = Format.TABLE) -> None:
    """Queue the trials of a sweep file and print the sweep's id.

    Examples:
      hpq enqueue sweep.yaml
      hpq enqueue sweep.yaml --count 20
    """
    prepared = options.prepare()
    for warning in prepared.warnings:
        warn(warning)
    with open_session() as session:
        if session.connection is None:  # the image of pods has other packages
            _warn_of_samplers(prepared)
        done = enqueue_prepared(session, prepared, options)
        _report(session, done, prepared, options, output)


def enqueue_prepared(
    session: Session, prepared: PreparedSweep, options: EnqueueOptions
) -> Enqueued:
    """Enqueue a sweep unless an identical one exists.

    Raises:
        UserError: the file is not filled in.
        OutOfReach: the server has no room for the trials.
    """
    with progress_bar(prepared.spec.trials, "writing trials") as progress:
        return enqueue_sweep(
            session,
            prepared,
            allow_duplicate=options.new,
            tags=check_tags(options.tags or ()),
            reuse=options.reused_sweeps,
            progress=progress,
            warn=warn,
        )


def _warn_of_samplers(prepared: PreparedSweep) -> None:
    """Warn if the sampler is not installed here: workers most often have the same packages."""
    needs, could_use = missing_samplers(prepared)
    if needs:
        warn(f"{needs}; this machine lacks it, and workers need it")
    elif could_use:
        warn(f"{could_use}; this machine lacks it, and workers can use it")


def _size(sweep: SweepView) -> str:
    counts = sweep.counts
    if counts.is_open_ended:
        return f"no trial limit, {trials_of(counts.total)} so far"
    return trials_of(int(counts.progress[1]))


def _queued(sweep: SweepView, count: int, reused: int) -> str:
    """Describe the queued trials; name the sampler that generates later ones."""
    if sweep.reached:
        return f"nothing to train; {describe_target(sweep)}"
    if not sweep.sampler:
        return f"{trials_of(count - reused)} queued"
    if sweep.counts.is_open_ended:
        return f"no trial limit; {sweep.sampler} search until `hpq stop {sweep.id}`"
    left = trials_of(int(sweep.counts.progress[1]) - reused)
    return f"{left}, chosen by {sweep.method} search while the sweep runs"


def describe_snapshot(code: DiscoveredCode) -> list[str]:
    """Describe the snapshot that a sweep runs; [] for live code and installed trainers."""
    if code.files is None or not code.launch.bundled:
        return []
    count, total = len(code.files), sum(len(content) for content, _ in code.files.values())
    text = f"snapshot: {trials_of(count, 'file')}, {size(total)}"
    lines = [text if code.is_sent else f"{text}; over 10 MiB, so it stays on this machine"]
    if code.note:
        lines.append(f"{code.note}; its other files run as they are on this machine")
    if names := code.left_out:
        lines.append(f"not in the snapshot: {first_of(names)}")
    return lines


def describe_place(launch: Launch) -> str:
    """Describe where trials run on this machine, to follow the name of what runs."""
    if launch.is_function:
        return " of the process that calls hpq.agent or wandb.agent"
    if not launch.code_dir:
        return " from a snapshot of the code" if launch.bundled else f" ({launch.code})"
    is_copy = launch.is_frozen and not is_in_users_directory(launch)
    return f" in {'a copy of ' if is_copy else ''}{launch.code_dir}"


def _not_frozen(session: Session, sweep: SweepView) -> list[str]:
    """Return the editable installs outside a sweep's snapshot: trials run their live code."""
    trainer, python = sweep.launch.trainer, session.settings.python
    found = editable_installs(sys.executable if trainer else interpreter(os.environ, python))
    folders = {*found.paths, *(str(Path(path).parent) for path in found.packages.values())}
    return sorted(f for f in folders if not Path(f).is_relative_to(sweep.launch.root))


def print_owner_and_name(session: Session, sweep: SweepView, name: str) -> None:
    """Print if an existing sweep has another owner or another name."""
    if sweep.owner != session.settings.user:
        print_message(f"{sweep.id} belongs to {clean(sweep.owner)}")
    if name != sweep.name:
        print_message(
            f"its name stays {clean(sweep.name)}: renaming does not create a new sweep;"
            f" --new creates {clean(name)}"
        )


def _print_existing(sweep: SweepView, why: Notice | None, reuse: bool) -> None:
    """Print that an identical sweep exists, and which option creates another."""
    remedy = "--new starts another copy"
    if reuse:
        remedy = "--new --reuse starts another copy with the older results"
    print_message(
        f"this sweep exists: {sweep.id} ({state_word(sweep, why)}, {_size(sweep)}) has the"
        f" same file, seed and code; nothing added. {remedy}"
    )


def print_enqueued(
    session: Session, done: Enqueued, sweep: SweepView, prepared: PreparedSweep
) -> None:
    """Print on stderr what was enqueued."""
    print_message(f"{sweep.id}: {_queued(sweep, done.trials, done.reused)}")
    for note in done.notes:
        print_message(note)
    if sweep.metric is None:
        print_message(_NO_METRIC)
    for line in describe_snapshot(prepared.code):
        print_message(line)
    if sweep.launch.is_frozen:
        for folder in _not_frozen(session, sweep):
            print_message(f"not in the snapshot: {folder}, an editable install")
    if sweep.launch.code_dir:
        print_message(f"runs {sweep.launch.what}{describe_place(sweep.launch)}")


def _report(
    session: Session,
    done: Enqueued,
    prepared: PreparedSweep,
    options: EnqueueOptions,
    output: Format,
) -> None:
    """Print what was enqueued: data on stdout, the rest on stderr."""
    status = session.reader.status(done.sid, rows=0, top=0, recent=0)
    sweep, why = status.sweep, explain_no_start(status, session)
    if output.is_data:
        return show_data(enqueued_record(done, sweep, why), output)
    if done.is_new:
        print_enqueued(session, done, sweep, prepared)
        print_if_no_store(session, status)
    else:
        _print_existing(sweep, why, options.reuse)
        print_owner_and_name(session, sweep, prepared.spec.name)
    if sweep.state in (SweepState.PAUSED, SweepState.HELD):
        print_message(f"{sweep.id} is {sweep.state}; `{sweep.resumed_by}` continues it")
    elif why:
        print_message(why)
    print(sweep.id)


def enqueued_record(done: Enqueued, sweep: SweepView, why: Notice | None) -> dict[str, object]:
    """Return what was enqueued as data; `planned` counts trials that are suggested later, too."""
    counts = {"new": done.is_new, "trials": done.trials, "reused": done.reused}
    planned = None if sweep.counts.is_open_ended else int(sweep.counts.progress[1])
    return {"sweep": sweep.id, **counts, "planned": planned, "state": state_word(sweep, why)}
