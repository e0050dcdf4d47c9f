"""docs/operations.md lists every test that injects something, and every case has its test."""

from __future__ import annotations

import re

from tests.cases import all_cases
from tests.paths import ROOT

PAGE = ROOT / "docs" / "operations.md"


def test_the_table_of_faults_has_a_line_for_each_test_that_injects_one() -> None:
    page = PAGE.read_text("utf-8")
    listed = set(re.findall(r"\| \[([^\]]+)\]\(\.\./tests/", page))
    assert listed == {case.happened for case in all_cases()}, "make the table anew: tests/cases.py"


def test_every_case_that_needs_no_cluster_has_a_test() -> None:
    numbers = {"F": [*range(1, 25), 28, 29, 30], "B": range(1, 11), "R": range(1, 26)}
    wanted = {f"{letter}{n}" for letter, of in numbers.items() for n in of}
    shown = {number for case in all_cases() for number in case.cases.split(", ")}
    assert wanted - shown == set()
    assert {case.split()[0] for case in shown - wanted} <= {
        "Promise", "Archive", "Files", "Guards", "Memory", "Security",
    }  # fmt: skip
