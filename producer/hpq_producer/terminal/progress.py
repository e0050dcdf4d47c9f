"""Show a progress bar on stderr; nothing without a terminal."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from hpq.sanitize import unguarded

_LATE_S = 0.3  # work that ends sooner needs no bar, nor the 0.1 s that rich takes to import


@contextmanager
def progress_bar(total: int | None, what: str) -> Iterator[Callable[[int], None]]:
    """Yield a function that shows how many of `total` are done; leaving takes the bar away."""
    draws_at = time.monotonic() + _LATE_S if sys.stderr.isatty() else math.inf
    bar: Any = None
    with ExitStack() as stack:

        def show(count: int) -> None:
            nonlocal bar
            if bar is None and time.monotonic() >= draws_at:
                rich = import_module("rich.progress")
                columns = rich.TextColumn("{task.description}"), rich.BarColumn(30)
                bar = rich.Progress(
                    *columns, rich.MofNCompleteColumn(), transient=True, redirect_stdout=False,
                    console=import_module("rich.console").Console(file=unguarded(sys.stderr)),
                )  # fmt: skip
                bar.add_task(what, total=total)
                stack.enter_context(bar)
            if bar is not None:
                bar.update(bar.task_ids[0], completed=count)

        yield show
