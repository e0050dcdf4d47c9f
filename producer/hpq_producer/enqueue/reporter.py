"""Decide from a program's code whether its printed lines are its metrics. Pure.

They wait for the end of the trial if the code imports wandb, since `import wandb` gives hpq's
stand-in, or calls hpq.report. A library that calls wandb.init by itself is not seen here.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from hpq.code.command import DEFAULT
from hpq.code.manifest import Files
from hpq.domain.sweep import Launch, Reporter, ReportsBy, Wandb

_MAY_REPORT = re.compile(rb"(?i)wandb|\bhpq\b|\b(?:report_to|log_with)\b")
_NAMED = re.compile(
    r"(?<![\w./-])([\w./-]+\.py)\b|-m\s+([A-Za-z_][\w.]*)"
)  # in a command, or a shell script
_SWITCHES = frozenset({"report_to", "log_with"})  # of transformers and accelerate
_IMPORTERS = frozenset({"import_module", "__import__"})


def reporter(launch: Launch, files: Files) -> Reporter | None:
    """Return the line that reports a program's metrics; None for printed lines.

    Reads the files that the command names, or the text of its shell script, and the modules among
    `files` that they import. If the command names no file, as that of a console script, reads all.
    """
    modules = {name: data for name, (data, _) in files.items() if name.endswith(".py")}
    unread = {name for name, data in modules.items() if _MAY_REPORT.search(data)}
    if launch.trainer or not unread:
        return None
    waiting = _started(launch, files)
    waiting = list(modules) if waiting is None else waiting
    tops = [*_above(*map(os.path.dirname, waiting)), *_above(launch.below)]
    seen = set(waiting)
    for name in waiting:  # it grows
        try:
            tree = ast.parse(modules[name])
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        may_report = name in unread
        nodes = list(_run(tree, with_expressions=may_report))
        imported = {node: [*_imported(node, name, tops, modules)] for node in nodes}
        if may_report and (found := _report_of(nodes, imported, launch.wandb)):
            return Reporter(f"{name}:{found[0]}", found[1])
        unread.discard(name)
        if not unread:
            break
        new = dict.fromkeys(path for paths in imported.values() for path in paths)
        waiting += [path for path in new if path not in seen]
        seen.update(new)
    return None


def _run(tree: ast.Module, *, with_expressions: bool) -> Iterator[ast.AST]:
    """Yield the nodes of a file, without what stands under TYPE_CHECKING."""
    waiting: list[ast.AST] = [tree]
    for node in waiting:  # it grows
        test = node.test if isinstance(node, ast.If) else None
        if "TYPE_CHECKING" in (getattr(test, "id", ""), getattr(test, "attr", "")):
            waiting += getattr(node, "orelse", ())
            continue
        yield node
        inner = ast.iter_child_nodes(node)
        waiting += (n for n in inner if with_expressions or not isinstance(n, ast.expr))


def _report_of(
    nodes: list[ast.AST], imported: Mapping[ast.AST, Collection[str]], wandb: Wandb | None
) -> tuple[int, ReportsBy] | None:
    """Return the line of the first import of wandb or call of hpq.report, and which it is."""
    imports = [a for node in nodes if isinstance(node, ast.Import) for a in node.names]
    homes = ("hpq", "hpq.reporting")
    called = {f"{a.asname or a.name}.report" for a in imports if a.name in homes}
    found: list[tuple[int, ReportsBy]] = []
    for node in nodes:
        line: int = getattr(node, "lineno", 0)
        is_library = not imported[node]
        if wandb is not Wandb.REAL and _uses_wandb(node, is_library):
            found.append((line, "wandb"))
        elif isinstance(node, ast.ImportFrom) and node.module in homes:
            names = {alias.name for alias in node.names}
            found += [(line, "wandb")] if "wandb" in names else []
            found += [(line, "hpq.report")] if names & {"report", "*"} else []
        elif getattr(node, "attr", "") == "report" and ast.unparse(node) in called:
            found.append((line, "hpq.report"))
    return min(found, default=None)


def _uses_wandb(node: ast.AST, is_library: bool) -> bool:
    """Return True for an import of wandb or of a library's WandbLogger, and report_to="wandb"."""
    if isinstance(node, ast.Import):
        return any(_is_wandb(alias.name) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        names = (alias.name.lower() for alias in node.names)
        is_logger = is_library and any(name.startswith("wandb") for name in names)
        return not node.level and (_is_wandb(node.module) or is_logger)
    if isinstance(node, ast.keyword) and node.arg in _SWITCHES:
        values = (getattr(n, "value", None) for n in ast.walk(node.value))
        return any(value in ("wandb", "all") for value in values if isinstance(value, str))
    if isinstance(node, ast.Call) and node.args:  # importlib.import_module("wandb")
        called = getattr(node.func, "attr", getattr(node.func, "id", ""))
        return called in _IMPORTERS and _is_wandb(getattr(node.args[0], "value", None))
    return getattr(node, "attr", "") == "WandbLogger"


def _is_wandb(module: object) -> bool:
    return isinstance(module, str) and module.partition(".")[0] == "wandb"


def _started(launch: Launch, files: Files) -> list[str] | None:
    """Return the modules that a command starts; None if it names no file of the code."""
    words = [launch.program if w == "${program}" else w for w in launch.command or DEFAULT]
    paths = {os.path.normpath(os.path.join(launch.below, word)) for word in words}
    others = [p for p in sorted(paths) if p in files and not p.endswith(".py")]  # shell scripts
    scripts = [(os.path.dirname(p), files[p][0].decode("utf-8", "replace")) for p in others]
    found: list[str] = []
    for folder, text in [(launch.below, " ".join(words)), *scripts]:
        for path, module in _NAMED.findall(text):
            here = os.path.normpath(os.path.join(folder, path))
            if module:
                for parts in (module.split("."), [*module.split("."), "__main__"]):
                    found += _modules(parts, _above(folder), files)
            elif here in files:
                found.append(here)
            else:  # after a `cd`, or beside the sweep file
                found += [f for f in files if os.path.basename(f) == os.path.basename(path)]
    return list(dict.fromkeys(found)) if found or others else None


def _above(*folders: str) -> list[str]:
    """Return the folders, those above them and the src of each: modules may be found there."""
    found: dict[str, None] = {}
    for folder in folders:
        parts = folder.split("/") if folder else []
        for n in range(len(parts), -1, -1):
            above = "/".join(parts[:n])
            found |= {above: None, os.path.join(above, "src"): None}
    return list(found)


def _imported(node: ast.AST, file: str, tops: list[str], files: Iterable[str]) -> Iterator[str]:
    """Yield the files of the code that an import statement of a file runs."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield from _modules(alias.name.split("."), tops, files)
    elif isinstance(node, ast.ImportFrom):
        for _ in range(node.level):
            file = os.path.dirname(file)
            tops = [file]
        base = node.module.split(".") if node.module else []
        for parts in (base, *([*base, alias.name] for alias in node.names)):
            yield from _modules(parts, tops, files)


def _modules(parts: list[str], tops: Iterable[str], files: Iterable[str]) -> list[str]:
    """Return the files of a dotted module and of its packages, in the first folder that has any."""
    for top in tops:
        paths = [os.path.join(top, *parts[:n]) for n in range(1, len(parts) + 1)]
        names = [*(f"{path}/__init__.py" for path in paths), *(f"{path}.py" for path in paths[-1:])]
        if found := [name for name in names if name in files]:
            return found
    return []
