"""docs/operations.md lists every test that injects something, and none that is not there."""

from __future__ import annotations

import re
from pathlib import Path

from tests.cases import all_cases

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations.md"


def test_the_table_of_faults_has_a_line_for_each_test_that_injects_one() -> None:
    page = PAGE.read_text("utf-8")
    listed = set(re.findall(r"\| \[([^\]]+)\]\(\.\./tests/", page))
    assert listed == {case.happened for case in all_cases()}, "make the table anew: tests/cases.py"
