"""`hpq ls`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from hpq.snapshot import Unreadable
from hpq.sweep import Sweep
from producer.look.out import show_json, show_table, talk
from producer.look.records import sweep_record
from producer.look.style import Span, Style
from producer.look.tables import Column
from producer.look.text import clean, duration, measure
from producer.look.verdict import STATE_STYLE
from producer.session import open_session

app = typer.Typer()


@app.command()
def ls(
    n: Annotated[int, typer.Option("-n", min=1, help="How many.")] = 20,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All of them.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Sweeps, newest first."""
    with open_session() as session:
        view = session.view
        found = view.sweeps_or_why(view.sweep_ids(None if everything else n))
        sweeps = [one for one in found if isinstance(one, Sweep)]
        best = dict(zip((s.id for s in sweeps), view.leaders(sweeps), strict=True))
        if as_json:
            show_json([_record(one, best) for one in found])
        elif found:
            now_ms = view.now_ms()
            show_table(_COLUMNS, [_row(one, best, now_ms) for one in found])
            for one in found:
                if isinstance(one, Unreadable):
                    talk(f"hpq: {clean(one.id)} is unreadable: {clean(one.why)}")
        else:
            talk("no sweep yet; `hpq enqueue FILE` makes one")


_COLUMNS = (
    Column(title="sweep", keep=100, least=12),
    Column(title="state", keep=90),
    Column(title="done", keep=80, right=True),
    Column(title="failed", keep=55, right=True),
    Column(title="best", keep=70, right=True),
    Column(title="metric", keep=30, least=6),
    Column(title="age", keep=60, right=True),
    Column(title="owner", keep=50, least=4),
    Column(title="class", keep=40, least=4),
)


def _record(one: Sweep | Unreadable, best: Mapping[str, float | None]) -> dict[str, Any]:
    if isinstance(one, Unreadable):
        return {"id": one.id, "state": "unreadable", "why": one.why}
    return sweep_record(one, best[one.id])


def _row(one: Sweep | Unreadable, best: Mapping[str, float | None], now_ms: int) -> list[Span]:
    if isinstance(one, Unreadable):
        blanks = [Span("")] * (len(_COLUMNS) - 2)
        return [Span(clean(one.id)), Span("unreadable", Style.RED), *blanks]
    leader = best[one.id]
    return [
        Span(one.id),
        Span(one.state.value, STATE_STYLE[one.state]),
        Span(f"{one.counts.ended}/{one.counts.total}"),
        Span(str(one.counts.failed or "")),
        Span("" if leader is None else measure(leader)),
        Span(clean(one.metric.name) if one.metric else ""),
        Span(duration(now_ms - one.created_ms)),
        Span(clean(one.owner)),
        Span(clean(one.worker_class)),
    ]
