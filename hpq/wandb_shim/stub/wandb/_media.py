"""`wandb.Image`, `Table`, `Html`, …: files of the trial under media/, with W&B's names.

A logged object becomes `media/FOLDER/KEY_STEP_HASH.ENDING` in HPQ_OUT. The number of files, their
bytes and the time for them are limited; what is dropped is logged once. media/captions.json has the
captions: {"media/…": "…"}.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import math
import os
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from ._config import plain
from ._files import place
from ._history import PLAIN
from ._png import png_of
from ._transport import log_once, missing, rank

_MOST_FILES, _MOST_BYTES = 200, 32 << 20  # of a trial's media
_TOO_LARGE = f"it has more than {_MOST_BYTES >> 20} MiB; use wandb.save"
_SHARE, _ALLOWANCE_S = 0.05, 5.0  # of the run's time, and before that; CPU time
_SHOWN = 100  # characters of a key, or of an error
_BATCH = 108  # objects of one list, as in W&B
_ROWS = 10_000  # of one table, as in W&B
_CELLS = 50  # media in one table
_CAPTION = 500  # characters


class Media:
    """An object that is not a number; it accepts all arguments of W&B's class of this name."""

    folder, suffix = "files", ""  # of the file's name: media/FOLDER/KEY + SUFFIX
    path = ""  # in HPQ_OUT, once it is kept
    caption: Any = None

    def __init__(self, data_or_path: Any = None, *args: Any, **kwargs: Any) -> None:
        self._data = data_or_path
        self._args = args
        self._kwargs = kwargs
        self.caption = kwargs.get("caption")

    def encode(self) -> tuple[str, bytes]:
        """Return the ending of the file's name and the file's bytes.

        Raises:
            TypeError: hpq keeps no such data.
            OSError: a file cannot be read.
        """
        data = self._data
        if not isinstance(data, (str, os.PathLike)):
            raise TypeError(f"{type(self).__name__} of {type(data).__name__} cannot be a file")
        if os.path.getsize(data) > _MOST_BYTES:
            raise TypeError(_TOO_LARGE)
        return os.path.splitext(os.fspath(data))[1], Path(data).read_bytes()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise AttributeError(missing(f"{type(self).__name__}.{name}"))


class Image(Media):
    """An image: a file, a PIL image, a figure of matplotlib, or an array, as PNG."""

    folder = "images"

    def encode(self) -> tuple[str, bytes]:
        data = self._data
        if isinstance(data, Image):
            return data.encode()
        if isinstance(data, (str, os.PathLike)):
            return super().encode()
        figure = getattr(data, "figure", None)  # of matplotlib's axes
        for some, name in ((data, "savefig"), (figure, "savefig"), (data, "save")):
            if callable(draw := getattr(some, name, None)):
                break
        else:
            return ".png", png_of(data, _MOST_BYTES)
        bands = data.getbands() if hasattr(data, "getbands") else ()  # of PIL
        if bands and math.prod(data.size) * len(bands) > _MOST_BYTES:  # encoding takes seconds
            raise TypeError(_TOO_LARGE)
        file = io.BytesIO()
        draw(file, format="png")
        return ".png", file.getvalue()


class Video(Media):
    """A video. A file is kept."""

    folder = "videos"


class Audio(Media):
    """A sound. A file is kept."""

    folder = "audio"


class Object3D(Media):
    """A 3D object. A file is kept."""

    folder = "object3D"


class Molecule(Media):
    """A molecule. A file is kept."""

    folder = "molecule"


class Plotly(Media):
    """A figure of Plotly, as its JSON."""

    folder = "plotly"

    def encode(self) -> tuple[str, bytes]:
        return ".plotly.json", self._data.to_json().encode()


class Graph(Media):
    """A graph of a model. It is dropped."""


class Classes(Media):
    """Names of classes. They are dropped."""


