"""The text of a first sweep file. Pure; it says which lines are to be edited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import yaml

from hpq.trial import Json
from producer.scaffold import metrics
from producer.scaffold.option import Kind, Option, Script, spelt
from producer.scaffold.spaces import FILL_IN, Entry, entry, word

_TRIALS = 20


def sweep_file(script: Script, program: str) -> str:
    """The sweep file for a script, which is `program` seen from the file's directory."""
    if script.sweep is not None:
        return "\n".join(_own(script, script.sweep, program)) + "\n"
    entries = [entry(option) for option in script.options]
    return "\n".join(_lines(script, program, entries)) + "\n"


def _own(script: Script, sweep: Mapping[str, Json], program: str) -> Iterator[str]:
    """The sweep that the script hands to wandb.sweep, as it stands there."""
    yield f"# Written by `hpq init` from what {program} hands to wandb.sweep. From now on this file"
    yield "# decides. `hpq plan` shows what it would run, `hpq run` runs it here."
    rest = {key: value for key, value in sweep.items() if key != "program"}
    yield f"program: {word(sweep.get('program') or program)}"
    known = {spelt(option.name) for option in script.options if not option.why_not}
    names = sweep.get("parameters")
    told = {spelt(name) for name in names} if isinstance(names, dict) else set()
    if "command" not in sweep and not script.takes_any and not told <= known:
        yield "# Its parser would refuse them as options: they come through wandb.config."
        yield 'command: ["${env}", "${interpreter}", "${program}"]'
    yield yaml.safe_dump(rest, sort_keys=False, default_flow_style=None, width=100).rstrip()


def _lines(script: Script, program: str, entries: Sequence[Entry]) -> Iterator[str]:
    yield f"# Written by `hpq init` from {program}. `hpq plan` shows what it would run,"
    yield "# `hpq run` runs it here, `hpq enqueue` puts it on the queue."
    yield f"program: {word(program)}"
    command = _command(script)
    if command:
        yield f"command: [{', '.join(map(word, command))}]"
    yield "method: random  # or grid (values only), or bayes (learns from the trials before)"
    yield f"run_cap: {_TRIALS}  # how many trials"
    yield from _metric(script)
    for note in script.notes:
        yield f"# {note}"
    yield "parameters:"
    yield from _table([e for e in entries if e.active], "  ")
    left = [e for e in entries if not e.active]
    if left:
        yield "  # not searched:"
        yield from _table(left, "  # ")


def _command(script: Script) -> list[str]:
    """The command, where W&B's default one would not do."""
    args = script.args or "${args}"
    if not script.args and any(_is_given_or_not(option) for option in script.options):
        args = "${args_no_boolean_flags}"  # --amp, or nothing
    before = [FILL_IN.replace(">", f": {w[1:-1]}>") if w[:1] == "<" else w for w in script.before]
    if args == "${args}" and not before:
        return []
    return ["${env}", "${interpreter}", "${program}", *before, args]


def _is_given_or_not(option: Option) -> bool:
    return option.kind is Kind.FLAG and not option.why_not


def _metric(script: Script) -> Iterator[str]:
    chosen = metrics.choose(script.reported)
    if chosen is None:
        yield "# No metric was found. Print whole lines `val_loss=0.31`, or call hpq.report({...}),"
        yield "# and name it here; without it nothing is ranked:"
        yield "# metric: {name: val_loss, goal: minimize}"
        return
    metric, goal, is_known = chosen
    others = [m.name for m in script.reported if m.name != metric.name]
    said = f"{metric.by}, line {metric.line}" if metric.by else f"line {metric.line}"
    said += "" if is_known else "; or maximize, where more is better"
    yield f"metric: {{name: {word(metric.name)}, goal: {goal.value}}}  # {said}"
    if others:
        yield f"# also reported: {', '.join(others)}"


def _table(entries: Sequence[Entry], before: str) -> Iterator[str]:
    for one in entries:
        comment = f"  # {one.comment}" if one.comment else ""
        yield f"{before}{one.name}: {one.space}{comment}"
