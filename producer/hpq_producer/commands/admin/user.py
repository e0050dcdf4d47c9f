"""`hpq user`: what owners of sweeps may have, and what they use."""

from __future__ import annotations

import math
from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

from typer import Argument, Option

from hpq.domain.budget import HOUR_MS
from hpq.domain.owner import EVERYBODY, Owner
from hpq.domain.sweep import MAX_PRIORITY
from hpq.domain.trial import short
from hpq.errors import Forbidden, NotFound, UserError
from hpq.notice import plural
from hpq.shell import shell_hint
from hpq_producer.commands.common_flags import Output
from hpq_producer.session import Session, open_session
from hpq_producer.terminal.console import print_message, show_table
from hpq_producer.terminal.output import Format, show_data
from hpq_producer.terminal.style import Span
from hpq_producer.terminal.tables import Column
from hpq_producer.terminal.text import clean, trials_of

_STORED = {"priority": "priority", "running": "running", "gpu_hours": "gpu_ms"}  # key → limit
_KEYS = {limit: key for key, limit in _STORED.items()}
_COLUMNS = (
    Column(title="owner", keep=100, least=6),
    Column(title="running", keep=90, right=True),
    Column(title="of", keep=90, right=True),
    Column(title="GPU-hours", keep=80, right=True),
    Column(title="of", keep=80, right=True),
    Column(title="priority", keep=70, right=True),
)