class Html(Media):
    """A page. Text or a file is kept."""

    folder = "html"

    def encode(self) -> tuple[str, bytes]:
        data = self._data
        if isinstance(data, os.PathLike) or (isinstance(data, str) and data.endswith(".html")):
            return super().encode()
        return ".html", str(data.read() if hasattr(data, "read") else data).encode()


class Table(Media):
    """Rows under named columns, as JSON: {"columns": […], "data": [[…], …]}."""

    folder = "table"

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
        for row in self.data:
            self._check(row)

    def _check(self, row: list[Any]) -> None:
        if len(row) != len(self.columns):
            raise ValueError(
                f"This table expects {len(self.columns)} columns: {self.columns}, found {len(row)}"
            )

    def add_data(self, *data: Any) -> None:
        self._check(list(data))
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
        column = [row[at] for row in self.data]
        return importlib.import_module("numpy").array(column) if convert_to == "numpy" else column

    def get_dataframe(self) -> Any:
        return importlib.import_module("pandas").DataFrame(self.data, columns=self.columns)

    def iterrows(self) -> Any:
        return iter(enumerate(self.data))

    def encode(self) -> tuple[str, bytes]:
        rows = [[_cell(value) for value in row] for row in self.data[:_ROWS]]
        if len(self.data) > _ROWS:
            log_once(f"tables are kept with their first {_ROWS} rows, as in W&B")
        return ".table.json", json.dumps({"columns": plain(self.columns), "data": rows}).encode()


def _cell(value: Any) -> Any:
    if isinstance(value, Media):
        kind = "image-file" if isinstance(value, Image) else type(value).__name__
        return {"_type": kind, "path": value.path} if value.path else f"({type(value).__name__})"
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [_cell(one) for one in value]
    value = plain(value)
    is_odd = isinstance(value, float) and not math.isfinite(value)
    return str(value) if is_odd else value  # JSON has no NaN


class Histogram(Media):
    """A histogram, as a table of its bins; it needs numpy, as in W&B.

    Raises:
        ValueError: it has more than 512 bins, or not one edge more than bins.
    """

    folder, MAX_LENGTH = "histogram", 512

    def __init__(self, sequence: Any = None, np_histogram: Any = None, num_bins: int = 64) -> None:
        super().__init__()
        if np_histogram is None:
            np_histogram = _counted(sequence, num_bins)
        counts, edges = np_histogram
        self.histogram: list[float] = counts.tolist() if hasattr(counts, "tolist") else list(counts)
        self.bins: list[float] = edges.tolist() if hasattr(edges, "tolist") else list(edges)
        if len(self.histogram) > self.MAX_LENGTH:
            raise ValueError(f"The maximum length of a histogram is {self.MAX_LENGTH}")
        if len(self.histogram) + 1 != len(self.bins):
            raise ValueError("len(bins) must be len(histogram) + 1")

    def encode(self) -> tuple[str, bytes]:
        rows = zip(self.bins, self.bins[1:], self.histogram)  # noqa: B905
        return Table(["from", "to", "count"], rows).encode()


def _counted(sequence: Any, bins: int) -> tuple[Any, Any]:
    """Return the counts and edges of equal bins, without NaN."""
    np = importlib.import_module("numpy")
    if hasattr(sequence, "detach"):  # torch
        sequence = sequence.detach().cpu().float()
    array = np.asarray(sequence, dtype=float)
    return np.histogram(array[np.isfinite(array)], bins=bins)  # type: ignore[no-any-return]


