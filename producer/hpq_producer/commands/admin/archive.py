"""`hpq archive`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

from typer import Argument, Exit, Option

from hpq.archive.format import Header
from hpq.archive.restore import restore
from hpq.archive.write import put, write
from hpq.domain.status import MovedSweep
from hpq.errors import ExitCode, HpqError, NotFound, UserError, writing
from hpq_producer.capacity import check_capacity
from hpq_producer.commands.common_flags import Output
from hpq_producer.moved_sweeps import fetch
from hpq_producer.session import Session, open_session
from hpq_producer.stored_files import files_of
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.output import Format, show_data
from hpq_producer.terminal.text import WHY_THINNED, size, trials_of


def archive(
    sweep: Annotated[str | None, Argument(help="Id of a sweep, or its first characters.")] = None,
    file: Annotated[Path | None, Argument(help="File to write.")] = None,
    restored: Annotated[
        Path | None,
        Option(
            "--restore",
            metavar="FILE",
            help="Restore the sweep of this file, or a moved sweep by its id.",
        ),
    ] = None,
    backup: Annotated[
        Path | None,
        Option("--all", metavar="DIR", help="Write each sweep to DIR; replace older files."),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Write a sweep to one file, or restore it: parameters, events, results, curves and logs.

    The file has no checkpoints or artifacts; they stay in the store. The sweep stays in Redis:
    afterwards `hpq rm --keep-files` deletes only the sweep, `hpq rm` also its stored files.
    The archive of a moved sweep is copied from the file store. --all omits sweeps with running
    trials, and archives that cannot be read; the exit code is then 1.

    Examples:
      hpq archive digits-3f2a1 digits.hpq
      hpq archive --restore digits.hpq
      hpq archive --all /backups/hpq
    """
    if [restored, backup, sweep].count(None) != 2 or (sweep is None) != (file is None):
        raise UserError(
            "a sweep and a file are required: hpq archive SWEEP FILE; or --all DIR, or --restore"
            " FILE, without other arguments"
        )
    facts: list[dict[str, Any]] = []
    lines: list[str] = []
    more: list[str] = []
    omitted: list[str] = []
    with open_session() as session:
        if restored is not None:
            done = _restore(session, restored)
            facts.append(_fact(done, restored))
            lines.append(f"{done.sweep}: {trials_of(done.trials)} restored from {restored}")
        for sid, path in _chosen(session, sweep, file, backup):
            try:
                done = _write(session, sid, path, replaces=backup is not None)
            except HpqError as error:
                if backup is None or error.code == "file-unwritable":
                    raise
                omitted.append(f"{sid} is omitted: {error.notice}")
                continue
            facts.append(_fact(done, path))
            taken = size(path.stat().st_size)
            lines.append(f"{sid}: {trials_of(done.trials)} written to {path} ({taken})")
            more += _not_in_it(session, sid, done)
    if output.is_data:
        facts = [fact | {"restored": restored is not None} for fact in facts]
        show_data(facts if backup is not None else facts[0], output)
        lines = []
    for line in (*lines, *more, *omitted):
        print_message(line)
    if omitted:
        raise Exit(int(ExitCode.SOME_FAILED))


def _fact(done: Header, path: Path) -> dict[str, Any]:
    return {"sweep": done.sweep, "trials": done.trials, "file": str(path)}


def _chosen(
    session: Session, sweep: str | None, file: Path | None, backup: Path | None
) -> Iterator[tuple[str, Path]]:
    """Yield each sweep to write, and its file."""
    if file is not None:
        yield session.reader.sweeps.resolve(sweep, session.settings.user), file
    if backup is not None:
        with writing(backup):
            backup.mkdir(parents=True, exist_ok=True)
        moved = session.reader.sweeps.all_moved()
        old = [one.view.id if isinstance(one, MovedSweep) else one.id for one in moved]
        for sid in (*session.reader.sweeps.ids(), *old):
            yield sid, backup / f"{sid}.hpq"


def _write(session: Session, sid: str, path: Path, *, replaces: bool) -> Header:
    """Write a sweep into a file; the file of a moved sweep is a copy of its archive."""
    moved = session.reader.sweeps.moved(sid)
    if moved is None:
        return write(session.context(), sid, path, replaces=replaces)
    with (
        writing(path),
        TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder,
    ):
        put(fetch(session.settings, moved, Path(folder)), path, replaces=replaces)
    return Header(sweep=sid, trials=moved.view.counts.total, schema=moved.view.schema)


def _restore(session: Session, what: Path) -> Header:
    """Restore the sweep of a file, or a moved one."""

    def check(trials: int, weight: int) -> object:
        return check_capacity(session, trials, weight=weight)

    session.control().finish_removals()
    moved = None if what.exists() else _find_moved(session, str(what))
    if moved is None:
        return restore(session.context(), what, check)
    with TemporaryDirectory() as folder:
        return restore(session.context(), fetch(session.settings, moved, Path(folder)), check)


def _find_moved(session: Session, ref: str) -> MovedSweep | None:
    """Return the moved sweep that a reference names; None if it names no sweep."""
    sweeps = session.reader.sweeps
    try:
        sid = sweeps.resolve(ref, session.settings.user)
    except NotFound as error:
        if error.code != "sweep-not-found":
            raise
        return None
    if (moved := sweeps.moved(sid)) is None:
        raise UserError(f"sweep {sid} is in Redis; nothing was restored", code="sweep-exists")
    return moved


def _not_in_it(session: Session, sid: str, done: Header) -> Iterator[str]:
    kept = files_of(session, sid)
    if kept.trials:
        what = f"the files of {trials_of(kept.trials)} are only in {kept.place}"
        yield f"{sid}: {what}; `hpq rm {sid}` deletes them, `hpq rm --keep-files {sid}` does not"
    if done.thinned:
        what = "the logs and curves" if done.thinned > 1 else "the log and curves"
        yield f"{sid}: {what} of {trials_of(done.thinned)} are not in the file: {WHY_THINNED}"
