"""Trials as CSV and as parameters to use elsewhere: YAML, command-line flags. Pure.

Numbers stay numbers; text that a spreadsheet would run as a formula gets a leading apostrophe.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, TextIO

import yaml

from hpq.command import arguments
from hpq.inert import CONTROL
from hpq.search.replicates import replicate_of, seed_of_result
from hpq.sweep import Sweep
from hpq.trial import Json, Params, Trial
from producer.look.flat import pick
from producer.look.records import iso
from producer.look.text import clean_block

_FORMULA = tuple("=+-@\t\r\n＝＋－＠")
_FIXED = (
    "step",
    "attempt",
    "worker",
    "host",
    "started",
    "ended",
    "duration_s",
    "failure",
    "error",
    "total_s",
    "reused",
)
_REPLICATES = ("replicate", "seed")


def write_csv(
    file: TextIO,
    trials: Iterable[Trial],
    sweep: Sweep,
    params: Sequence[str],
    metrics: Sequence[str],
) -> None:
    """Write trials of a sweep as CSV (RFC 4180), a row each, as they come.

    `params` and `metrics` are the columns of that kind, `metrics` beside the objective. Where sets
    have replicates, there are columns for which one it is and what it was seeded with.
    """
    writer = csv.writer(file, lineterminator="\r\n")
    more = _REPLICATES if sweep.replicates > 1 else ()
    writer.writerow([guarded(name) for name in _header(params, metrics, more)])
    for trial in trials:
        failure = trial.failure
        row = [
            trial.id.number,
            trial.state.value,
            *(cell(pick(trial.params, name)) for name in params),
            trial.objective,
            *(trial.metrics.get(name) for name in metrics),
            trial.step,
            trial.attempt,
            guarded(trial.worker),
            guarded(trial.host),
            iso(trial.claimed_ms),
            iso(trial.ended_ms),
            trial.duration_ms / 1000,
            failure.kind.value if failure else None,
            guarded(failure.message) if failure else None,
            trial.total_ms / 1000,
            trial.reused or None,
        ]
        if more:
            row += [replicate_of(sweep, trial.id.number), seed_of_result(sweep, trial)]
        writer.writerow(row)


def _header(params: Sequence[str], metrics: Sequence[str], more: Sequence[str]) -> list[str]:
    taken = {"trial", "state", "objective", *_FIXED, *more}
    out = ["trial", "state"]
    out += [f"params.{name}" if name in taken else name for name in params]
    taken.update(params)
    out += ["objective", *(f"metrics.{name}" if name in taken else name for name in metrics)]
    return [*out, *_FIXED, *more]


def cell(param: Json) -> Any:
    """A parameter as a cell: numbers and truth as they are, text guarded, the rest as JSON text."""
    if param is None or isinstance(param, bool | int | float):
        return param
    return guarded(param if isinstance(param, str) else json.dumps(param, ensure_ascii=False))


def guarded(text: str) -> str:
    """The text without control characters, and no formula to a spreadsheet."""
    text = clean_block(text)
    return f"'{text}" if text.startswith(_FORMULA) else text


_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./-]*\Z")


class _Dumper(yaml.SafeDumper):
    """Quotes all text that some YAML reads as something else: 1e-3 is text to PyYAML only."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None if _PLAIN.match(text) else "'" if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def to_yaml(value: Any) -> str:
    """YAML that reads back the same under YAML 1.1 and 1.2."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, width=10**9)


def to_args(params: Params, command: tuple[str, ...] = ()) -> str:
    """`--lr=0.1 --opt=adam`, or the form that the sweep's command asks for, quoted for a shell."""
    return shell_line(arguments(command, params))


def shell_line(words: Iterable[str]) -> str:
    """Words as a shell reads them; what could act on a terminal stands in bash's $'\\x1b'."""
    return " ".join(_ansi_c(word) if CONTROL.search(word) else _quoted(word) for word in words)


def _quoted(word: str) -> str:
    """In double quotes where that reads better: "--model={'width': 16}"."""
    # What means something between them, to an interactive shell too, stays in single quotes.
    return f'"{word}"' if "'" in word and not re.search(r'["$`\\!]', word) else shlex.quote(word)


def _ansi_c(word: str) -> str:
    plain = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + CONTROL.sub(lambda found: _bytes(found[0]), plain) + "'"


def _bytes(char: str) -> str:
    # Bytes, since what \u means to a shell depends on its locale.
    return "".join(f"\\x{byte:02x}" for byte in char.encode("utf-8", "replace"))
