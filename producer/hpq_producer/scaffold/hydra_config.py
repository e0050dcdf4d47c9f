"""Read the options of a Hydra script from its config file, by dotted names."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from hpq_producer.scaffold.script_contents import Kind, Literals, Option, called, keywords

ARGS = "${args_no_hyphens}"  # lr=0.1 overrides a value of the config
_NOT_OPTIONS = frozenset({"defaults", "hydra"})
_KINDS = {bool: Kind.TRUTH, int: Kind.INT, float: Kind.FLOAT, str: Kind.TEXT}


def read(tree: ast.Module, literals: Literals, script: Path) -> list[Option] | None:
    """Return the config's values as options; None for a script without Hydra.

    Values from other files (`defaults`, interpolations) are not read.
    """
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    main = next((n for n in calls if called(n).endswith("hydra.main")), None)
    if main is None:
        return None
    given = {name: literals.value(node) for name, node in keywords(main).items()}
    name, folder = given.get("config_name"), given.get("config_path")
    if not isinstance(name, str):
        return []
    path = script.parent / (folder if isinstance(folder, str) else "") / name
    path = path if path.suffix in (".yaml", ".yml") else path.with_name(f"{path.name}.yaml")
    try:
        data = yaml.safe_load(path.read_text("utf-8"))
    except (OSError, ValueError, yaml.YAMLError):
        return []
    return list(_options(data if isinstance(data, dict) else {}))


def _number(value: Any) -> Any:
    """Convert 1e-3, which is text to PyYAML and a number to Hydra."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _options(data: dict[Any, Any], above: str = "") -> Iterator[Option]:
    for key, value in data.items():
        name = f"{above}{key}"
        if name in _NOT_OPTIONS or (isinstance(value, str) and "${" in value):
            continue
        value = _number(value)
        if isinstance(value, dict):
            yield from _options(value, f"{name}.")
        else:
            is_plain = value is None or isinstance(value, str | int | float)
            yield Option(
                name=name,
                line=0,
                kind=_KINDS.get(type(value), Kind.OTHER),
                default=value if is_plain else None,
                why_not="" if is_plain else "it takes several values",
            )
