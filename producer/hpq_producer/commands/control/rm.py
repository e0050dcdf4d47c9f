"""`hpq rm`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from hpq.connection.credentials import redact
from hpq.errors import DecodeError, SettingsError, UserError
from hpq.filestore.local import location
from hpq.notice import Notice
from hpq.store.archive import due_sweeps
from hpq.store.file_garbage import FileGarbage
from hpq_producer import durations
from hpq_producer.commands.control.control import Yes, open_to_end
from hpq_producer.session import Session, open_session
from hpq_producer.stored_files import files_of, store_here
from hpq_producer.sweepfile.yaml_reader import resolve
from hpq_producer.targets import SweepRef, check_owner, confirm
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.text import clean, trials_of

Anyway = Annotated[
    bool, Option("--force", help="Delete another user's sweep, or one with running trials.")
]


def rm(
    sweep: SweepRef = None,
    keep_files: Annotated[
        bool, Option("--keep-files", help="Keep its checkpoints and artifacts in the store.")
    ] = False,
    older: Annotated[
        str | None,
        Option(metavar="AGE", help="Delete your sweeps that ended more than AGE ago: 7d; 0: all."),
    ] = None,
    yes: Yes = False,
    force: Anyway = False,
) -> None:
    """Delete a sweep, or all ended sweeps, with results, checkpoints and artifacts.

    --older never deletes a sweep with trials that run or wait. Add --force for the sweeps of
    other users.

    Examples:
      hpq rm digits-3f2a1 --keep-files --yes
      hpq rm --older 7d
    """
    if older is not None:
        if sweep is not None:
            raise UserError("--older chooses the sweeps; remove the id")
        return _remove_over(_age_s(older), keep_files, yes, force)
    if sweep is not None and (
        _finish_removal(sweep, keep_files) or _remove_moved(sweep, keep_files, yes, force)
    ):
        return
    with open_to_end(sweep, "delete", force) as (session, found):
        if found.counts.running and not force:
            text = (
                f"{found.id} has running trials; run `hpq cancel {found.id}` first, or add --force"
            )
            raise UserError(text, code="trials-running")
        kept = files_of(session, found.id)
        files = "" if keep_files or not kept.trials else f", and {kept}"
        confirm(
            f"Delete {found.id} with the results of {trials_of(found.counts.ended)}{files}?", yes
        )
        _remove(session, found.id, keep_files, files)


def _age_s(text: str) -> float:
    """Parse the age of --older into seconds.

    Raises:
        UserError: it is no duration.
    """
    try:
        return durations.seconds(resolve(text))
    except ValueError:
        raise UserError(f"--older {text}: write a duration such as 12h or 7d") from None


def _remove_over(age_s: float, keep_files: bool, yes: bool, force: bool) -> None:
    """Delete the sweeps that are over and had no event for `age_s` seconds, nor were restored."""
    with open_session() as session:
        chosen = [
            one
            for one, _ in due_sweeps(session.context(), age_s * 1000)
            if force or one.owner == session.settings.user
        ]
        if not chosen:
            return print_message("none of your sweeps was over then; `hpq ls --all` lists all")
        for one in chosen:
            print_message(f"  {one.id}: {one.state}, {trials_of(one.counts.ended)}")
        files = "" if keep_files else ", and their checkpoints and artifacts"
        confirm(f"Delete {trials_of(len(chosen), 'sweep')}{files}?", yes)
        for one in chosen:
            if session.reader.sweeps.get(one.id).state.is_over:  # not retried while hpq asked
                _remove(session, one.id, keep_files, "")


def _finish_removal(sid: str, keep_files: bool) -> bool:
    with open_session() as session:
        pending = session.control().pending_removals()
        if sid not in pending or session.reader.sweeps.moved(sid):  # that one's files stay
            return False
        _remove(session, sid, keep_files, "")
        return True


def _remove_moved(ref: str, keep_files: bool, yes: bool, force: bool) -> bool:
    """Delete a moved sweep; false if it is none."""
    with open_session() as session:
        sweeps = session.reader.sweeps
        sid = sweeps.resolve(ref, session.settings.user)
        try:
            moved = sweeps.moved(sid)
            if moved is None:
                return False
            check_owner(session, moved.view, force)
        except DecodeError as error:
            if not force:
                raise UserError(f"{error}; add --force to delete it", code=error.code) from None
        confirm(f"Delete {sid} with its archive, checkpoints and artifacts?", yes)
        _remove(session, sid, keep_files, "")
        return True


def _remove(session: Session, sid: str, keep_files: bool, files: str) -> None:
    stores = session.control().remove(sid, keep_files=keep_files)
    print_message(f"{sid}: deleted{files}")
    if keep_files:
        for store in stores:
            where = f"store {clean(store)}, at {session.settings.prefix}/{sid}"
            print_message(f"{sid}: its files remain in {where}")
        return
    removed_from = _remove_files(session, sid)
    for store in sorted(set(stores) - {removed_from}):
        print_message(
            f"{sid}: its files in store {clean(store)} remain until a worker with that"
            " HPQ_STORE deletes them"
        )


def _remove_files(session: Session, sid: str) -> str:
    """Delete the sweep's files from the store in reach; return the store's id, "" if none."""
    place = location(session.settings)
    try:
        files = store_here(session)
        if files is None:
            return ""
        FileGarbage(session.context()).remove_of_sweep(files, sid)
    except (OSError, SettingsError) as error:
        text = f"{sid}: its files may remain in {redact(place)}: {error}"
        print_message(Notice("store-unusable", text))
        return ""
    return files.id
