"""`hpq archive`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Exit, Option

from hpq.access.session import Session, open_session
from hpq.archive.format import Header
from hpq.archive.transfer import read_whole, restore, write
from hpq.error_codes import ExitCode
from hpq.errors import HpqError, UserError, writing
from hpq.notice import print_message
from hpq.store.sweep_copy import copied_from
from hpq_producer.actions.remove import ended_sweeps, finish_removals, remove_archived
from hpq_producer.capacity import check_capacity
from hpq_producer.commands.common_flags import Output
from hpq_views.stored_files import KeptFiles, files_of
from hpq_views.text.output import Format, show_data
from hpq_views.text.text import WHY_THINNED, size, trials_of


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """A sweep to write, and its file.

    With `last_event`, the sweep is then deleted from Redis, unless sweeps in `copied_by` need it.
    """

    sweep: str
    path: Path
    replaces: bool = True  # an older file
    last_event: str = ""
    copied_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Written:
    """A file that was written, and the stored files of its sweep, which it has not."""

    task: _Task
    header: Header
    kept: KeptFiles

    @property
    def sentence(self) -> str:
        """What was done."""
        path = self.task.path
        taken = size(path.stat().st_size)
        then = ", and deleted from Redis" if self.task.last_event else ""
        what = trials_of(self.header.trials)
        return f"{self.task.sweep}: {what} written to {path} ({taken}){then}"


def archive(
    sweep: Annotated[str | None, Argument(help="Id of a sweep, or its first characters.")] = None,
    file: Annotated[Path | None, Argument(help="File to write.")] = None,
    source: Annotated[
        Path | None, Option("--restore", metavar="FILE", help="Restore the sweep of this file.")
    ] = None,
    backup: Annotated[
        Path | None,
        Option("--all", metavar="DIR", help="Write each sweep to DIR; replace older files."),
    ] = None,
    older: Annotated[
        str | None,
        Option(metavar="AGE", help="With --rm: your sweeps that ended more than AGE ago: 30d."),
    ] = None,
    rm: Annotated[
        Path | None,
        Option(
            metavar="DIR",
            help="Write each sweep of --older to DIR, then delete it from Redis.",
        ),
    ] = None,
    force: Annotated[
        bool, Option("--force", help="With --rm: also the sweeps of other users.")
    ] = False,
    output: Output = Format.TABLE,
) -> None:
    """Write a sweep to one file, or restore it: parameters, events, results, curves and logs.

    The sweep must have ended or be paused; `redis-cli --rdb` copies all of Redis at any time.
    The file has no checkpoints or artifacts; they stay in the store. The sweep stays in Redis:
    afterwards `hpq rm --keep-files` deletes only the sweep, `hpq rm` also its stored files.

    --rm reads each file back before it deletes the sweep, and keeps the stored files. A sweep stays
    while trials of another one copy its results (--reuse).

    --all omits sweeps with running trials, and --rm those that must stay; the exit code is then 1.

    Examples:
      hpq archive digits-3f2a1 digits.hpq
      hpq archive --restore digits.hpq
      hpq archive --all /backups/hpq
      hpq archive --older 30d --rm /backups/hpq
    """
    forms = [one for one in (file, source, backup, rm) if one is not None]
    goes_together = (sweep is None) == (file is None) and (older is None) == (rm is None)
    if len(forms) != 1 or not goes_together or (force and rm is None):
        raise UserError(
            "a sweep and a file are required: hpq archive SWEEP FILE; or --all DIR, or --restore"
            " FILE, or --older AGE --rm DIR, without other arguments"
        )
    facts: list[dict[str, Any]] = []
    is_whole = True
    with open_session() as session:
        if source is not None:
            return _print_restored(_restore(session, source), source, output)
        if file is not None:
            task = _Task(sweep=session.find(sweep), path=file, replaces=False)
            fact = _report(_write(session, task), output)
            return show_data(fact, output) if output.is_data else None
        for task in _all(session, backup) if backup else _ended(session, older, rm, force=force):
            try:
                facts.append(_report(_write(session, task), output))
            except HpqError as error:
                if error.code == "file-unwritable":
                    raise
                print_message(f"{task.sweep} is omitted: {error.notice}")
                is_whole = False
    if output.is_data:
        show_data(facts, output)
    elif rm and not facts and is_whole:
        print_message(f"none of your sweeps ended more than {older} ago; `hpq ls --all` lists all")
    if not is_whole:
        raise Exit(int(ExitCode.SOME_FAILED))


def _all(session: Session, folder: Path) -> Iterator[_Task]:
    """Yield every sweep, to write it into a folder."""
    _make(folder)
    for sid in session.reader.sweeps.ids():
        yield _Task(sweep=sid, path=folder / f"{sid}.hpq")


def _ended(
    session: Session, older: str | None, folder: Path | None, *, force: bool
) -> Iterator[_Task]:
    """Yield the sweeps that ended more than an age ago, the newest first."""
    assert older is not None and folder is not None
    reader = session.reader
    found = ended_sweeps(session, older, force)
    copies = defaultdict[str, list[str]](list)
    _make(folder)
    for sid in reader.sweeps.ids() if found else ():
        for origin in copied_from(session.context, sid):
            copies[origin].append(sid)
    for sweep, last_event in reversed(found):  # a sweep that copies is deleted before its origin
        yield _Task(
            sweep=sweep.id,
            path=folder / f"{sweep.id}.hpq",
            last_event=last_event,
            copied_by=tuple(filter(reader.sweeps.exists, copies[sweep.id])),
        )


def _make(folder: Path) -> None:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)


def _write(session: Session, task: _Task) -> _Written:
    """Write a sweep into its file, and delete it if the task says so.

    Raises:
        UserError: the sweep cannot be archived, or must stay; nothing was deleted.
    """
    if task.copied_by:
        text = f"trials of {', '.join(task.copied_by[:5])} copy its results (--reuse); archive or"
        raise UserError(f"{text} delete that sweep first", code="sweep-reused")
    kept = files_of(session, task.sweep)
    header = write(session.context, task.sweep, task.path, replaces=task.replaces)
    if task.last_event:
        read_whole(task.path)
        remove_archived(session, task.sweep, task.last_event)
    return _Written(task=task, header=header, kept=kept)


def _restore(session: Session, source: Path) -> Header:
    """Restore the sweep of a file."""

    def check(trials: int, weight: int) -> object:
        return check_capacity(session.reader.server_memory(), trials, weight=weight)

    finish_removals(session)
    return restore(session.context, source, check)


def _record(header: Header, path: Path, *, is_restored: bool) -> dict[str, Any]:
    return {
        "sweep": header.sweep,
        "trials": header.trials,
        "file": str(path),
        "restored": is_restored,
    }


def _print_restored(header: Header, source: Path, output: Format) -> None:
    if output.is_data:
        return show_data(_record(header, source, is_restored=True), output)
    print_message(f"{header.sweep}: {trials_of(header.trials)} restored from {source}")


def _report(done: _Written, output: Format) -> dict[str, Any]:
    """Print what was done, and what the file does not have; return the record of -o json."""
    if not output.is_data:
        print_message(done.sentence)
    for line in _not_in_it(done):
        print_message(line)
    return _record(done.header, done.task.path, is_restored=False)


def _not_in_it(done: _Written) -> Iterator[str]:
    sid = done.task.sweep
    kept = done.kept
    thinned = done.header.thinned
    if kept.trials and done.task.last_event:
        yield f"{sid}: the files of {trials_of(kept.trials)} remain in {kept.place}"
    elif kept.trials:
        what = f"the files of {trials_of(kept.trials)} are only in {kept.place}"
        yield f"{sid}: {what}; `hpq rm {sid}` deletes them, `hpq rm --keep-files {sid}` does not"
    if thinned:
        what = "the logs and curves" if thinned > 1 else "the log and curves"
        yield f"{sid}: {what} of {trials_of(thinned)} are not in the file: {WHY_THINNED}"
