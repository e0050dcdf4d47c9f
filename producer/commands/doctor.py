"""`hpq doctor`."""

from __future__ import annotations

import json as jsonlib
import os
from dataclasses import asdict
from typing import Annotated

import typer

from hpq.errors import ExitCode
from hpq.settings import read
from producer.checkup import Finding, checkup

app = typer.Typer()


@app.command()
def doctor(json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Check the server, the workers and the data; each finding says what to do."""
    found: list[Finding] = checkup(read(os.environ))
    if json:
        print(jsonlib.dumps([asdict(f) for f in found]))
    else:
        for finding in found:
            print(f"{finding.level:7} {finding.what}")
            if finding.remedy:
                print(f"        {finding.remedy}")
    bad = any(f.level == "wrong" for f in found)
    raise typer.Exit(int(ExitCode.OUT_OF_REACH if bad else ExitCode.DONE))
