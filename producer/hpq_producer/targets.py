"""Sweeps and trials as users name them on the command line: SWEEP/7, #7, or 7 of the last sweep.

Also what a command asks before it changes one: whose it is, and whether the user means it.
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
    """The sweep that is meant (None: my last one) and the trials of it (none: the sweep itself).

    Raises:
        UserError: the targets are of several sweeps.
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
        raise UserError(f"{', '.join(distinct)}: one sweep at a time", code="one-sweep-only")
    return (distinct[0] if distinct else None), numbers


_MAX_RECENT = 200  # ended trials among which a failed one is looked for


def find_target(reader: StoreReader, ref: str | None, owner: str) -> str | TrialId:
    """The sweep's id, or the trial, that a reference means (see `parse_targets`).

    Raises:
        NotFound: nothing or more than one sweep fits.
    """
    sweep, numbers = parse_targets([ref] if ref else None)
    sid = reader.sweeps.resolve(sweep, owner)
    return TrialId(sweep=sid, number=numbers[0]) if numbers else sid


def find_trial(reader: StoreReader, ref: str | None, owner: str) -> TrialId:
    """As `find_target`, where a trial is wanted: of a sweep, one that runs, else one that ended.

    Of those the one that failed last, since it has something to say, else the one that ended last.

    Raises:
        NotFound: nothing fits, or no trial of the sweep has begun.
    """
    found = find_target(reader, ref, owner)
    if isinstance(found, TrialId):
        return found
    shot = reader.snapshot(found, rows=1, top=0, recent=_MAX_RECENT)
    failed = [t for t in shot.recent if t.state is TrialState.FAILED]
    for trial in (*shot.running, *failed, *shot.recent):
        return trial.id
    text = f"no trial of {found} has begun; `hpq watch {found}` shows what it waits for"
    raise NotFound(text, code="trial-not-begun")


def owned_sweep(session: Session, ref: str | None, force: bool) -> Sweep:
    """The sweep that is meant, if I may touch it.

    Raises:
        Forbidden: it is another owner's, and `force` was not said.
    """
    sweep = session.sweep(ref)
    if sweep.owner != session.settings.user and not force:
        text = f"sweep {sweep.id} is {sweep.owner}'s; --force does it all the same"
        raise Forbidden(text, code="sweep-of-another")
    return sweep


def confirm(question: str, yes: bool) -> None:
    """Ask for a yes, unless it was said.

    Raises:
        UserError: there is nobody to ask.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        text = f"{question} There is no terminal to answer at; say --yes"
        raise UserError(text, code="confirmation-missing")
    if not typer.confirm(question):
        raise typer.Abort


_COMPLETION_TIMEOUT_S = 0.5
_MAX_COMPLETIONS = 500  # the newest sweeps


def complete_sweep_ids(incomplete: str) -> list[str]:
    """The ids that begin so, newest first; none where Redis is away. Starts no server."""
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
