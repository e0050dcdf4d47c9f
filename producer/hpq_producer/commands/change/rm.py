"""`hpq rm`."""

from __future__ import annotations

from typing import Annotated

from typer import Option

from hpq.access.session import Session, open_session
from hpq.errors import DecodeError, HpqError, UserError
from hpq.notice import print_message
from hpq_producer.actions.remove import ended_sweeps, is_being_removed, remove
from hpq_producer.commands.change.steer import Yes, open_to_end
from hpq_producer.commands.common_flags import Output
from hpq_views.stored_files import files_of
from hpq_views.targets import SweepRef, confirm
from hpq_views.text.output import Format, show_data
from hpq_views.text.text import trials_of

_ANYWAY = "Delete another user's sweep, one with running trials, or one that is unreadable."
Anyway = Annotated[bool, Option("--force", help=_ANYWAY)]


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
    output: Output = Format.TABLE,
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
        removed = _remove_ended(older, keep_files, yes, force)
    elif sweep is not None and _finish_removal(sweep, keep_files):
        removed = [sweep]
    else:
        removed = [_remove_one(sweep, keep_files, yes, force)]
    if output.is_data:
        show_data([{"sweep": sid, "removed": True} for sid in removed], output)


def _remove_one(sweep: str | None, keep_files: bool, yes: bool, force: bool) -> str:
    try:
        return _remove_readable(sweep, keep_files, yes, force)
    except DecodeError as error:
        if not force or sweep is None:
            text = f"{error}; `hpq rm --force {sweep or 'SWEEP'}` deletes the sweep"
            raise DecodeError(text) from None
        return _remove_unreadable(sweep, keep_files, yes)


def _remove_readable(sweep: str | None, keep_files: bool, yes: bool, force: bool) -> str:
    with open_to_end(sweep, "rm", force) as (session, found):
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
        return found.id


def _remove_unreadable(ref: str, keep_files: bool, yes: bool) -> str:
    with open_session() as session:
        sid = session.find(ref)
        confirm(f"Delete {sid}, which cannot be read, with its results and files?", yes)
        _remove(session, sid, keep_files, "")
        return sid


def _remove_ended(older: str, keep_files: bool, yes: bool, force: bool) -> list[str]:
    """Delete the sweeps that ended more than an age ago; return their ids."""
    removed = []
    with open_session() as session:
        chosen = ended_sweeps(session, older, force)
        if not chosen:
            print_message("none of your sweeps was over then; `hpq ls --all` lists all")
            return []
        for one, _ in chosen:
            print_message(f"  {one.id}: {one.state}, {trials_of(one.counts.ended)}")
        files = "" if keep_files else ", and their checkpoints and artifacts"
        confirm(f"Delete {trials_of(len(chosen), 'sweep')}{files}?", yes)
        for one, last_event in chosen:
            try:
                _remove(session, one.id, keep_files, "", last_event)
                removed.append(one.id)
            except HpqError as error:
                if error.code != "sweep-changed":  # retried while hpq asked
                    raise
                print_message(error.notice)
    return removed


def _finish_removal(sid: str, keep_files: bool) -> bool:
    with open_session() as session:
        if not is_being_removed(session, sid):
            return False
        _remove(session, sid, keep_files, "")
        return True


def _remove(session: Session, sid: str, keep_files: bool, files: str, last_event: str = "") -> None:
    lines = remove(session, sid, keep_files=keep_files, files=files, last_event=last_event)
    for line in lines:
        print_message(line)
