"""Delete sweeps, with their files in the store in reach."""

from __future__ import annotations

from collections.abc import Iterator

from hpq.access.session import Session
from hpq.domain import durations
from hpq.domain.sweep import SweepView
from hpq.errors import SettingsError, UserError
from hpq.filestore.stores import location
from hpq.notice import Notice
from hpq.redis.credentials import redact
from hpq.store.file_garbage import FileGarbage
from hpq_producer.actions.steer import control_of
from hpq_views.stored_files import store_here
from hpq_views.text.text import clean


def remove(
    session: Session, sid: str, *, keep_files: bool, files: str = "", last_event: str = ""
) -> Iterator[str | Notice]:
    """Delete a sweep, and yield lines for the user; `files` says what goes with it.

    Raises as `SweepControl.remove`.
    """
    stores = control_of(session).remove(sid, keep_files=keep_files, last_event=last_event)
    yield f"{sid}: deleted{files}"
    if keep_files:
        for store in stores:
            where = f"store {clean(store)}, at {session.settings.prefix}/{sid}"
            yield f"{sid}: its files remain in {where}"
        return
    removed_from = ""
    try:
        removed_from = _remove_files(session, sid)
    except (OSError, SettingsError) as error:
        place = redact(location(session.settings))
        yield Notice("store-unusable", f"{sid}: its files may remain in {place}: {error}")
    for store in sorted(set(stores) - {removed_from}):
        yield (
            f"{sid}: its files in store {clean(store)} remain until a worker with that"
            " HPQ_STORE deletes them"
        )


def remove_archived(session: Session, sid: str, last_event: str) -> None:
    """Delete a sweep that a file holds, and keep its files. Raises as `SweepControl.remove`."""
    control_of(session).remove(sid, keep_files=True, last_event=last_event)


def finish_removals(session: Session) -> None:
    """Delete the rest of sweeps whose removal was interrupted."""
    control_of(session).finish_removals()


def is_being_removed(session: Session, sid: str) -> bool:
    """Return whether the removal of a sweep was interrupted, or is under way."""
    return sid in control_of(session).pending_removals()


def ended_sweeps(session: Session, older: str, force: bool) -> list[tuple[SweepView, str]]:
    """Return this user's sweeps that ended more than an age ago, or with `force` all users'.

    Each comes with the id of its last event. The first was created first. Removals that were
    interrupted are finished.

    Raises:
        UserError: `older` is no duration.
    """
    from hpq.yamlfile.yaml_reader import resolve  # noqa: PLC0415  few commands need it

    try:
        age_s = durations.seconds(resolve(older))
    except ValueError:
        raise UserError(f"--older {older}: write a duration such as 12h or 7d") from None
    finish_removals(session)
    found = session.reader.sweeps.ended(1000 * age_s)
    return [
        (one, last_event)
        for one, last_event in found
        if force or one.owner == session.settings.user
    ]


def _remove_files(session: Session, sid: str) -> str:
    """Delete the sweep's files from the store in reach; return the store's id, "" if none."""
    files = store_here(session)
    if files is None:
        return ""
    FileGarbage(session.context).remove_of_sweep(files, sid)
    return files.id
