"""Two programs of one name, in the working directory and beside the sweep file: it is said."""

from __future__ import annotations

import pytest

from tests.support.desk import Desk
from tests.support.ids import ids

SWEEP = "program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"


@pytest.mark.parametrize("word", ["enqueue", "plan"])
def test_another_program_of_that_name_beside_the_file_is_told_unless_one_is_named(
    desk: Desk, word: str
) -> None:
    beside = desk.folder / "deep"
    beside.mkdir()
    (beside / "sweep.yaml").write_text(SWEEP)
    (beside / "train.py").write_text("print('loss=2')\n")
    told = "program-ambiguous"
    assert told in ids(desk.hpq(word, "deep/sweep.yaml").stderr)
    assert told not in desk.hpq(word, "deep/sweep.yaml", "--code", "deep").stderr
    (beside / "train.py").write_text((desk.folder / "train.py").read_text())
    assert told not in desk.hpq(word, "deep/sweep.yaml").stderr
