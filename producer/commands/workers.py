"""`hpq workers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from hpq.snapshot import Worker
from producer.look.out import show_json, show_table, talk
from producer.look.records import worker_record
from producer.look.style import Span, Style
from producer.look.tables import Column
from producer.look.text import clean, duration
from producer.session import open_session

app = typer.Typer()


@app.command()
def workers(
    as_json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Live workers: what they are at, and which sweeps they leave alone."""
    with open_session() as session:
        found = session.view.workers()
        if as_json:
            show_json([worker_record(w) for w in found])
        elif found:
            show_table(_COLUMNS, _rows(found, session.view.now_ms()))
            for w in found:
                for sweep, reason in w.refuses.items():
                    talk(f"{clean(w.name)} leaves {clean(sweep)}: {clean(reason)}")
        else:
            talk("no worker is alive; `hpq worker` starts one")


_COLUMNS = (
    Column(title="worker", keep=100, least=8),
    Column(title="class", keep=60),
    Column(title="state", keep=90),
    Column(title="trial", keep=80, least=10),
    Column(title="seen", keep=70, right=True),
    Column(title="device", keep=50, least=8),
    Column(title="host", keep=40, least=6),
    Column(title="version", keep=30),
)


def _rows(found: Sequence[Worker], now_ms: int) -> list[list[Span]]:
    return [
        [
            Span(clean(w.name)),
            Span(clean(w.worker_class)),
            Span(clean(w.state), Style.RED if w.state == "faulty" else Style.PLAIN),
            Span(clean(w.trial)),
            Span(f"{duration(now_ms - w.seen_ms)} ago"),
            Span(clean(w.device)),
            Span(clean(w.host)),
            Span(clean(w.version)),
        ]
        for w in found
    ]
