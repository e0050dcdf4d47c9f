"""`hpq config`."""

from __future__ import annotations

import json as jsonlib
import os
from typing import Annotated

import typer

from hpq.settings import ABOUT, describe, read, variable
from hpq.trial import Json
from producer.look.out import show_table
from producer.look.style import Span, Style
from producer.look.tables import Column
from producer.look.text import clean

app = typer.Typer()


@app.command()
def config(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Settings in force, secrets hidden."""
    shown = describe(read(os.environ))
    if json:
        print(jsonlib.dumps(shown))
        return
    rows = [
        [Span(variable(field)), Span(_text(shown[variable(field)])), Span(about, Style.DIM)]
        for field, about in ABOUT.items()
        if variable(field) in shown
    ]
    show_table(_COLUMNS, rows)


_COLUMNS = (
    Column(title="setting", keep=100),
    Column(title="value", keep=90, least=10),
    Column(title="what it is", keep=50, least=20),
)


def _text(value: Json) -> str:
    if isinstance(value, list):
        return clean(" ".join(map(str, value)))
    return "" if value is None else clean(str(value))
