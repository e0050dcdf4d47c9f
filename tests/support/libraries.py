"""Skip tests whose libraries are absent."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(library: str) -> pytest.MarkDecorator:
    """Return a mark that skips tests if a library is not installed, without importing it.

    Each test process collects all files; only those that run a test need its library.
    """
    return pytest.mark.skipif(find_spec(library) is None, reason=f"{library} is not installed")
