"""Read a training script's options and the metrics that it reports, without running it.

Options are those of argparse (argparse_options.py) and reads of wandb.config (wandb_options.py).
Metrics are found in wandb.log({...}), hpq.report({...}), trial.report({...}), Lightning's
self.log("name", …), monitor="val_loss" of a callback, and prints of `name=number`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hpq.domain.printed_line import metrics_of_line
from hpq.domain.sweep import Goal
from hpq.domain.trial import Json
from hpq.reporting import METRIC_NAME
from hpq_producer.scaffold import argparse_options, wandb_options
from hpq_producer.scaffold.script_contents import (
    UNKNOWN,
    Kind,
    Literals,
    Option,
    Reported,
    Script,
    Source,
    called,
    keywords,
    spelled,
)

_ONLY_WANDB = "only in wandb.config; the script's parser rejects it as an option"


def read_script(path: Path, read_yaml: Callable[[Path], Any] = lambda _: UNKNOWN) -> Script:
    """Return the options and metrics of a script; `read_yaml` reads a file that it loads.

    Raises:
        UserError: the file is missing, or is not Python.
    """
    source = Source.read(path)
    options, arguments = argparse_options.read(source)
    takes_any = not options or "parse_known_args" in source.attributes
    defaults, reads = wandb_options.read_config(source)
    known = {spelled(option.name) for option in options}
    # The sweep must set the names of wandb.config that are read without a default.
    defaults += [Option(name=name, required=True) for name in reads]
    alone = [one for one in defaults if spelled(one.name) not in known]
    if not takes_any:
        alone = [replace(one, why_not=_ONLY_WANDB) for one in alone]
    options += alone
    reported, mentioned = read_metrics(source), list(_mentioned(source))
    declared = choose([one for one, is_read in mentioned if is_read])  # the file declares one
    return Script(
        options=tuple({option.name: option for option in options}.values()),
        reported=tuple(reported) or (declared or ())[:1],
        unread=next((one for one, is_read in mentioned if not is_read), None),
        arguments=tuple(arguments),
        sweep=wandb_options.read_sweep(source, lambda name: read_yaml(_beside(path, name))),
        takes_any=takes_any,
    )


def rejections(
    source: Source, names: Iterable[str], *, flags_alone: bool
) -> Iterator[tuple[str, str, bool]]:
    """Yield each name whose `--name=value` the script's argparse rejects, why, and if it is sure.

    Nothing if in doubt. `flags_alone`: the command passes `--name` for true values.
    """
    options = argparse_options.accepted(source) or {}
    sure = argparse_options.reads_argv(source)
    long = {flag.removeprefix("--"): one for flag, one in options.items() if flag[:2] == "--"}
    for name in names if long else ():
        started = [other for other in long if other.startswith(name)]  # abbreviations are accepted
        if name not in long and len(started) != 1:
            near = [other for other in long if spelled(other) == spelled(name)]
            initials = "".join(part[:1] for part in spelled(name).split("_"))  # lr: learning_rate
            near += [other for other in long if other == initials]
            near += get_close_matches(name, long, n=1, cutoff=0.5)
            hint = f"; did you mean --{near[0]}?" if near else ""
            yield name, f"{source.path.name} has no option --{name}{hint}", sure
        elif long.get(name, long[(started or [name])[0]]).kind is Kind.FLAG and not flags_alone:
            flag = f"{source.path.name}: --{name} takes no value"
            yield name, f"{flag}; write ${{args_no_boolean_flags}} instead of ${{args}}", sure


def misread_values(
    source: Source, passed: Mapping[str, Sequence[Json]], macro: str
) -> tuple[list[argparse_options.Finding], bool]:
    """Return the values that the script's argparse rejects or misreads, and if it is sure.

    `passed` has the values of each parameter, which the macro of the command writes as words.
    """
    found = list(argparse_options.findings(source, passed, macro))
    is_whole = argparse_options.accepted(source) is not None
    return found, is_whole and argparse_options.reads_argv(source)


def _beside(script: Path, name: str) -> Path:
    """Return the path of a file that a script opens: in the working directory, or its own."""
    return Path(name) if Path(name).exists() else script.with_name(name)


_LOGS = ("wandb.log", ".report", "run.log", "report", ".log_dict", ".log_metrics")
_VALUE = "\0"  # stands for a value in a printed line
# In other text: a worker reads it with = or : alone, and without a unit at the number.
_MENTION = re.compile(rf"(?<![\w./-])(?<!\w )([A-Za-z_][\w./-]*)\s*(?:([=:])\s*)?(?={_VALUE}(\w?))")
_UP = re.compile(
    r"acc|f1|auc|score|reward|return|iou|bleu|rouge|map\b|r2|precision|recall|top[-_@]?\d", re.I
)
_DOWN = re.compile(r"loss|err|perplexity|ppl|mse|mae|rmse|nll|fid|wer|cer|time|entropy", re.I)
_COST = re.compile(r"(^|[^a-z])(time|seconds|secs?|ms|latency|memory)([^a-z]|$)", re.I)
_OF_VALIDATION = re.compile(r"(^|[^a-z])(val|valid|validation|dev|eval)([^a-z]|$)", re.I)
_OF_TEST = re.compile(r"(^|[^a-z])test([^a-z]|$)", re.I)
_OF_TRAINING = re.compile(r"(^|[^a-z])train(ing)?([^a-z]|$)", re.I)
_NO_METRIC = frozenset({"epoch", "step", "lr", "learning_rate", "iteration", "batch", "seed"})


def read_metrics(source: Source) -> list[Reported]:
    """Return the reported metrics, each once, in the order of the lines."""
    found: dict[str, Reported] = {}
    is_wandb = any(called(node) == "wandb.init" for node in source.calls)
    media = {
        called(target)
        for node in source.nodes
        if isinstance(node, ast.Assign) and called(node.value).startswith("wandb.")
        for target in node.targets
    }
    built = _built(source)
    for node in source.calls:
        if is_wandb and called(node) == "print":  # does not count once the run began
            continue
        for name in _names(node, source.literals, built, media):
            if METRIC_NAME.match(name) and name.lower() not in _NO_METRIC:
                by = called(node)
                found.setdefault(name, Reported(name=name, line=node.lineno, by=by))
    return list(found.values())


def _mentioned(source: Source) -> Iterator[tuple[Reported, bool]]:
    """Yield what looks like a metric in printed text, and whether a worker reads it if declared."""
    for node in source.calls:
        for name, sign, unit in _MENTION.findall(_line(node) if called(node) == "print" else ""):
            if _UP.search(name) or _DOWN.search(name):
                is_read = bool(sign) and not unit
                yield Reported(name=name, line=node.lineno, by="print"), is_read


def _built(source: Source) -> dict[str, dict[str, ast.expr]]:
    """Return the entries of each mapping that a script builds up, by the mapping's name.

    Of `row = {"a": 1}`, `row["b"] = 2` and `row.update({"c": 3}, d=4)`, in any function.
    """
    literals = source.literals
    found: dict[str, dict[str, ast.expr]] = {}
    for node in source.nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, {}).update(literals.entries(node.value))
                elif isinstance(target, ast.Subscript) and isinstance(target.value, ast.Name):
                    key = literals.value(target.slice)
                    if isinstance(key, str):
                        found.setdefault(target.value.id, {})[key] = node.value
        elif isinstance(node, ast.Call) and called(node).endswith(".update"):
            entries = found.setdefault(called(node).removesuffix(".update"), {})
            entries |= literals.entries(node.args[0]) if node.args else {}
            entries |= keywords(node)
    return found


def _names(
    node: ast.Call,
    literals: Literals,
    built: Mapping[str, Mapping[str, ast.expr]],
    media: Collection[str],
) -> Iterator[str]:
    called_name = called(node)
    if called_name == "print":
        yield from _printed(node)
    elif called_name == "self.log" and node.args:
        name = literals.value(node.args[0])
        if isinstance(name, str):
            yield name
    elif called_name.endswith(_LOGS) and node.args:
        row = node.args[0]
        entries = built.get(row.id, {}) if isinstance(row, ast.Name) else literals.entries(row)
        yield from (
            n for n, v in entries.items() if _may_be_number(v) and (called(v) or None) not in media
        )
    elif "monitor" in keywords(node):  # a callback that stops or saves by this metric
        name = literals.value(keywords(node)["monitor"])
        if isinstance(name, str):
            yield name


def _may_be_number(node: ast.expr) -> bool:
    """Return False for lists, texts, and wandb's images and tables."""
    if isinstance(node, ast.List | ast.ListComp | ast.Dict | ast.Tuple | ast.JoinedStr):
        return False
    return not called(node).startswith("wandb.")


