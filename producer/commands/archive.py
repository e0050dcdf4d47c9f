"""`hpq archive`."""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import Annotated

import typer

from hpq.errors import UserError
from producer.archive.restore import restore
from producer.archive.write import write
from producer.look.out import talk
from producer.look.text import size
from producer.session import open_session

app = typer.Typer()


@app.command()
def archive(
    sweep: Annotated[str | None, typer.Argument(help="A sweep's id or its beginning.")] = None,
    file: Annotated[Path | None, typer.Argument(help="The file to write.")] = None,
    restored: Annotated[
        Path | None, typer.Option("--restore", help="Bring the sweep of this file back.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """A sweep as one file, and back: parameters, events, results, histories, logs.

    The sweep stays where it is (`hpq rm` removes it). Checkpoints and artifacts are not in it.
    """
    if restored is not None and (sweep or file):
        raise UserError("--restore FILE takes the sweep's id from the file; leave the rest out")
    if restored is None and (not sweep or not file):
        raise UserError("write `hpq archive SWEEP FILE`, or `hpq archive --restore FILE`")
    with open_session() as session:
        if restored is not None:
            path, done = restored, restore(session, restored)
            line = f"{done.sweep}: {done.trials} trials restored from {path}"
        else:
            assert file is not None
            sid = session.view.resolve(sweep, session.settings.user)
            path, done = file, write(session, sid, file, force=force)
            line = f"{sid}: {done.trials} trials written to {path} ({size(path.stat().st_size)})"
    if as_json:
        fact = {"sweep": done.sweep, "trials": done.trials, "file": str(path)}
        print(jsonlib.dumps(fact | {"restored": restored is not None}))
    else:
        talk(line)
