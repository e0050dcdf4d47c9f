"""Write the text of a first sweep file: for each option a range around its default.

Values that the user must fill in are marked: `hpq plan` warns of them, `hpq enqueue` rejects them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from hpq.domain.trial import Json
from hpq.errors import UserError
from hpq_producer.scaffold import script as script_reader
from hpq_producer.scaffold.script_contents import Kind, Option, Script, spelled

# Options of a run rather than of a model: they keep the script's default unless the user edits the
# file.
_OF_THE_RUN = re.compile(
    r"seed|epoch|niter|eval($|uate)|render|dummy|world|distributed|dist_|accel|verbos|notes|"
    r"job|group|wait|(^|_)outf?($|_)|(^|_)steps?($|_)|iters?($|_)|iterations|worker|interval|every|freq|verbose|debug|"
    r"device|cuda|gpu|mps|rank|port|host|path|dir($|_)|file|folder|root|name|project|entity|wandb|"
    r"resume|save|load|dry_run|log($|_)|print|patience|threads|precision|amp|fp16|bf16|compile|"
    r"num_classes|n_classes|_id($|_)|test_|eval_|val_|_split",
    re.IGNORECASE,
)
_SHARE = re.compile(r"drop|prob|(^|_)p($|_)|ratio|fraction|smoothing|mixup|cutmix", re.IGNORECASE)
_NEAR_ONE = re.compile(r"momentum|beta|gamma|ema|rho|discount", re.IGNORECASE)
_POWERS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
FILL_IN = "<fill in>"  # a value that the user must replace


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One line under `parameters` in YAML's flow style; commented out unless `active`."""

    name: str
    space: str
    active: bool = True
    comment: str = ""


def entry(option: Option) -> Entry:
    """Return the line of an option."""
    name, default = option.name, option.default
    if option.nested:
        return _nested(option)
    if option.why_not:
        return _left(name, default, option.why_not)
    if _is_of_the_run(option) and not option.required:
        if option.kind is Kind.FLAG and default is None:
            default = False
        return _left(name, default, "the script's default; remove the # to set it")
    if option.choices:
        return Entry(name=name, space=values(*option.choices), comment=_was(default))
    if option.kind in (Kind.FLAG, Kind.TRUTH, Kind.WORDS_OF_TRUTH):
        return _true_or_not(option)
    number = default if isinstance(default, int | float) else _number(default, option.kind)
    if number is not None and not isinstance(default, bool):
        is_whole = option.kind is Kind.INT or (isinstance(number, int) and option.kind is Kind.TEXT)
        space = _whole(int(number)) if is_whole else _real(name, float(number))
        return Entry(name=name, space=space, comment=_was(default))
    if option.required:
        return Entry(
            name=name, space=f"{{value: {word(FILL_IN)}}}", comment="required: write values"
        )
    return _left(name, default, "no range known; write values: [...]")


def _nested(option: Option) -> Entry:
    """Return the line of a mapping; entries that are not searched keep their values."""
    inner = ", ".join(f"{one.name}: {one.space}" for one in map(entry, option.nested))
    space = f"{{parameters: {{{inner}}}}}"
    return Entry(name=option.name, space=space, active=not option.why_not, comment=option.why_not)


def _is_of_the_run(option: Option) -> bool:
    if option.choices and not re.search(r"device|cuda", option.name):
        return False
    return bool(_OF_THE_RUN.search(_plain(option.name)))


def _plain(name: str) -> str:
    """Normalize batchSize and batch-size to batch_size."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).replace("-", "_").lower()


def _left(name: str, default: Json, why: str) -> Entry:
    return Entry(name=name, space=f"{{value: {word(default)}}}", active=False, comment=why)


def _true_or_not(option: Option) -> Entry:
    """Return the line of a boolean; a flag that is on is searched by its negative name."""
    if option.kind is Kind.FLAG:
        name, comment = option.name, "true: the flag is passed"
        if option.default is True and option.off:
            name, comment = option.off, "true turns it off"
        return Entry(name=name, space=values(True, False), comment=comment)
    both = (True, False) if option.kind is Kind.TRUTH else ("true", "false")
    return Entry(name=option.name, space=values(*both), comment=_was(option.default))


def _number(default: Json, kind: Kind) -> float | int | None:
    """Convert a default that is written as text, as argparse does."""
    try:
        if kind is Kind.INT:
            return int(str(default))
        return float(str(default)) if kind is Kind.FLOAT else None
    except ValueError:
        return None


def _whole(default: int) -> str:
    if default in _POWERS or (default > 8 and default & (default - 1) == 0):
        return values(default // 2, default, default * 2)
    if abs(default) <= 1:
        return values(0, 1, 2) if default >= 0 else values(default, 0, 1)
    low, high = sorted((default // 2, default * 2))
    return _range("int_uniform", low, high)


def _real(name: str, default: float) -> str:
    plain = _plain(name)
    if not math.isfinite(default):
        return values(default)
    if _SHARE.search(plain) and 0 <= default <= 1:
        low, high = (0.0, 0.5) if default <= 0.5 else (0.3, 0.9 if "drop" in plain else 1.0)
        return _range("uniform", low, high)
    if _NEAR_ONE.search(plain) and (0.5 <= default < 1 or default == 0):
        return values(*sorted({_short(default), 0.8, 0.9, 0.95, 0.99}))
    if default > 0:
        return _range("log_uniform_values", _short(default / 10), _short(default * 10))
    if default < 0:
        return _range("uniform", _short(default * 2), _short(default / 2))
    return values(0.0, 0.0001, 0.001, 0.01)


def _short(value: float) -> float:
    return float(f"{value:.3g}")


def _range(kind: str, low: float, high: float) -> str:
    return f"{{distribution: {kind}, min: {word(low)}, max: {word(high)}}}"


def values(*some: Json) -> str:
    """Return `{values: [a, b]}`."""
    return f"{{values: [{', '.join(map(word, some))}]}}"


def word(value: Json) -> str:
    """Format a value as YAML, with text in JSON's quotes."""
    if isinstance(value, float) and not math.isfinite(value):
        return json.dumps(str(value))
    return json.dumps(value, ensure_ascii=False)


