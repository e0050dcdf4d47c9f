"""Import libraries that hpq does not install by default."""

from __future__ import annotations

import sys
from importlib import import_module
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
        text = (
            f"{what} needs {lacking}, which is missing here; run: {sys.executable} -m pip install"
        )
        raise UserError(f"{text} {install}", code="extra-missing") from None
