"""The data folders of the wheel: k8s/ and configs/."""

from __future__ import annotations

from pathlib import Path

from hpq.errors import UserError

_HERE = Path(__file__).resolve().parent


def shipped(name: str) -> Path:
    """Find a folder in the installed package, or else in the checkout around the package.

    Raises:
        UserError: neither has the folder.
    """
    for root in (_HERE, *_HERE.parents[:2]):
        if (root / name).is_dir():
            return root / name
    text = f"{_HERE}: the folder {name} is missing; install hpq again"
    raise UserError(text, code="install-incomplete")