def _was(default: Json) -> str:
    return "" if default is None else f"the script's default: {word(default)}"


_TRIALS = 20


def sweep_file(script: Script, program: str) -> str:
    """Return the sweep file of a script; `program` is its path from the file's directory."""
    if script.sweep is not None:
        return "\n".join(_own(script, script.sweep, program)) + "\n"
    entries = [entry(option) for option in script.options]
    return "\n".join(_lines(script, program, entries)) + "\n"


def _own(script: Script, sweep: Mapping[str, Json], program: str) -> Iterator[str]:
    """Yield the lines of the sweep that the script passes to wandb.sweep."""
    yield f"# Written by `hpq init` from the wandb.sweep call in {program}; only this file counts"
    yield "# from now on. `hpq plan` shows its trials, `hpq run` runs them here."
    rest = {key: value for key, value in sweep.items() if key != "program"}
    yield f"program: {word(sweep.get('program') or program)}"
    known = {spelled(option.name) for option in script.options if not option.why_not}
    names = sweep.get("parameters")
    told = {spelled(name) for name in names} if isinstance(names, dict) else set()
    if "command" not in sweep and not script.takes_any and not told <= known:
        yield "# The script's parser rejects these options: they are passed through wandb.config."
        yield 'command: ["${env}", "${interpreter}", "${program}"]'
    yield yaml.safe_dump(rest, sort_keys=False, default_flow_style=None, width=100).rstrip()


def _lines(script: Script, program: str, entries: Sequence[Entry]) -> Iterator[str]:
    yield f"# Written by `hpq init` from {program}. `hpq plan` shows its trials,"
    yield "# `hpq run` runs them here, `hpq enqueue` queues them for workers."
    yield f"program: {word(program)}"
    command = _command(script)
    if command:
        yield f"command: [{', '.join(map(word, command))}]"
    yield "method: random  # or grid (values only), or bayes (learns from earlier trials)"
    yield f"run_cap: {_TRIALS}  # number of trials"
    yield from _metric(script)
    yield "parameters:"
    yield from _table([e for e in entries if e.active], "  ")
    left = [e for e in entries if not e.active]
    if left:
        yield "  # not searched:"
        yield from _table(left, "  # ")


def _command(script: Script) -> list[str]:
    """Return the command, or [] if W&B's default command works."""
    has_flags = any(one.kind is Kind.FLAG and not one.why_not for one in script.options)
    if not has_flags and not script.arguments:
        return []
    before = [FILL_IN.replace(">", f": {name}>") for name in script.arguments]
    args = "${args_no_boolean_flags}" if has_flags else "${args}"  # --amp or nothing
    return ["${env}", "${interpreter}", "${program}", *before, args]


def _metric(script: Script) -> Iterator[str]:
    chosen = script_reader.choose(script.reported)
    if chosen is None:
        yield "# No metric was found. Print whole lines `val_loss=0.31`, or call hpq.report({...}),"
        yield "# and name the metric here; without one, trials are not ranked:"
        yield "# metric: {name: val_loss, goal: minimize}"
        return
    metric, goal, is_known = chosen
    others = [m.name for m in script.reported if m.name != metric.name]
    said = f"{metric.by}, line {metric.line}" if metric.by else f"line {metric.line}"
    said += "" if is_known else "; or maximize, if more is better"
    yield f"metric: {{name: {word(metric.name)}, goal: {goal.value}}}  # {said}"
    if others:
        yield f"# also reported: {', '.join(others)}"


def _table(entries: Sequence[Entry], before: str) -> Iterator[str]:
    for one in entries:
        comment = f"  # {one.comment}" if one.comment else ""
        yield f"{before}{one.name}: {one.space}{comment}"


def unfilled(data: Json | Mapping[str, Json], path: str = "") -> Iterator[str]:
    """Yield the dotted paths of a sweep file's data that still hold a placeholder."""
    if isinstance(data, str):
        if data.startswith("<fill in") and data.endswith(">"):
            yield f"{path}: {data}"
    elif isinstance(data, Mapping):
        for key, inner in data.items():
            yield from unfilled(inner, f"{path}.{key}" if path else key)
    elif isinstance(data, list):
        for item in data:
            yield from unfilled(item, path)


def refuse_unfilled(data: Mapping[str, Json], file: Path) -> None:
    """Check that no placeholder is left.

    Raises:
        UserError: one is left; the message names the first.
    """
    for place in unfilled(data):
        text = f"{file}: {place} must be filled in before the sweep can start; edit the file"
        raise UserError(text, code="value-to-fill-in")
