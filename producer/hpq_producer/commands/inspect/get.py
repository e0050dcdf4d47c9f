"""`hpq get`."""

from __future__ import annotations

import posixpath
from itertools import count
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq.access.session import Session, open_session
from hpq.domain.trial import Artifacts, TrialId, TrialView
from hpq.errors import NotFound, UserError
from hpq.filestore.base import Gone, UnreadableFile, copy_out
from hpq.notice import print_message
from hpq_views.command_output.show import artifact_lines
from hpq_views.stored_files import (
    has_file,
    holder_of,
    shared_file,
    store_of,
    why_no_files,
)
from hpq_views.targets import find_target
from hpq_views.text.console import progress_bar, show_lines
from hpq_views.text.text import clean

_MIB = 20  # bits; a store is read in chunks of one


def get(
    what: Annotated[
        str,
        Argument(
            metavar="TRIAL",
            help="SWEEP/7; SWEEP: its best trial; best: the best trial of your last sweep.",
        ),
    ],
    name: Annotated[
        str | None,
        Argument(metavar="FILE", help="Path or unique base name. Default: list the files."),
    ] = None,
    out: Annotated[
        Path | None,
        Option(help="File or directory to write. Default: the file's name, here."),
    ] = None,
    force: Annotated[bool, Option(help="Overwrite an existing file.")] = False,
) -> None:
    """Download a trial's file, or list its files: what it wrote to the directory in HPQ_OUT.

    Examples:
      hpq get digits-3f2a1/7
      hpq get best model.pt --out best.pt
    """
    with open_session() as session:
        asked = _trial(session, what)
        trial = holder_of(session.reader, asked)
        if trial.id != asked.id:
            print_message(f"{asked.id} is a copy of the result of {trial.id}, which has the files")
        left, sweep = trial.artifacts, session.reader.sweeps.get(trial.id.sweep)
        if left is None:
            in_cluster = session.connection is not None
            why = why_no_files(trial, in_cluster)
            text = f"{trial.id} has no files: {why}{shared_file(sweep, name)}"
            raise NotFound(text, code="files-not-stored" if trial.unstored else "no-files")
        if name is None:
            return show_lines(artifact_lines(trial))
        if not has_file(left, name):
            copies = [one for one in sorted(left.files) if posixpath.basename(one) == name]
            if len(copies) != 1 or not has_file(left, copies[0]):
                some = ", ".join(map(clean, copies or sorted(left.files)[:10]))
                some += (
                    "" if copies or len(left.files) <= 10 else f" and {len(left.files) - 10} more"
                )
                hint = f"did you mean one of {some}" if copies else f"its files: {some}"
                hint += "" if copies else shared_file(sweep, name)
                text = f"{trial.id} has no file {clean(name)!r}; {hint}"
                raise NotFound(text, code="no-files")
            name = copies[0]
        path = _target(name, out, force)
        _copy(session, trial.id, left, name, path)
    print_message(f"{trial.id}: {clean(name)} downloaded to {path}")


def _trial(session: Session, what: str) -> TrialView:
    reader, owner = session.reader, session.settings.user
    found = find_target(reader, None if what == "best" else what, owner)
    if isinstance(found, TrialId):
        return reader.trials.get(found)
    sweep = reader.sweeps.get(found)
    if sweep.objectives:
        text = f"{found} has several metrics, so no trial is best; name one of hpq best {found}"
        raise UserError(f"{text}: hpq get {found}/1 FILE", code="metrics-several")
    best = reader.ranking.best(sweep, 1)
    if not best:
        text = f"{found} has no best trial yet; name a trial: `hpq get {found}/1`"
        raise NotFound(text, code="no-result")
    return best[0]


def _target(name: str, out: Path | None, force: bool) -> Path:
    path = out if out is not None else Path(posixpath.basename(name))
    if path.is_dir():
        path = path / posixpath.basename(name)
    if path.exists() and not force:
        text = f"{path} exists; choose another file with --out, or overwrite it with --force"
        raise UserError(text, code="file-exists")
    return path


def _copy(session: Session, trial: TrialId, left: Artifacts, name: str, path: Path) -> None:
    files, where = store_of(session, trial, left, name, path)
    try:
        with progress_bar(left.files[name] >> _MIB, f"{clean(name)}, MiB") as show:
            chunks = count()
            copy_out(files, f"{left.path}/{name}", path, lambda: show(next(chunks)) is None)
    except Gone:
        text = f"{clean(name)} was deleted from {where}"
        raise NotFound(text, code="no-files") from None
    except UnreadableFile as error:
        raise UserError(f"{where}: {clean(str(error))}", code="file-unreadable") from None
    except OSError as error:
        why = error.strerror or error
        text = f"cannot copy {clean(name)} to {path}: {why}; name another file with --out FILE"
        raise UserError(text, code="file-unwritable") from None
