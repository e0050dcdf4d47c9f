"""`hpq plan`."""

from __future__ import annotations

import json as jsonlib
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from producer import launch as launching
from producer import past
from producer.commands.options import (
    CodeDir,
    Count,
    File,
    Force,
    Name,
    Seed,
    Sets,
    Trainer,
    read_file,
)
from producer.look.flat import flat
from producer.look.planned import early_line, early_record, hours_line, past_record
from producer.look.text import trials_of
from producer.scaffold.placeholders import unfilled
from producer.sweepfile.spec import count as count_sets
from producer.sweepfile.spec import sets as make_sets

app = typer.Typer()


@app.command()
def plan(
    file: File,
    sets: Sets = None,
    count: Count = None,
    seed: Seed = None,
    name: Name = None,
    trainer: Trainer = None,
    code: CodeDir = None,
    force: Force = False,
    first: Annotated[int, typer.Option(help="How many sets to show.")] = 5,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what a sweep file would run, and write nothing."""
    spec = read_file(file, sets, count, seed, name, trainer, force)
    launch = launching.find(spec, file, Path.cwd(), code).launch
    total, some = count_sets(spec), list(islice(make_sets(spec), first))
    known = past.past(launch)
    if json:
        fact = {"name": spec.name, "method": spec.method, "trials": total, "sets": some}
        more = {
            "early_terminate": early_record(spec.early) if spec.early else None,
            "past": past_record(known, total) if isinstance(known, past.Past) else None,
        }
        print(jsonlib.dumps({**fact, **more, "code": launch.code, "warnings": list(spec.warnings)}))
        return
    for warning in spec.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    how_many = "no end (give --count)" if total is None else trials_of(total)
    print(f"{spec.name}: {spec.method}, {how_many}, class {spec.queue}, seed {spec.seed}")
    what = spec.trainer or spec.program or " ".join(spec.command)
    print(f"runs {what}" + (f" in {launch.code_dir}" if launch.code_dir else f" ({launch.code})"))
    if spec.metric:
        print(f"metric {spec.metric.name}, {spec.metric.goal}")
    if spec.early:
        print(early_line(spec.early))
    if isinstance(known, past.Past):
        print(hours_line(known, total, at_most=spec.early is not None))
    elif known:
        print(f"past trials: {known}", file=sys.stderr)
    for place in unfilled(spec.source):
        print(f"! {place} is to be filled in before it can be enqueued", file=sys.stderr)
    for number, params in enumerate(some, 1):
        print(f"{number:>6}  " + " ".join(f"{k}={v}" for k, v in flat(params).items()))
    if total is None or total > len(some):
        print("   ...")
