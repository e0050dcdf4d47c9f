"""A training script as text, read for what a sweep file needs. Nothing of it is run or imported."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

from hpq.errors import UserError
from producer.scaffold import (
    argparse_options,
    click_options,
    hydra_config,
    metrics,
    wandb_config,
    wandb_sweep,
)
from producer.scaffold.literals import Literals
from producer.scaffold.option import Option, Script, spelt

_ONLY_WANDB = "through wandb.config only, and the script's parser would refuse it"
_MAX_BYTES = 4 * 2**20


def read(path: Path) -> Script:
    """The options and metrics of a script.

    Raises:
        UserError: it is no file, no Python, or too large.
    """
    tree = _parse(path)
    literals = Literals(tree)
    options, arguments = argparse_options.read(tree, literals)
    notes: list[str] = []
    before: list[str] = []
    commands = click_options.read(tree, literals)
    if commands:
        first, others = commands[0], commands[1:]
        options += first.options
        arguments += first.arguments
        if others:
            before.append(first.name)
            names = ", ".join(c.name for c in others)
            notes.append(f"the options are those of command {first.name}; there are also {names}")
    takes_any = not options or _takes_any(tree)
    defaults, reads = wandb_config.read(tree, literals)
    known = {spelt(option.name) for option in options}
    # What is read from wandb.config without a default has to come from the sweep.
    defaults += [Option(name=name, line=line, required=True) for name, line in reads]
    alone = [one for one in defaults if spelt(one.name) not in known]
    if not takes_any:
        alone = [replace(one, why_not=_ONLY_WANDB) for one in alone]
    options += alone
    hydra = hydra_config.read(tree, literals, path)
    if hydra is not None:
        options += hydra
        notes.append("from Hydra's config; what its groups hold goes here by dotted names, too")
    return Script(
        options=_once(options),
        reported=tuple(metrics.read(tree, literals)),
        args="" if hydra is None else hydra_config.ARGS,
        before=(*before, *(f"<{name}>" for name in arguments)),
        notes=tuple(notes),
        sweep=wandb_sweep.read(tree, literals),
        takes_any=takes_any,
    )


def _takes_any(tree: ast.Module) -> bool:
    """True where the script's parser leaves options alone that it does not know."""
    names = (node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return "parse_known_args" in names


def _once(options: list[Option]) -> tuple[Option, ...]:
    return tuple({option.name: option for option in options}.values())


def _parse(path: Path) -> ast.Module:
    try:
        raw = path.read_bytes()[:_MAX_BYTES]
        return ast.parse(raw, str(path))
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file; give the path of a training script", code="file-not-found"
        ) from None
    except IsADirectoryError:
        raise UserError(
            f"{path}: a directory; give the path of a training script", code="file-not-found"
        ) from None
    except OSError as error:
        raise UserError(
            f"{path}: cannot be read: {error.strerror}", code="file-unreadable"
        ) from None
    except SyntaxError as error:
        where = f"{path}:{error.lineno or 1}:{error.offset or 1}"
        raise UserError(f"{where}: not Python: {error.msg}", code="script-invalid") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"{path}: not Python: {error}", code="script-invalid") from None
