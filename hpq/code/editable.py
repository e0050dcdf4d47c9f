"""Editable installs: directories that a user edits and a Python imports from."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from hpq.code.command import printed_by

_OWN = ("hpq", "hpq_views", "hpq_ops", "hpq_producer", "hpq_worker")
# setuptools writes paths into .pth files, or finders with a MAPPING {package: directory}.
_PROBE = """
import json, sys
maps = {}
for finder in sys.meta_path:
    module = sys.modules.get(getattr(finder, "__module__", ""))
    maps.update(getattr(module, "MAPPING", None) or {})
print(json.dumps([sys.path, maps, [sys.prefix, sys.base_prefix]]))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditableInstalls:
    """Directories on the path of a Python, and packages that it maps to directories."""

    paths: tuple[str, ...] = ()
    packages: dict[str, str] = field(default_factory=dict)


@cache
def editable_installs(python: str) -> EditableInstalls:
    """Ask a Python for its editable installs, except hpq's own; none if it fails to answer."""
    environ = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    try:
        paths, packages, prefixes = json.loads(printed_by(python, _PROBE, environ))
    except (OSError, subprocess.SubprocessError, ValueError):
        return EditableInstalls()
    return EditableInstalls(
        paths=tuple(path for path in paths if _is_edited(Path(path), prefixes)),
        packages={name: path for name, path in packages.items() if name not in _OWN},
    )


def _is_edited(path: Path, prefixes: list[str]) -> bool:
    is_installed = path.name in ("site-packages", "dist-packages") or any(
        path.is_relative_to(prefix) for prefix in prefixes
    )
    return not is_installed and path.is_dir() and not any((path / own).is_dir() for own in _OWN)
