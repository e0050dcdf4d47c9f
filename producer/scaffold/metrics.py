"""The metrics that a script reports, by the calls that hpq understands. Pure.

wandb.log({...}), hpq.report({...}), trial.report({...}), Lightning's self.log("name", …),
monitor="val_loss" of a callback, and prints of whole lines `name=number`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from hpq.report import METRIC_NAME
from hpq.sweep import Goal
from producer.scaffold.literals import Literals, called, keywords
from producer.scaffold.option import Reported

_LOGS = ("wandb.log", ".report", "run.log", "report", ".log_dict", ".log_metrics")
_LINE = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_./ -]{0,63}?)\s*=\s*\Z")
_UP = re.compile(r"acc|f1|auc|score|reward|return|iou|bleu|rouge|map\b|r2|precision|recall", re.I)
_DOWN = re.compile(r"loss|err|perplexity|ppl|mse|mae|rmse|nll|fid|wer|cer|time|entropy", re.I)
_OF_VALIDATION = re.compile(r"(^|[^a-z])(val|valid|validation|dev|eval)([^a-z]|$)", re.I)
_OF_TEST = re.compile(r"(^|[^a-z])test([^a-z]|$)", re.I)
_OF_TRAINING = re.compile(r"(^|[^a-z])train(ing)?([^a-z]|$)", re.I)
_NO_METRIC = frozenset({"epoch", "step", "lr", "learning_rate", "iteration", "batch", "seed"})


def read(tree: ast.Module, literals: Literals) -> list[Reported]:
    """What is reported, each name once, in the order of the lines."""
    found: dict[str, Reported] = {}
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    for node in sorted(calls, key=lambda n: n.lineno):
        for name in _names(node, literals):
            if METRIC_NAME.match(name) and name.lower() not in _NO_METRIC:
                by = called(node)
                found.setdefault(name, Reported(name=name, line=node.lineno, by=by))
    return list(found.values())


def _names(node: ast.Call, literals: Literals) -> Iterator[str]:
    told = called(node)
    if told == "print":
        yield from _printed(node)
    elif told == "self.log" and node.args:
        name = literals.value(node.args[0])
        if isinstance(name, str):
            yield name
    elif told.endswith(_LOGS) and node.args:
        yield from (n for n, v in literals.entries(node.args[0]).items() if _may_be_number(v))
    elif "monitor" in keywords(node):  # a callback that stops or saves by it
        name = literals.value(keywords(node)["monitor"])
        if isinstance(name, str):
            yield name


def _may_be_number(node: ast.expr) -> bool:
    """False for lists, texts and what wandb makes of pictures and tables."""
    if isinstance(node, ast.List | ast.ListComp | ast.Dict | ast.Tuple | ast.JoinedStr):
        return False
    return not called(node).startswith("wandb.")


def _printed(node: ast.Call) -> Iterator[str]:
    """The name of a line `name=number` that a print writes, if it writes one."""
    if len(node.args) != 1:
        return
    text = node.args[0]
    if isinstance(text, ast.JoinedStr) and len(text.values) == 2:
        first, second = text.values
        line = first.value if isinstance(first, ast.Constant) else ""
        if isinstance(second, ast.FormattedValue) and (said := _LINE.match(str(line))):
            yield said[1]
    elif isinstance(text, ast.BinOp) and isinstance(text.op, ast.Mod | ast.Add):
        left = text.left.value if isinstance(text.left, ast.Constant) else ""
        if said := _LINE.match(re.sub(r"%[-+.\d]*[dfgers]\Z", "", str(left))):
            yield said[1]


def choose(found: Sequence[Reported]) -> tuple[Reported, Goal, bool] | None:
    """The metric to search by, its goal, and whether the goal is known; None without any."""
    if not found:
        return None
    best = min(found, key=lambda m: (_place(m.name), not _DOWN.search(m.name)))
    if _UP.search(best.name) and not _DOWN.search(best.name):
        return best, Goal.MAXIMIZE, True
    return best, Goal.MINIMIZE, bool(_DOWN.search(best.name))


def _place(name: str) -> int:
    """Validation before test before what is neither; training last."""
    if not (_UP.search(name) or _DOWN.search(name)):
        return 4
    if _OF_VALIDATION.search(name):
        return 0
    if _OF_TEST.search(name):
        return 1
    return 3 if _OF_TRAINING.search(name) else 2