def _printed(node: ast.Call) -> Iterator[str]:
    """Yield the names of a line of nothing but `name=number` that a print call writes."""
    line = _line(node)
    if _VALUE in line:
        yield from metrics_of_line(re.sub(rf"(?<==)(\s*){_VALUE}", r"\g<1>0", line))


def _line(node: ast.Call) -> str:
    """Return the text that a print call writes, with _VALUE for each value."""
    sep = keywords(node).get("sep", ast.Constant(" "))
    return _text(sep).join(map(_text, node.args))


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_text, node.values))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return re.sub(r"%[-+.\d]*[dfgers]", _VALUE, _text(node.left))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    func = node.func if isinstance(node, ast.Call) else node
    if isinstance(func, ast.Attribute) and func.attr == "format":
        return re.sub(r"\{[^{}]*\}", _VALUE, _text(func.value))
    return _VALUE


def choose(found: Sequence[Reported]) -> tuple[Reported, Goal, bool] | None:
    """Return the metric to optimize, its goal, and whether the goal is known; None if none."""
    if not found:
        return None
    best = min(found, key=lambda m: (_place(m.name), _kind(m.name)))
    goal = goal_of(best.name)
    return best, goal or Goal.MINIMIZE, goal is not None


def goal_of(name: str) -> Goal | None:
    """Return the goal that a metric's name says; None if it says none."""
    if _DOWN.search(name) or _COST.search(name):
        return Goal.MINIMIZE
    return Goal.MAXIMIZE if _UP.search(name) else None


def _kind(name: str) -> int:
    """Return the rank of a metric among those of one data set: accuracy, loss, time, others."""
    if _COST.search(name):
        return 2
    if _UP.search(name) and not _DOWN.search(name):
        return 0
    return 1 if _DOWN.search(name) else 3


def _place(name: str) -> int:
    """Return the rank of a metric: validation, then test, then others; training last."""
    if _COST.search(name) or not (_UP.search(name) or _DOWN.search(name)):
        return 4
    if _OF_VALIDATION.search(name):
        return 0
    if _OF_TEST.search(name):
        return 1
    return 3 if _OF_TRAINING.search(name) else 2
