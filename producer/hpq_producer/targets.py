"""Parse sweeps and trials on the command line: SWEEP/7, #7, or 7 of the user's last sweep.

Also the checks before a change: the sweep's owner, and the user's confirmation.
"""

from __future__ import annotations

import re
import sys
from typing import Annotated

import typer
from redis.exceptions import RedisError

from hpq.connection.client import connect
from hpq.domain.sweep import Sweep
from hpq.domain.trial import TrialId, TrialState
from hpq.errors import Forbidden, HpqError, NotFound, UserError
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader
from hpq_producer.embedded_redis.attach import running_socket
from hpq_producer.session import Session, load_settings

_TRIAL = re.compile(r"(?:(?P<sweep>[a-z0-9-]+)/|#)?(?P<number>[1-9][0-9]*)\Z")


def parse_targets(targets: list[str] | None) -> tuple[str | None, list[int]]:
    """Return the sweep (None: the user's last one) and its trials (none: the sweep itself).

    Raises:
        UserError: the targets belong to several sweeps.
    """
    sweeps: list[str] = []
    numbers: list[int] = []
    for text in targets or []:
        found = _TRIAL.match(text)
        if found is None:
            sweeps.append(text)
            continue
        numbers.append(int(found["number"]))
        if found["sweep"]:
            sweeps.append(found["sweep"])
    distinct = list(dict.fromkeys(sweeps))
    if len(distinct) > 1:
        text = f"{', '.join(distinct)}: name trials of one sweep per command"
        raise UserError(text, code="one-sweep-only")
    return (distinct[0] if distinct else None), numbers


_MAX_RECENT = 200  # ended trials that are searched for a failed one


def find_target(reader: StoreReader, ref: str | None, owner: str) -> str | TrialId:
    """Return the sweep's id or the trial that a reference names (see `parse_targets`).

    Raises:
        NotFound: no sweep matches, or more than one does.
    """
    sweep, numbers = parse_targets([ref] if ref else None)
    sid = reader.sweeps.resolve(sweep, owner)
    return TrialId(sweep=sid, number=numbers[0]) if numbers else sid


def find_trial(reader: StoreReader, ref: str | None, owner: str) -> TrialId:
    """Return the trial that a reference names; of a sweep, a running one, else an ended one.

    Of ended trials, the last that failed, whose log has the error; else the last that ended.

    Raises:
        NotFound: nothing matches, or no trial of the sweep has started.
    """
    found = find_target(reader, ref, owner)
    if isinstance(found, TrialId):
        return found
    shot = reader.snapshot(found, rows=1, top=0, recent=_MAX_RECENT)
    failed = [t for t in shot.recent if t.state is TrialState.FAILED]
    for trial in (*shot.running, *failed, *shot.recent):
        return trial.id
    text = f"no trial of {found} has started; see what it waits for: hpq watch {found}"
    raise NotFound(text, code="trial-not-begun")


def owned_sweep(session: Session, ref: str | None, force: bool) -> Sweep:
    """Return the sweep if this user owns it.

    Raises:
        Forbidden: another user owns it, and `force` is false.
    """
    sweep = session.sweep(ref)
    if sweep.owner != session.settings.user and not force:
        text = f"sweep {sweep.id} belongs to {sweep.owner}; --force allows the change"
        raise Forbidden(text, code="sweep-of-another")
    return sweep


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation, unless `yes`.

    Raises:
        UserError: stdin is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        text = f"{question} stdin is no terminal to answer at; confirm with --yes"
        raise UserError(text, code="confirmation-missing")
    if not typer.confirm(question):
        raise typer.Abort


_COMPLETION_TIMEOUT_S = 0.5
_MAX_COMPLETIONS = 500  # the newest sweeps


def complete_sweep_ids(incomplete: str) -> list[str]:
    """Return ids with this start, newest first; none if Redis is away. Starts no server."""
    try:
        settings = load_settings()
        url = settings.redis_url
        if not url:
            socket = running_socket(settings.home)
            if not socket:
                return []
            url = f"unix://{socket}"
        redis = connect(url, retries=0, timeout_s=_COMPLETION_TIMEOUT_S)
        ids = StoreReader(redis, Keys(settings.prefix), settings.lease_ms).sweeps.ids(
            _MAX_COMPLETIONS
        )
    except (HpqError, RedisError, OSError, ValueError):
        return []
    return [sid for sid in ids if sid.startswith(incomplete)]


SweepRef = Annotated[
    str | None,
    typer.Argument(
        help="A sweep's id or its beginning; without: my last one.",
        autocompletion=complete_sweep_ids,
    ),
]
