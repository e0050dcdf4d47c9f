"""`hpq get`."""

from __future__ import annotations

import posixpath
from itertools import count
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from hpq.connection.credentials import redact
from hpq.domain.trial import Artifacts, TrialId, TrialView
from hpq.errors import NotFound, OutOfReach, UserError
from hpq.filestore.base import Gone, Readable, UnreadableFile, copy_out, is_safe_name
from hpq.filestore.local import location, open_files
from hpq.shell import shell_hint
from hpq_producer.connection_record import ConnectionRecord, kubectl_command
from hpq_producer.diagnosis.notices import POD_STORE
from hpq_producer.reports.show import artifact_lines
from hpq_producer.session import Session, open_session
from hpq_producer.targets import find_target
from hpq_producer.terminal.console import print_message, progress_bar, show_lines
from hpq_producer.terminal.text import clean

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
        str | None, Argument(metavar="FILE", help="Name of the file. Default: list the files.")
    ] = None,
    out: Annotated[
        Path | None,
        Option(help="File or directory to write. Default: the file's name, here."),
    ] = None,
    force: Annotated[bool, Option(help="Overwrite an existing file.")] = False,
) -> None:
    """Download a trial's file, or list its files.

    Examples:
      hpq get digits-3f2a1/7
      hpq get best model.pt --out best.pt
    """
    with open_session() as session:
        trial = _trial(session, what)
        left = trial.artifacts
        if left is None:
            in_cluster = session.connection is not None
            why = _why_none(trial, in_cluster)
            raise NotFound(f"{trial.id} has no files: {why}", code="no-files")
        if name is None:
            return show_lines(artifact_lines(trial))
        if name not in left.files or not is_safe_name(name):
            some = ", ".join(clean(one) for one in sorted(left.files)[:10])
            text = f"{trial.id} has no file {clean(name)!r}; its files: {some}"
            raise NotFound(text, code="no-files")
        path = _target(name, out, force)
        _copy(session, left, name, path)
    print_message(f"{trial.id}: {clean(name)} downloaded to {path}")


def _trial(session: Session, what: str) -> TrialView:
    reader, owner = session.reader, session.settings.user
    found = find_target(reader, None if what == "best" else what, owner)
    if isinstance(found, TrialId):
        return reader.trials.get(found)
    sweep = reader.sweeps.get(found)
    best = reader.trials.best(sweep, 1)
    if not best:
        text = f"{found} has no best trial yet; name a trial: `hpq get {found}/1`"
        raise NotFound(text, code="no-result")
    return best[0]


def _why_none(trial: TrialView, in_cluster: bool) -> str:
    if not trial.state.is_terminal:
        return f"it is {trial.state}; files are stored when a trial ends"
    if trial.gone == "keep":
        return "the sweep's `keep` rule deleted them; `hpq show SWEEP` prints the rule"
    lines = "its worker had no HPQ_STORE or could not copy them; `hpq logs` prints their folder"
    gives = f"; pods need a store: {POD_STORE}" if in_cluster else ""
    return f"the trial saved none, or {lines}{gives}"


def _target(name: str, out: Path | None, force: bool) -> Path:
    path = out if out is not None else Path(posixpath.basename(name))
    if path.is_dir():
        path = path / posixpath.basename(name)
    if path.exists() and not force:
        text = f"{path} exists; choose another file with -o, or overwrite it with --force"
        raise UserError(text, code="file-exists")
    return path


def _copy(session: Session, left: Artifacts, name: str, path: Path) -> None:
    files, where = _source(session, left, name, path)
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
        text = f"cannot copy {clean(name)} to {path}: {error}"
        raise UserError(text, code="file-unwritable") from None


def _source(session: Session, left: Artifacts, name: str, path: Path) -> tuple[Readable, str]:
    """Return the store that has the file, and its description."""
    place, where = location(session.settings), f"{clean(name)} is in store {clean(left.store)}"
    if session.connection and not session.settings.store:
        line = _copy_command(session.connection, f"{left.path}/{name}", str(path))
        text = f"{where}, which only pods mount; with the right pods/exec, run: {line}"
        raise UserError(text, code="store-differs")
    try:
        files = open_files(place, creates=False)
    except OSError as error:
        text = (
            f"cannot open the store {redact(place)}: {error}; mount it, or set HPQ_STORE to the"
            " workers' value"
        )
        raise OutOfReach(text, code="store-unusable") from None
    if files.id == left.store:
        return files, f"store {files.id} ({redact(place)})"
    raise UserError(
        f"{where}, but {redact(place)} is store {files.id}; set HPQ_STORE to the workers' value",
        code="store-differs",
    )


def _copy_command(connection: ConnectionRecord, kept: str, path: str) -> str:
    """Return the kubectl command that copies a file out of the volume of a worker's pod."""
    read = f'cat "$HPQ_STORE"{shell_hint([f"/{kept}"])}'
    words = shell_hint(["exec", "deploy/hpq-worker", "--", "sh", "-c", read])
    kubectl = kubectl_command(connection.context, connection.namespace)
    return f"{kubectl} {words} > {shell_hint([path])}"
