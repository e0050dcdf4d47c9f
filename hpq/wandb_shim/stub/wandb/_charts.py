"""`wandb.plot`: charts as the tables that W&B draws them from."""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ._media import Media, Table
from ._transport import missing


class Chart(Media):
    """The result of a function of `wandb.plot`; its table is computed when it is logged."""

    folder, suffix = "table", "_table"

    def __init__(self, table: Callable[[], Table]) -> None:
        super().__init__()
        self._table = table

    @property
    def table(self) -> Table:
        """The chart's data, with W&B's columns."""
        return self._table()

    def encode(self) -> tuple[str, bytes]:
        return self.table.encode()


def _given(*args: Any, **kwargs: Any) -> Chart:
    """Return the chart of a table among the arguments."""
    found = [x for x in (*args, *kwargs.values()) if isinstance(x, Table)]
    return Chart(lambda: found[0])


# Of these, W&B gets the table.
bar = histogram = line = scatter = plot_table = visualize = _given


def confusion_matrix(
    probs: Any = None,
    y_true: Any = None,
    preds: Any = None,
    class_names: Sequence[str] | None = None,
    title: str = "",
    split_table: bool = False,
) -> Chart:
    """Return how often each class was predicted as each."""
    return Chart(partial(_confusion, probs, y_true, preds, class_names))


def _confusion(probs: Any, y_true: Any, preds: Any, class_names: Sequence[str] | None) -> Table:
    np = importlib.import_module("numpy")
    true = np.asarray(y_true).tolist()
    found = np.asarray(preds).tolist() if probs is None else np.argmax(probs, axis=1).tolist()
    classes = sorted({*true, *found}) if class_names is None else list(range(len(class_names)))
    names = class_names or [f"Class_{i + 1}" for i in range(len(classes))]
    pairs = Counter(zip(true, found))  # noqa: B905 - no `strict` in Python 3.9
    rows = [
        [names[i], names[j], pairs[a, b]]
        for i, a in enumerate(classes)
        for j, b in enumerate(classes)
    ]
    return Table(["Actual", "Predicted", "nPredictions"], rows)


def line_series(
    xs: Any,
    ys: Any,
    keys: Any = None,
    title: str = "",
    xname: str = "x",
    split_table: bool = False,
) -> Chart:
    """Return several lines, over one axis or over one each."""
    return Chart(partial(_lines, xs, ys, keys))


def _lines(xs: Any, ys: Any, keys: Any) -> Table:
    each = xs if hasattr(xs[0], "__iter__") else [xs] * len(ys)
    names = keys if keys is not None else [f"line_{i}" for i in range(len(ys))]
    lines = zip(each, names, ys)  # noqa: B905
    rows = [[x, name, y] for some, name, line in lines for x, y in zip(some, line)]  # noqa: B905
    return Table(["step", "lineKey", "lineVal"], rows)


def roc_curve(
    y_true: Any = None,
    y_probas: Any = None,
    labels: Any = None,
    classes_to_plot: Any = None,
    title: str = "",
    split_table: bool = False,
) -> Chart:
    """Return the true positive rate over the false positive rate, by class; needs scikit-learn."""
    some = (y_true, y_probas, labels, classes_to_plot)
    return Chart(partial(_by_class, "roc_curve", ["class", "fpr", "tpr"], *some))


def pr_curve(
    y_true: Any = None,
    y_probas: Any = None,
    labels: Any = None,
    classes_to_plot: Any = None,
    interp_size: int = 21,
    title: str = "",
    split_table: bool = False,
) -> Chart:
    """Return precision and recall by class, without W&B's smoothing; needs scikit-learn."""
    some = (y_true, y_probas, labels, classes_to_plot)
    columns = ["class", "precision", "recall"]
    return Chart(partial(_by_class, "precision_recall_curve", columns, *some))


def _by_class(
    function: str, columns: list[str], y_true: Any, y_probas: Any, labels: Any, shown: Any
) -> Table:
    np = importlib.import_module("numpy")
    curve = getattr(importlib.import_module("sklearn.metrics"), function)
    true = np.asarray(y_true)
    chances = np.asarray(y_probas)
    rows = list[list[Any]]()
    for i, one in enumerate(np.unique(true).tolist()):
        if shown is None or one in shown:
            name = labels[one] if labels is not None and isinstance(one, int) else one
            first, second, _ = curve(true, chances[..., i], pos_label=one)
            rows += [[name, *pair] for pair in np.stack([first, second], 1).round(3).tolist()]
    return Table(columns, rows)


def __getattr__(name: str) -> Any:
    raise AttributeError(missing(f"wandb.plot.{name}"))
