"""Refused sweep files: the place and the id of each line; golden texts hold the words."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from hpq.errors import SweepFileError
from hpq.notice import Notice
from hpq_producer.sweepfile.load import load
from tests.golden import Golden

_LINE = re.compile(r"(?:s\.yaml:)?(\d+:\d+|--\w+ [^ :]+): .*\[([a-z-]+)\]")


def places(golden: Golden, section: str, notices: Iterable[Notice], folder: Path) -> list[str]:
    """`LINE:COLUMN ID` of each notice, or the flag in place of the place; check the texts."""
    lines = [str(one).replace(f"{folder}/", "") for one in notices]
    golden.check("sweep-file-errors", section, "\n".join(lines))
    return [" ".join(found.groups()) for line in lines if (found := _LINE.fullmatch(line))]


def refused_file(folder: Path, text: str, **flags: object) -> SweepFileError:
    """The error that a sweep file s.yaml of this text raises."""
    file = folder / "s.yaml"
    file.write_text(text, "utf-8")
    with pytest.raises(SweepFileError) as caught:
        load(file, **flags)  # type: ignore[arg-type]
    return caught.value


def refusals(golden: Golden, section: str, folder: Path, text: str, **flags: object) -> list[str]:
    """`LINE:COLUMN ID` of each problem of a sweep file; check the texts."""
    return places(golden, section, refused_file(folder, text, **flags).notices, folder)
