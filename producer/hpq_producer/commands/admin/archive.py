"""`hpq archive`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq.errors import UserError
from hpq_producer.archive.format import Header
from hpq_producer.archive.restore import restore
from hpq_producer.archive.stored_files import files_of
from hpq_producer.archive.write import write
from hpq_producer.commands.common_flags import Output
from hpq_producer.session import Session, open_session
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.output import Format, show_data
from hpq_producer.terminal.text import WHY_THINNED, size, trials_of


def archive(
    sweep: Annotated[str | None, Argument(help="Id of a sweep, or its first characters.")] = None,
    file: Annotated[Path | None, Argument(help="File to write.")] = None,
    restored: Annotated[
        Path | None, Option("--restore", metavar="FILE", help="Restore the sweep of this file.")
    ] = None,
    force: Annotated[bool, Option("--force", help="Overwrite an existing file.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Write a sweep to one file, or restore it: parameters, events, results, curves and logs.

    The file has no checkpoints or artifacts; they stay in the store. The sweep stays in Redis:
    afterwards `hpq rm --keep-files` deletes only the sweep, `hpq rm` also its stored files.

    Examples:
      hpq archive digits-3f2a1 digits.hpq
      hpq archive --restore digits.hpq
    """
    if restored is not None and (sweep or file):
        raise UserError("--restore FILE needs no other argument: the file has the sweep's id")
    if restored is None and (not sweep or not file):
        raise UserError("a sweep and a file are required: hpq archive SWEEP FILE")
    with open_session() as session:
        more: list[str] = []
        if restored is not None:
            path, done = restored, restore(session, restored)
            line = f"{done.sweep}: {trials_of(done.trials)} restored from {path}"
        else:
            assert file is not None
            sid = session.find(sweep)
            path, done = file, write(session, sid, file, force=force)
            taken = size(path.stat().st_size)
            line = f"{sid}: {trials_of(done.trials)} written to {path} ({taken})"
            more = list(_not_in_it(session, sid, done))
    if output.is_data:
        fact = {"sweep": done.sweep, "trials": done.trials, "file": str(path)}
        show_data(fact | {"restored": restored is not None}, output)
    else:
        print_message(line)
    for line in more:
        print_message(line)


def _not_in_it(session: Session, sid: str, done: Header) -> Iterator[str]:
    kept = files_of(session, sid)
    if kept.trials:
        what = f"the files of {trials_of(kept.trials)} are only in {kept.place}"
        yield f"{sid}: {what}; `hpq rm {sid}` deletes them, `hpq rm --keep-files {sid}` does not"
    if done.thinned:
        what = "the logs and curves" if done.thinned > 1 else "the log and curves"
        yield f"{sid}: {what} of {trials_of(done.thinned)} are not in the file: {WHY_THINNED}"
