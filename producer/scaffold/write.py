"""The text of a first sweep file. Pure; it says which lines are to be edited."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from producer.scaffold import metrics
from producer.scaffold.option import Kind, Option, Script
from producer.scaffold.spaces import FILL_IN, Entry, entry, word

_TRIALS = 20


def sweep_file(script: Script, program: str) -> str:
    """The sweep file for a script, which is `program` seen from the file's directory."""
    entries = [entry(option) for option in script.options]
    return "\n".join(_lines(script, program, entries)) + "\n"


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
