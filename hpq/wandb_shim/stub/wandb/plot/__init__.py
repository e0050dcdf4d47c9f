"""`wandb.plot`: charts are accepted; a Table in one is kept."""

from __future__ import annotations

from collections.abc import Callable

from .._media import Chart
from .._say import missing

_KINDS = frozenset(
    "bar confusion_matrix histogram line line_series plot_table pr_curve roc_curve scatter"
    " visualize".split()
)


def __getattr__(name: str) -> Callable[..., Chart]:
    if name not in _KINDS:
        raise AttributeError(missing(f"wandb.plot.{name}"))
    return lambda *args, **kwargs: Chart(name, args, kwargs)
