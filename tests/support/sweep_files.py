"""Assert places and ids of errors in sweep files; golden files have the texts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from hpq.errors import SweepFileError
from hpq.notice import Notice
from hpq_producer.sweepfile.load import load
from tests.support.golden import Golden

_LINE = re.compile(r"(?:s\.yaml:)?(\d+:\d+|--\w+ [^ :]+): .*\[([a-z-]+)\]")


def places(golden: Golden, section: str, notices: Iterable[Notice], folder: Path) -> list[str]:
    """Return `LINE:COLUMN ID`, or the option and the id, of each notice; check the texts."""
    lines = [str(one).replace(f"{folder}/", "") for one in notices]
    golden.check("sweep-file-errors", section, "\n".join(lines))
    return [" ".join(found.groups()) for line in lines if (found := _LINE.fullmatch(line))]


def refused_file(folder: Path, text: str, **flags: object) -> SweepFileError:
    """Return the error of a sweep file s.yaml of this text."""
    file = folder / "s.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(SweepFileError) as caught:
        load(file, **flags)  # type: ignore[arg-type]
    return caught.value


def refusals(golden: Golden, section: str, folder: Path, text: str, **flags: object) -> list[str]:
    """Return `LINE:COLUMN ID` of each problem of a sweep file; check the texts."""
    return places(golden, section, refused_file(folder, text, **flags).notices, folder)
