"""`hpq archive`."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from hpq.connection.credentials import redact
from hpq.errors import UserError
from hpq.filestore.local import location
from hpq_producer.archive.format import Header
from hpq_producer.archive.restore import restore
from hpq_producer.archive.stored_files import FileChecker, files_of, store_here
from hpq_producer.archive.write import write
from hpq_producer.session import Session, open_session
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.text import WHY_THINNED, clean, size, trials_of


def archive(
    sweep: Annotated[str | None, typer.Argument(help="A sweep's id or its beginning.")] = None,
    file: Annotated[Path | None, typer.Argument(help="The file to write.")] = None,
    restored: Annotated[
        Path | None, typer.Option("--restore", help="Bring the sweep of this file back.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """A sweep as one file, and back: parameters, events, results, histories, logs.

    Checkpoints and artifacts are not in it. The sweep stays where it is: `hpq rm --keep-files`
    removes it and leaves them in the store, `hpq rm` deletes them as well.
    """
    if restored is not None and (sweep or file):
        raise UserError("--restore FILE takes the sweep's id from the file; leave the rest out")
    if restored is None and (not sweep or not file):
        raise UserError("write `hpq archive SWEEP FILE`, or `hpq archive --restore FILE`")
    with open_session() as session:
        if restored is not None:
            checker = _file_checker(session)
            path, done = restored, restore(session, restored, checker)
            line = f"{done.sweep}: {trials_of(done.trials)} restored from {path}"
            more = list(_of_files(session, done.sweep, checker))
        else:
            assert file is not None
            sid = session.find(sweep)
            path, done = file, write(session, sid, file, force=force)
            taken = size(path.stat().st_size)
            line = f"{sid}: {trials_of(done.trials)} written to {path} ({taken})"
            more = list(_not_in_it(session, sid, done))
    if as_json:
        fact = {"sweep": done.sweep, "trials": done.trials, "file": str(path)}
        print(jsonlib.dumps(fact | {"restored": restored is not None}))
    else:
        print_message(line)
    for line in more:
        print_message(line)


def _not_in_it(session: Session, sid: str, done: Header) -> Iterator[str]:
    kept = files_of(session, sid)
    if kept.trials:
        what = f"the files of {trials_of(kept.trials)} are in {kept.place} only"
        yield f"{sid}: {what}: `hpq rm {sid}` deletes them, `hpq rm --keep-files {sid}` does not"
    if done.thinned:
        what = "the logs and curves" if done.thinned > 1 else "the log and curves"
        yield f"{sid}: {what} of {trials_of(done.thinned)} are not in it: {WHY_THINNED}"


def _file_checker(session: Session) -> FileChecker:
    """The store of files, if one is at hand."""
    try:
        return FileChecker(store_here(session))
    except OSError as error:
        print_message(f"the store {redact(location(session.settings))}: {error}")
        return FileChecker(None)


def _of_files(session: Session, sid: str, checker: FileChecker) -> Iterator[str]:
    if checker.gone and checker.files:
        yield (
            f"{sid}: the files of {trials_of(checker.gone)} are gone from store {checker.files.id},"
            " so they are not listed any more"
        )
    for store in sorted(checker.unseen):
        yield (
            f"{sid}: store {clean(store)} is not at hand here (HPQ_STORE), so nobody looked"
            " whether its files are still there"
        )
