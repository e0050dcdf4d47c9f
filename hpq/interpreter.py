"""Which Python `${interpreter}` is: the one on PATH, as with W&B, and not the one that runs hpq.

hpq often has an environment of its own (pipx, a virtual one), where a user's libraries are not.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from hpq.errors import SettingsError


def interpreter(environ: Mapping[str, str], given: str = "") -> str:
    """The Python of programs: `given` (HPQ_PYTHON), else PATH's python or python3, else hpq's own.

    Raises:
        SettingsError: HPQ_PYTHON names nothing that can be run.
    """
    path = environ.get("PATH", os.defpath)
    if given:
        found = shutil.which(os.path.expanduser(given), path=path)
        if found is None:
            raise SettingsError(
                f"HPQ_PYTHON: no program {given!r} here; name a Python, such as .venv/bin/python"
                " with its whole path, or leave it unset for the one on PATH",
                code="python-not-found",
            )
        return os.path.abspath(found)
    for name in ("python", "python3"):
        if found := shutil.which(name, path=path):
            return os.path.abspath(found)
    return sys.executable


def is_own(python: str) -> bool:
    """True for the Python that runs hpq, by whatever name its environment has it."""
    # Not where links lead: the Pythons of all virtual environments are links to one.
    one, other = Path(python), Path(sys.executable)
    return one == other or (one.parent == other.parent and one.name.startswith("python"))
