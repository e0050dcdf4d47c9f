"""`hpq user`: what owners of sweeps may have, and what they use."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Annotated, Any

from typer import Argument, Option

from hpq.access.session import Session, open_session
from hpq.domain.budget import EVERYBODY, Owner
from hpq.domain.usage import short
from hpq.errors import NotFound, UserError
from hpq.notice import print_message
from hpq_producer.actions.limit_owner import KEYS, limit_owner, parse_limits
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
    limits, gone = parse_limits(limit or ())
    if limit and name is None:
        text = "name the owner: hpq user OWNER --limit KEY=VALUE; '*' is everybody"
        raise UserError(text, code="usage")
    with open_session() as session:
        if name is not None and limit:
            for line in limit_owner(session, name, limits, gone):
                print_message(line)
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
        "defaults": sorted(KEYS[name] for name in owner.defaults),
    }
