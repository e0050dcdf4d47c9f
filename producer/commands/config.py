"""`hpq config`."""

from __future__ import annotations

import json as jsonlib
import os
from typing import Annotated

import typer

from hpq.settings import describe, read

app = typer.Typer()


@app.command()
def config(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Settings in force, secrets hidden."""
    shown = describe(read(os.environ))
    if json:
        print(jsonlib.dumps(shown))
        return
    wide = max(map(len, shown))
    for name, value in shown.items():
        print(f"{name:{wide}}  {value}".rstrip())
