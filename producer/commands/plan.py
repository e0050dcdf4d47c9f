"""`hpq plan`."""

from __future__ import annotations

import json as jsonlib
import sys
from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from hpq.sweep import Launch
from producer import launch as launching
from producer import past
from producer.commands import growing
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
from producer.look.out import show_lines
from producer.look.planned import hours_line, past_record, rest_words, set_words
from producer.look.style import Span
from producer.look.text import trials_of
from producer.scaffold.placeholders import unfilled
from producer.session import open_session
from producer.sweepfile.spec import SweepSpec
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
    into: Annotated[
        str | None, typer.Option(metavar="SWEEP", help="What `enqueue --into` would do to a sweep.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show what a sweep file would run, and write nothing."""
    spec = read_file(file, sets, count, seed, name, trainer, force)
    if into is not None:
        with open_session() as session:
            growing.preview(session, into, spec, file, code, as_json=json)
        return
    found = launching.find(spec, file, Path.cwd(), code)
    launch = found.launch
    total, some = count_sets(spec), list(islice(make_sets(spec), first))
    known = past.past(found, spec.owner)
    if json:
        took = known if isinstance(known, past.Past) else None
        fact = {
            "name": spec.name,
            "method": spec.method,
            "trials": total,
            "sets": some,
            "replicates": spec.replicates,
            "early_terminate": asdict(spec.early) if spec.early else None,
            "past": past_record(took, total) if took else None,
            "code": launch.code,
            "warnings": [warning.record() for warning in spec.warnings],
        }
        print(jsonlib.dumps(fact))
        return
    twin = (found.twin,) if found.twin else ()
    for warning in (*spec.warnings, *twin):
        print(f"warning: {warning}", file=sys.stderr)
    for line in _head(spec, launch, total):
        print(line)
    _say_known(spec, known, total)
    rows = enumerate(some, 1)
    show_lines(([Span(f"{n:>6}  "), Span(set_words(params))] for n, params in rows), whole=True)
    rest = rest_words(spec, len(some), total)
    if rest is not None:
        print(f"   ... {rest}".rstrip())


def _say_known(spec: SweepSpec, known: past.Past | str | None, total: int | None) -> None:
    """What it will take, and what stands in its way."""
    if isinstance(known, past.Past):
        print(hours_line(known, total, at_most=spec.early is not None))
    elif known:
        print(f"past trials: {known}", file=sys.stderr)
    for place in unfilled(spec.source):
        print(f"! {place} is to be filled in before it can be enqueued", file=sys.stderr)


def _where(launch: Launch) -> str:
    if launch.bundled:
        return " from a copy of the code"
    return f" in {launch.code_dir}" if launch.code_dir else f" ({launch.code})"


def _head(spec: SweepSpec, launch: Launch, total: int | None) -> Iterator[str]:
    """What the sweep is, but for its sets."""
    how_many = "open-ended (--count ends it)" if total is None else trials_of(total)
    if spec.replicates > 1:
        how_many += f" ({spec.replicates} replicates of each set)"
    yield f"{spec.name}: {spec.method}, {how_many}, class {spec.queue}, seed {spec.seed}"
    what = spec.trainer or spec.program or " ".join(spec.command)
    yield f"runs {what}" + _where(launch)
    if spec.metric:
        yield f"metric {spec.metric.name}, {spec.metric.goal}"
    if spec.early:
        yield f"stops early by {rule_words(spec.early)}"
