"""`hpq schema`."""

from __future__ import annotations

import json

import typer

from hpq_producer.sweepfile.json_schema import json_schema

app = typer.Typer()


@app.command()
def schema() -> None:
    """The JSON Schema of sweep files, for editors."""
    print(json.dumps(json_schema(), indent=2, ensure_ascii=False))
