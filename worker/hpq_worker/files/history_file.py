"""Every report of a trial, a JSON line each, among the trial's files (`history: all`).

A checkpoint carries the file, so that a trial that resumes has one history.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from hpq.private_files import make_private

NAME = "hpq-history.jsonl"
IN_CHECKPOINT = f".{NAME}"  # hidden: training code sees no file that it has not written
_STEP, _TIME = "_step", "_timestamp"  # as W&B names them; "step" may be a metric
_MOST_BYTES = 256 * 2**20


class HistoryFile:
    """Appends reports to a file, up to 256 MiB; the first one creates it.

    Raises, when created: OSError if its directory cannot be made.
    """

    def __init__(self, out: Path) -> None:
        make_private(out)
        self._path, self._is_over = out / NAME, False
        self._resumed_bytes = self._path.stat().st_size if self._path.exists() else 0

    def add(self, rows: Mapping[int, Mapping[str, float]]) -> str:
        """Write the values of each step; return why the file ends here, once."""
        if self._is_over or not rows:
            return ""
        now = round(time.time(), 3)
        try:
            with self._path.open("ab", buffering=0) as file:
                for step, values in rows.items():
                    finite = {k: v if math.isfinite(v) else None for k, v in values.items()}
                    file.write(json.dumps({**finite, _STEP: step, _TIME: now}).encode() + b"\n")
                if file.tell() < _MOST_BYTES:
                    return ""
            why = "it has 256 MiB"
        except OSError as error:
            why = str(error)
        self._is_over = True
        return f"{NAME} ends here: {why}"

    def rewind(self) -> None:
        """Remove what this attempt has added; ignore a disk that refuses it."""
        with suppress(OSError):
            os.truncate(self._path, self._resumed_bytes)


def resume(checkpoint: Path, out: Path, counts: Mapping[str, int]) -> None:
    """Move the history out of a restored checkpoint, without values after the checkpoint.

    `counts` are the values of each metric at the checkpoint. The history ends at the first
    line that is no report.

    Raises:
        OSError: the disk is full.
    """
    carried, seen = checkpoint / IN_CHECKPOINT, Counter[str]()
    if not carried.exists():
        return
    make_private(out)
    source = carried.open(encoding="utf-8", errors="replace")
    with source, (out / NAME).open("w", encoding="utf-8") as to:
        for line in source:
            if not line.endswith("\n"):  # written while the file was copied
                break
            try:
                row = json.loads(line)
                seen.update(row.keys())
            except (ValueError, AttributeError, RecursionError):  # another writer of the store's
                break
            for name in row.keys() - {_STEP, _TIME}:
                if seen[name] > counts.get(name, 0):
                    del row[name]
            if len(row) > 2:
                to.write(json.dumps(row) + "\n")
    carried.unlink()
