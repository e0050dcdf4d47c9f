"""Import libraries that hpq does not install by default."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hpq.errors import UserError


def library(name: str, what: str, install: str = "pandas plotly jinja2") -> Any:
    """Import a library for `what`; `install` is what pip installs it with.

    Raises:
        UserError: the library is not installed.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        lacking = (error.name or name).partition(".")[0]
        text = f"{what} needs {lacking}, which is missing here; run: {install_command(install)}"
        raise UserError(text, code="extra-missing") from None


def install_command(packages: str) -> str:
    """Return the command that installs packages into this Python's environment."""
    own = sys.executable  # in an environment that uv made, there is no pip
    pip = f"{own} -m pip install" if find_spec("pip") else f"uv pip install --python {own}"
    return f"{pip} {packages}"
