"""Find the sweeps and trials that a command line names: SWEEP/7, #7, or 7 of the last sweep.

Before a command changes a sweep, check its owner and ask for confirmation.
"""

from __future__ import annotations

import re
import sys
from typing import Annotated
from urllib.parse import quote

import typer
from redis.exceptions import RedisError

from hpq.access.session import Session, load_settings
from hpq.domain.sweep import SweepView
from hpq.domain.trial import TrialId, TrialState
from hpq.errors import Forbidden, HpqError, NotFound, UserError
from hpq.private_server.attach_or_start import running_socket
from hpq.redis.client import connect
from hpq.store.keys import Keys
from hpq.store.reader import StoreReader

_TRIAL = re.compile(r"(?:(?P<sweep>[a-z0-9-]+)/|#)?(?P<number>[1-9][0-9]*)\Z")


def parse_targets(targets: list[str] | None) -> tuple[str | None, list[int]]:
    """Return the sweep (None: the last one) and the numbers of its trials ([]: the whole sweep).

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
        text = f"{', '.join(distinct)}: the command takes one sweep; run it once for each"
        raise UserError(text, code="one-sweep-only")
    return (distinct[0] if distinct else None), numbers


_MAX_RECENT = 200  # ended trials, searched for a failed one


def find_target(reader: StoreReader, ref: str | None, owner: str) -> str | TrialId:
    """Return the id of the sweep or of the trial that a reference names (see `parse_targets`).

    Raises:
        NotFound: no sweep matches, or several do.
    """
    sweep, numbers = parse_targets(None if ref is None else [ref])
    sid = reader.sweeps.resolve(sweep, owner)
    return TrialId(sweep=sid, number=numbers[0]) if numbers else sid


def find_trial(reader: StoreReader, ref: str | None, owner: str) -> TrialId:
    """Return the trial that a reference names; for a sweep, choose one of its trials.

    The first of: a running trial, the trial that failed last, the trial that ended last.

    Raises:
        NotFound: no trial matches, or no trial of the sweep has started.
    """
    found = find_target(reader, ref, owner)
    if isinstance(found, TrialId):
        return found
    status = reader.status(found, rows=1, top=0, recent=_MAX_RECENT)
    failed = [t for t in status.recent if t.state is TrialState.FAILED]
    for trial in (*status.running, *failed, *status.recent):
        return trial.id
    text = f"no trial of {found} has started; `hpq watch {found}` shows the reason"
    raise NotFound(text, code="trial-not-begun")


def owned_sweep(session: Session, ref: str | None, force: bool) -> SweepView:
    """Return the sweep that a reference names, if this user may change it.

    Raises:
        NotFound: no sweep matches, or several do.
        Forbidden: another user owns the sweep, and `force` is false.
    """
    sweep = session.sweep(ref)
    check_owner(session, sweep, force)
    return sweep


def check_owner(session: Session, sweep: SweepView, force: bool) -> None:
    """Raise Forbidden if another user owns the sweep, and `force` is false."""
    if sweep.owner != session.settings.user and not force:
        text = f"sweep {sweep.id} belongs to {sweep.owner}; --force changes it anyway"
        raise Forbidden(text, code="sweep-of-another")


def confirm(question: str, yes: bool) -> None:
    """Ask for a yes, unless `yes` is true.

    Raises:
        UserError: stdin is no terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        text = f"{question} To confirm without a terminal, add --yes"
        raise UserError(text, code="confirmation-missing")
    if not typer.confirm(question):
        raise typer.Abort


_COMPLETION_TIMEOUT_S = 0.5
_MAX_COMPLETIONS = 500  # the newest sweeps


def complete_sweep_ids(incomplete: str) -> list[str]:
    """Return the ids with this prefix, newest first; [] if Redis is away. Starts no server."""
    try:
        settings = load_settings()
        url = settings.redis_url
        if not url:
            socket = running_socket(settings.home)
            if not socket:
                return []
            url = f"unix://{quote(socket)}"
        redis = connect(url, retries=0, timeout_s=_COMPLETION_TIMEOUT_S)
        ids = StoreReader(redis, Keys(settings.prefix), settings.lease_ms).sweeps.ids(
            _MAX_COMPLETIONS
        )
    except (HpqError, RedisError, OSError, ValueError):
        return []
    return [sid for sid in ids if sid.startswith(incomplete)]


SweepRefs = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="SWEEP",
        help="Id of a sweep, or its first characters; several: compare. Default: your last.",
        autocompletion=complete_sweep_ids,
    ),
]
SweepRef = Annotated[
    str | None,
    typer.Argument(
        help="Id of a sweep, or its first characters. Default: your last sweep.",
        autocompletion=complete_sweep_ids,
    ),
]
