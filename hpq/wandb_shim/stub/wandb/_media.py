"""`wandb.Image`, `Table`, `Html`, `wandb.plot`, …: kept as files if that is cheap, else dropped.

The last object of each key is kept, as in W&B's summary. The log says once what is dropped.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable
from typing import Any

from ._config import plain
from ._files import keep, keep_drawn, place
from ._transport import log_once, missing

# The functions of `wandb.plot`, which is another name of this module.
_CHARTS = frozenset(
    "bar confusion_matrix histogram line line_series plot_table pr_curve roc_curve scatter"
    " visualize".split()
)


class Media:
    """An object that is not a number; it accepts all arguments of W&B's class of this name."""

    ending = ""

    def __init__(self, data_or_path: Any = None, *args: Any, **kwargs: Any) -> None:
        self._data, self._args, self._kwargs = data_or_path, args, kwargs

    def keep(self, key: str) -> bool:
        """Save a file under a key. Return False if the object is dropped."""
        data = self._data
        if isinstance(data, (str, os.PathLike)) and os.path.isfile(data):
            ending = os.path.splitext(os.fspath(data))[1]
            return keep(data, "media", key + ending) is not None
        return keep_drawn(data, "media", f"{key}.png") is not None


class Image(Media):
    """An image. A file, a PIL image or a figure is kept, an array is not."""


class Video(Media):
    """A video. A file is kept."""


class Audio(Media):
    """A sound. A file is kept."""


class Object3D(Media):
    """A 3D object. A file is kept."""


class Molecule(Media):
    """A molecule. A file is kept."""


class Plotly(Media):
    """A figure of Plotly."""


class Graph(Media):
    """A graph of a model."""


class Classes(Media):
    """Names of classes."""


class Histogram(Media):
    """A histogram. It is dropped."""

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        super().__init__(None)
        self.histogram: Any = np_histogram[0] if np_histogram is not None else None
        self.bins: Any = np_histogram[1] if np_histogram is not None else None


class Html(Media):
    """A page. Text or a file is kept."""

    def keep(self, key: str) -> bool:
        if super().keep(key):
            return True
        text = self._data.read() if hasattr(self._data, "read") else self._data
        place("media", f"{key}.html").write_text(str(text), "utf-8")
        return True


class Table(Media):
    """Rows under named columns, kept as CSV."""

    def __init__(
        self,
        columns: Any = None,
        data: Any = None,
        rows: Any = None,
        dataframe: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if dataframe is None and hasattr(data, "to_numpy"):
            dataframe, data = data, None
        if dataframe is not None:
            columns, data = list(dataframe.columns), dataframe.to_numpy().tolist()
        given = data if data is not None else rows
        rows = given.tolist() if hasattr(given, "tolist") else given
        self.data: list[list[Any]] = [list(row) for row in rows] if rows is not None else []
        width = len(self.data[0]) if self.data else 3
        given_names = columns if columns is not None else (["Input", "Output", "Expected"][:width])
        self.columns: list[Any] = list(given_names)

    def add_data(self, *data: Any) -> None:
        self.data.append(list(data))

    def add_row(self, *row: Any) -> None:
        self.add_data(*row)

    def add_column(self, name: str, data: Any, optional: bool = False) -> None:
        self.columns.append(name)
        values = list(data)
        if not self.data:
            self.data = [[value] for value in values]
        else:
            for row, value in zip(self.data, values):  # noqa: B905 - no `strict` in Python 3.9
                row.append(value)

    def get_column(self, name: str, convert_to: str | None = None) -> list[Any]:
        at = self.columns.index(name)
        return [row[at] for row in self.data]

    def iterrows(self) -> Any:
        return iter(enumerate(self.data))

    def keep(self, key: str) -> bool:
        with place("media", f"{key}.table.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(self.columns)
            writer.writerows([[_cell(value) for value in row] for row in self.data])
        return True


def _cell(value: Any) -> Any:
    if isinstance(value, Media):
        return f"({type(value).__name__})"
    value = plain(value)
    return json.dumps(value) if isinstance(value, (dict, list)) else value


class Chart(Media):
    """The result of a function of `wandb.plot`. Its table is kept, if it has one."""

    def __init__(self, kind: str, args: Any, kwargs: Any) -> None:
        found = [x for x in (*args, *kwargs.values()) if isinstance(x, Table)]
        super().__init__(found[0] if found else None)
        self.kind = kind

    def keep(self, key: str) -> bool:
        return bool(self._data is not None and self._data.keep(key))


def keep_media(key: str, value: Any) -> None:
    """Keep a logged value that is not a number, or log that it is dropped."""
    values = value if isinstance(value, (list, tuple)) else [value]
    if isinstance(value, str) or not values:
        return
    if isinstance(values[0], Media) or hasattr(values[0], "savefig"):
        for i, one in enumerate(values):
            name = key if i == 0 else f"{key}-{i}"
            kept = one.keep(name) if isinstance(one, Media) else _draw(one, name)
            if not kept:
                log_once(f"{type(one).__name__} under {key!r} is dropped: it cannot be a file")
    else:
        log_once(f"{key!r} is dropped: {type(value).__name__} is not a number")


def _draw(figure: Any, name: str) -> bool:
    return keep_drawn(figure, "media", f"{name}.png") is not None


def __getattr__(name: str) -> Callable[..., Chart]:
    if name not in _CHARTS:
        raise AttributeError(missing(f"wandb.plot.{name}"))
    return lambda *args, **kwargs: Chart(name, args, kwargs)