class KeptMedia:
    """The media files of a trial, and the time that they took."""

    def __init__(self) -> None:
        self.begun = time.monotonic()
        self.spent_s = 0.0
        self.files: dict[str, list[tuple[Path, int]]] = {}  # by key, the oldest first
        self.captions: dict[str, str] = {}  # by the file's name
        self.dropped: set[str] = set()

    def keep(self, key: str, value: Any, step: int) -> Any:
        """Keep a logged value that is not a number as files, or log that it is dropped.

        Returns what the summary has of the value.
        """
        values = list(value) if isinstance(value, (list, tuple)) else [value]
        is_data = {*map(type, values)} <= PLAIN
        found: list[Any] = []
        try:
            if is_data and not isinstance(value, str):
                raise TypeError("lists of numbers and texts are kept in run.summary only")
            for i, one in enumerate(() if is_data or rank() else values[:_BATCH]):
                media = _media(one)
                self._add(key, media, step, i)
                found.append(_cell(media))
        except Exception as error:  # of any library: media never fail a training
            if key not in self.dropped:
                self.dropped.add(key)
                log_once(f"{key[:_SHOWN]!r} is dropped: {str(error)[:_SHOWN]}")
        if is_data:
            return value
        found = found or [f"({type(one).__name__})" for one in values[:_BATCH]]
        return found if isinstance(value, (list, tuple)) else found[0]

    def _add(self, key: str, one: Media, step: int, number: int) -> None:
        """Write the file of the n-th object of a list, and remove older ones beyond the limits."""
        if self.spent_s > _ALLOWANCE_S + _SHARE * (time.monotonic() - self.begun):
            return log_once(f"some media are dropped: at most {_SHARE:.0%} of the time is for them")
        begun = time.thread_time()
        try:
            if isinstance(one, Table):
                cells = (cell for row in one.data[:_ROWS] for cell in row)
                inner = (cell for cell in cells if isinstance(cell, Media) and not cell.path)
                for i, cell in enumerate(islice(inner, _CELLS)):
                    self._write(key, cell, step, i)
            self._write(key, one, step, number)
        finally:
            self.spent_s += time.thread_time() - begun

    def _write(self, key: str, one: Media, step: int, number: int) -> None:
        ending, data = one.encode()
        if len(data) > _MOST_BYTES:
            raise TypeError(_TOO_LARGE)
        digest = f"{number:02x}{hashlib.sha256(data).hexdigest()[:18]}"  # sorts as the list does
        path = place("media", one.folder, f"{key}{one.suffix}_{step}_{digest}{ending}")
        if not path.exists():
            path.write_bytes(data)
            self.files.setdefault(key, []).append((path, len(data)))
        top = place("media").parent
        one.path = path.relative_to(top).as_posix()
        if one.caption is not None:
            self.captions[one.path] = str(one.caption)[:_CAPTION]
        while weight := self._excess():
            log_once(
                f"a trial keeps {_MOST_FILES} media files and {_MOST_BYTES >> 20} MiB: the oldest"
                " of the key with most make room"
            )
            gone = max(self.files.values(), key=weight).pop(0)[0]
            gone.unlink()
            self.captions.pop(gone.relative_to(top).as_posix(), None)
        if self.captions:
            place("media", "captions.json").write_text(json.dumps(self.captions), "utf-8")

    def _excess(self) -> Callable[[list[tuple[Path, int]]], int] | None:
        """Return what is over its limit, as a function of a key's files: their number or bytes."""
        limits: tuple[tuple[Callable[..., int], int], ...] = (
            (len, _MOST_FILES),
            (_bytes, _MOST_BYTES),
        )
        for weight, most in limits:
            if sum(map(weight, self.files.values())) > most:
                return weight
        return None


def _bytes(files: list[tuple[Path, int]]) -> int:
    return sum(size for _, size in files)


def _media(value: Any) -> Media:
    """Return the object that W&B makes of a logged value."""
    if isinstance(value, Media):
        return value
    if hasattr(value, "savefig") or (hasattr(value, "save") and hasattr(value, "getbands")):
        return Image(value)
    if hasattr(value, "to_plotly_json"):
        return Plotly(value)
    if hasattr(value, "to_numpy") and hasattr(value, "columns"):
        return Table(dataframe=value)
    if hasattr(value, "shape") and hasattr(value, "__array__"):
        return Histogram(value, num_bins=32)
    raise TypeError(f"{type(value).__name__} is not a number")


def __getattr__(name: str) -> Any:
    raise AttributeError(missing(f"wandb.{name}"))
