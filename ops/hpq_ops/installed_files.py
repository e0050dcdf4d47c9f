"""What the wheel installs beside its modules: the folders k8s/ and configs/, and `hpq`."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from hpq.errors import UserError

_HERE = Path(__file__).resolve().parent


def installed_folder(name: str) -> Path:
    """Find a folder in the installed package, or else in the checkout around the package.

    Raises:
        UserError: neither has the folder.
    """
    for root in (_HERE, *_HERE.parents[:2]):
        if (root / name).is_dir():
            return root / name
    text = f"{_HERE}: the folder {name} is missing; install hpq again"
    raise UserError(text, code="install-incomplete")


def own_path() -> str:
    """Return the path of `hpq`: a job on another machine need not have this shell's PATH."""
    beside = Path(sys.executable).with_name("hpq")
    return str(beside) if beside.exists() else shutil.which("hpq") or "hpq"
