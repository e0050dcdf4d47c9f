"""`hpq plan`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from itertools import islice
from typing import Annotated, Any

from typer import Option

from hpq.domain.sweep import Launch
from hpq.notice import print_message, warn
from hpq_producer.commands.common_flags import Output
from hpq_producer.commands.make_sweep.enqueue import describe_place, describe_snapshot
from hpq_producer.commands.make_sweep.enqueue_options import EnqueueOptions, enqueue_options
from hpq_producer.commands.make_sweep.set_text import describe_rest, describe_set
from hpq_producer.enqueue.prepare import PreparedSweep
from hpq_producer.scaffold.template import unfilled
from hpq_producer.sweepfile.key_types import IdleKeys
from hpq_producer.sweepfile.spec import SweepSpec, describe_share
from hpq_producer.sweepfile.spec import parameter_sets as make_sets
from hpq_views.analysis.early_termination import describe_idle, describe_rule
from hpq_views.analysis.output_records import budget_record
from hpq_views.text.console import show_lines
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span
from hpq_views.text.text import clean, trials_of


@enqueue_options(without=("new", "tags", "reuse", "any_code"))
def plan(
    options: EnqueueOptions,
    first: Annotated[int, Option(help="Number of parameter sets to print.")] = 5,
    files: Annotated[bool, Option(help="Print the files of the snapshot.")] = False,
    output: Output = Format.TABLE,
) -> None:
    """Show what a sweep file would run; write nothing.

    Examples:
      hpq plan sweep.yaml
      hpq plan sweep.yaml --count 20
    """
    prepared = options.prepare()
    if output.is_data:
        return show_data(plan_record(prepared, first), output)
    spec, total = prepared.spec, prepared.spec.trials
    some = list(islice(make_sets(spec), first))
    for warning in prepared.warnings:
        warn(warning)
    for line in _head(spec, prepared.code.launch, total):
        print(line)
    for line in describe_snapshot(prepared.code):
        print(line)
    for name in prepared.code.manifest if files else ():
        print(f"  {clean(name)}")
    for place in unfilled(spec.source):
        print_message(f"! {place} must be filled in before `hpq enqueue`")
    rows = [(_numbers(place, spec.keys.replicates), params) for place, params in enumerate(some)]
    wide = max([6, *(len(numbers) for numbers, _ in rows)])
    lines = ([Span(f"{n:>{wide}}  "), Span(describe_set(params))] for n, params in rows)
    show_lines(lines, whole=True)
    rest = describe_rest(spec, len(some), total)
    if rest is not None:
        print(f"   ... {rest}")


def _numbers(place: int, replicates: int) -> str:
    """Return the number of the trial of a set, or `4–6`: those of its replicates."""
    first = 1 + place * replicates
    return str(first) if replicates < 2 else f"{first}–{first + replicates - 1}"


def plan_record(prepared: PreparedSweep, first: int) -> dict[str, Any]:
    """Return a plan as data, with the parameters of the first trials."""
    spec = prepared.spec
    return {
        "name": spec.name,
        "method": spec.method,
        "trials": spec.trials,
        "sets": list(islice(make_sets(spec), first)),
        "replicates": spec.keys.replicates,
        "early_terminate": asdict(spec.early) if spec.early else None,
        **budget_record(spec.budget),
        "code": prepared.code.launch.code,
        "files": list(prepared.code.manifest),
        "warnings": [warning.record() for warning in prepared.warnings],
    }


def _head(spec: SweepSpec, launch: Launch, total: int | None) -> Iterator[str]:
    """Yield the lines that describe the sweep, before its parameter sets."""
    how_many = "no trial limit (--count N sets one)" if total is None else trials_of(total)
    if spec.keys.replicates > 1:
        how_many += f" ({spec.keys.replicates} replicates of each set)"
    where = f"queue {spec.queue}, seed {spec.keys.seed}"
    yield f"name {spec.name}, method {spec.method}, {how_many}, {where}"
    if share := describe_share(spec):
        yield share
    yield f"runs {launch.what}{describe_place(launch)}"
    for metric in spec.objectives or filter(None, [spec.metric]):
        most = metric.terminate_on_nan
        nan = f", a trial diverged after {most} NaN in a row" if most else ""
        yield f"metric {metric.name}, {metric.goal}{nan}"
    for constraint in spec.constraints:
        yield f"constraint {constraint}"
    if spec.early:
        yield f"stops trials early: {describe_rule(spec.early)}"
    if isinstance(idle := spec.keys.stall, IdleKeys):
        yield f"ends trials at {describe_idle(idle.gpu_below, idle.lasting)}, on workers with NVML"
    if spec.budget:
        yield f"budget {spec.budget.limits}"
