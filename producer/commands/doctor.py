"""`hpq doctor`."""

from __future__ import annotations

import json as jsonlib

import typer

from hpq.errors import ExitCode
from producer.checkup import Finding, checkup
from producer.commands.options import AsJson
from producer.here import settings_here
from producer.look.out import show_lines
from producer.look.style import Span

app = typer.Typer()


@app.command()
def doctor(json: AsJson = False) -> None:
    """Check the server, the workers and the data; each finding says what to do."""
    found: list[Finding] = checkup(settings_here())
    if json:
        keys = ("level", "what", "remedy")
        print(jsonlib.dumps([{key: getattr(f, key) for key in keys} for f in found]))
    else:
        for finding in found:
            show_lines([[Span(f"{finding.level:7} "), Span(finding.what)]], whole=True)
            if finding.remedy:
                show_lines([[Span(" " * 8), Span(finding.remedy)]], whole=True)
    wrong = [f.exit_code for f in found if f.level == "wrong"]
    raise typer.Exit(wrong[0] if wrong else int(ExitCode.DONE))