def user(
    name: Annotated[
        str | None, Argument(metavar="OWNER", help="Owner of sweeps; '*': all without own limits.")
    ] = None,
    limit: Annotated[
        list[str] | None,
        Option(
            metavar="KEY=VALUE",
            help="Set a limit, as an administrator: running (trials at a time), gpu_hours (in all)"
            " or priority (the greatest); KEY=none removes it. Repeatable.",
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """List the owners of sweeps with their limits and what they use, or set limits.

    Examples:
      hpq user
      hpq user ana --limit running=8 --limit gpu_hours=500
      hpq user '*' --limit priority=10
    """
    limits, gone = parse_limits(limit or ())
    if limit and name is None:
        text = "name the owner: hpq user OWNER --limit KEY=VALUE; '*' is everybody"
        raise UserError(text, code="usage")
    with open_session() as session:
        if name is not None and limit:
            _set(session, name, limits, gone)
        found = session.reader.owners.all()
        if name is not None:
            found = [owner for owner in found if owner.name == name] or _none(session, name, limit)
        if output.is_data:
            show_data([_record(owner) for owner in found], output)
        elif found:
            show_table(_COLUMNS, [_row(owner) for owner in found])
            if any(owner.defaults for owner in found):
                print_message(f"limits in brackets are those of {EVERYBODY}")
        else:
            how = "hpq user OWNER --limit running=8"
            print_message(f"no limits are set: every owner may use all workers; to set one: {how}")


def parse_limits(words: Sequence[str]) -> tuple[dict[str, int], list[str]]:
    """Return the limits that KEY=VALUE words set, as the store holds them, and those they remove.

    Raises:
        UserError: a key is unknown or a value is not allowed.
    """
    limits: dict[str, int] = {}
    gone: list[str] = []
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or key not in _STORED:
            close = get_close_matches(key, _STORED, n=1, cutoff=0.5)
            hint = f"; did you mean {close[0]}?" if close else ""
            line = f"--limit {word}: write KEY=VALUE, KEY one of {', '.join(_STORED)}{hint}"
            raise UserError(line, code="unknown-key")
        stored = _STORED[key]
        if stored in (*limits, *gone):
            raise UserError(f"--limit {word}: {key} is given twice", code="conflicting-keys")
        if text == "none":
            gone.append(stored)
            continue
        try:
            limits[stored] = _value(key, text)
        except ValueError as error:
            raise UserError(f"--limit {word}: {error}", code="invalid-value") from None
    return limits, gone


def _value(key: str, text: str) -> int:
    if key == "gpu_hours":
        value = _number(text)
        if not 0 <= value < math.inf:  # also NaN
            raise ValueError("write a number of hours, 0 or more, or none")
        return round(value * HOUR_MS)
    low, high = (-MAX_PRIORITY, MAX_PRIORITY) if key == "priority" else (0, 10**9)
    whole = _number(text)
    if not (whole.is_integer() and low <= whole <= high):
        between = f"from {low} to {high}" if key == "priority" else "0 or more"
        raise ValueError(f"write a whole number, {between}, or none")
    return int(whole)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _set(session: Session, name: str, limits: dict[str, int], gone: Sequence[str]) -> None:
    """Set limits; say what they mean.

    Raises:
        Forbidden: this Redis user may not change limits.
    """
    if not name or "\n" in name:
        raise UserError("OWNER: write the owner of a sweep, as `hpq ls` shows it", code="usage")
    owners = session.reader.owners
    if not owners.may_write():
        text = "only an administrator's Redis user changes limits; an administrator runs:"
        words = [word for word in _words(limits, gone) for word in ("--limit", word)]
        command = shell_hint(["hpq", "user", name, *words])
        if session.connection:
            command = f"hpq connect --role admin && {command}"
        raise Forbidden(f"{text} {command}", code="redis-forbidden")
    session.control().limit_owner(name, limits, gone)
    known = owners.known()
    if name not in (EVERYBODY, *known):
        close = get_close_matches(name, known, n=1)
        hint = f"; did you mean {clean(close[0])}?" if close else ""
        print_message(f"note: {clean(name)} has no sweep yet{hint}")
    owner = owners.of([name]).get(name)
    if owner is None:
        return
    if 0 in (limits.get("running"), limits.get("gpu_ms")):
        print_message(f"no trial of {clean(name)} starts")
    if limits.get("running", owner.running) < owner.running:
        most = limits["running"]
        run = f"{trials_of(owner.running)} {plural(owner.running, 'runs', 'run')} on"
        print_message(f"{run}; the next starts below {most}")


def _words(limits: dict[str, int], gone: Sequence[str]) -> list[str]:
    shown = {
        name: f"{value / HOUR_MS:.6g}" if name == "gpu_ms" else str(value)
        for name, value in limits.items()
    }
    return [f"{_KEYS[name]}={text}" for name, text in (shown | dict.fromkeys(gone, "none")).items()]


def _none(session: Session, name: str, limit: Sequence[str] | None) -> list[Owner]:
    """Return no owner, after the last limit of an owner was removed.

    Raises:
        NotFound: no sweep or limit is of this owner.
    """
    known = session.reader.owners.known()
    if limit or name in known:
        return []
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {clean(close[0])}?" if close else "; `hpq user` lists the owners"
    raise NotFound(f"no sweep and no limit is of {clean(name)}{hint}", code="not-found")


def _of(owner: Owner, name: str, text: str) -> str:
    if name not in owner.limits:
        return "-"
    return f"({text})" if name in owner.defaults else text


def _row(owner: Owner) -> list[Span]:
    uses = owner.name != EVERYBODY
    most = owner.most_gpu_hours or 0.0
    cells = (
        clean(owner.name),
        str(owner.running) if uses else "",
        _of(owner, "running", str(owner.limits.get("running"))),
        short(owner.gpu_hours) if uses else "",
        _of(owner, "gpu_ms", f"{most:.6g}"),
        _of(owner, "priority", str(owner.limits.get("priority"))),
    )
    return [Span(cell) for cell in cells]


def _record(owner: Owner) -> dict[str, Any]:
    """Return an owner as a record; a limit that is not set is null."""
    return {
        "owner": owner.name,
        "running": owner.running,
        "gpu_hours": owner.gpu_hours,
        "limits": {
            "running": owner.limits.get("running"),
            "gpu_hours": owner.most_gpu_hours,
            "priority": owner.limits.get("priority"),
        },
        "defaults": sorted(_KEYS[name] for name in owner.defaults),
    }
