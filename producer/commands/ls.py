"""`hpq ls`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from hpq.sizes import about_bytes
from hpq.sweep import Sweep
from producer.look.out import show_json, show_table, talk
from producer.look.records import sweep_record
from producer.look.style import Span
from producer.look.tables import Column
from producer.look.text import clean, duration, measure, size
from producer.look.verdict import STATE_STYLE
from producer.session import open_session

app = typer.Typer()


@app.command()
def ls(
    n: Annotated[int, typer.Option("-n", min=1, help="How many.")] = 20,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All of them.")] = False,
    sizes: Annotated[bool, typer.Option("--size", help="About how many bytes each takes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Sweeps, newest first."""
    with open_session() as session:
        view = session.view
        sweeps = view.sweeps(view.sweep_ids(None if everything else n))
        best = view.leaders(sweeps)
        took = about_bytes(session.redis, session.keys, sweeps) if sizes else []
        if as_json:
            records = [sweep_record(s, b) for s, b in zip(sweeps, best, strict=True)]
            if sizes:
                records = [r | {"about_bytes": n} for r, n in zip(records, took, strict=True)]
            show_json(records)
        elif sizes and sweeps:
            rows = _rows(sweeps, best, view.now_ms())
            cells = [[*row, Span(size(n))] for row, n in zip(rows, took, strict=True)]
            show_table([*_COLUMNS, Column(title="about", keep=95, right=True)], cells)
        elif sweeps:
            show_table(_COLUMNS, _rows(sweeps, best, view.now_ms()))
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


def _rows(sweeps: Sequence[Sweep], best: Sequence[float | None], now_ms: int) -> list[list[Span]]:
    return [
        [
            Span(s.id),
            Span(s.state.value, STATE_STYLE[s.state]),
            Span(f"{s.counts.ended}/{s.counts.total}"),
            Span(str(s.counts.failed or "")),
            Span("" if b is None else measure(b)),
            Span(clean(s.metric.name) if s.metric else ""),
            Span(duration(now_ms - s.created_ms)),
            Span(clean(s.owner)),
            Span(s.worker_class),
        ]
        for s, b in zip(sweeps, best, strict=True)
    ]
