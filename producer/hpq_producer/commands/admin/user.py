"""`hpq user`: what owners of sweeps may have, and what they use."""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any

from typer import Argument, Option

from hpq.access.session import Session, open_session
from hpq.domain.owner import EVERYBODY, RANGES, Owner, name_of
from hpq.domain.usage import short
from hpq.errors import NotFound, UserError
from hpq.notice import print_message
from hpq_producer.actions.limit_owner import limit_owner, parse_limits
from hpq_producer.commands.common_flags import Output
from hpq_views.text.console import show_table
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span
from hpq_views.text.tables import Column
from hpq_views.text.text import clean

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
    words = limit or ()
    limits = parse_limits(words)
    if words and name is None:
        text = "name the owner: hpq user OWNER --limit KEY=VALUE; '*' is everybody"
        raise UserError(text, code="usage")
    with open_session() as session:
        if name is not None and words:
            limit_owner(session, name, limits, words)
        found = session.reader.owners.all()
        if name is not None:
            found = [owner for owner in found if owner.name == name]
            unknown = _unknown(session, name)
            if unknown and words:
                print_message(f"note: {unknown}")
            elif unknown and not found:
                raise NotFound(unknown, code="not-found")
        if output.is_data:
            show_data([_record(owner) for owner in found], output)
        elif found:
            show_table(_COLUMNS, [_row(owner) for owner in found])
            if any(owner.defaults for owner in found):
                print_message(f"limits in brackets are those of {EVERYBODY}")
        else:
            how = "hpq user OWNER --limit running=8"
            print_message(f"no limits are set: every owner may use all workers; to set one: {how}")


def _unknown(session: Session, name: str) -> str:
    """Return that no sweep is of this owner; "" if there is one, or the name means everybody."""
    known = session.reader.owners.known()
    if name in (EVERYBODY, *known):
        return ""
    close = get_close_matches(name, known, n=1)
    hint = f"; did you mean {clean(close[0])}?" if close else "; `hpq user` lists the owners"
    return f"no sweep is of {clean(name)}{hint}"


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
        "defaults": sorted(key for key in RANGES if name_of(key) in owner.defaults),
    }
