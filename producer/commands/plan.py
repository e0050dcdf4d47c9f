"""`hpq plan`."""

from __future__ import annotations

import json as jsonlib
import sys
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from producer import late
from producer import launch as launching
from producer.commands.options import (
    AsJson,
    CodeDir,
    Count,
    File,
    Force,
    Name,
    Seed,
    Sets,
    Trainer,
)
from producer.commands.sweep_file import read_file
from producer.look.early_lines import rule_words
from producer.look.flat import flat
from producer.look.text import trials_of
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
    json: AsJson = False,
) -> None:
    """Show what a sweep file would run, and write nothing."""
    spec = read_file(file, sets, count, seed, name, trainer, force)
    launch = launching.find(spec, file, Path.cwd(), code).launch
    total, some = count_sets(spec), list(islice(make_sets(spec), first))
    if json:
        fact = {"name": spec.name, "method": spec.method, "trials": total, "sets": some}
        fact["replicates"] = spec.replicates
        print(jsonlib.dumps({**fact, "code": launch.code, "warnings": list(spec.warnings)}))
        return
    for warning in spec.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    how_many = "open-ended (--count ends it)" if total is None else trials_of(total)
    if spec.replicates > 1:
        how_many += f" ({spec.replicates} replicates of each set)"
    print(f"{spec.name}: {spec.method}, {how_many}, class {spec.queue}, seed {spec.seed}")
    what = spec.trainer or spec.program or " ".join(spec.command)
    print(f"runs {what}" + (f" in {launch.code_dir}" if launch.code_dir else f" ({launch.code})"))
    if spec.metric:
        print(f"metric {spec.metric.name}, {spec.metric.goal}")
    if spec.early:
        print(f"stops early by {rule_words(spec.early)}")
    for number, params in enumerate(some, 1):
        print(f"{number:>6}  " + " ".join(f"{k}={v}" for k, v in flat(params).items()))
    if spec.method == "bayes":
        print(f"   ... then by {late.sampler_of(spec)}, from the results")
    elif total is None or total > len(some) * spec.replicates:
        print("   ...")
