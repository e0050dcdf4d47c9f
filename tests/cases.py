"""`python -m tests.cases RESULTS.xml …`: the table of docs/operations.md, out of a real run.

A test that injects something says so in its docstring, after the numbers of the cases (F for
faults, B for bad input, R for what RQ alone does wrong) or the word for its subject.
RESULTS.xml is what `pytest --junitxml` has written.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
KINDS = ("e2e", "integration", "unit")
_SUBJECT = r"[FBR]\d+|Promise \d|Archive|Files|Guards|Memory|Security"
_CASES = re.compile(rf"(?P<cases>(?:(?:{_SUBJECT})(?:, )?)+): (?P<what>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One test that injects something."""

    cases: str
    injected: str
    file: str
    test: str

    @property
    def happened(self) -> str:
        """The test's name, as the sentence that it is."""
        return self.test.removeprefix("test_").replace("_", " ")


def all_cases() -> Iterator[Case]:
    """Every test whose docstring names cases, in the order of the files."""
    for path in (p for kind in KINDS for p in sorted(HERE.glob(f"{kind}/test_*.py"))):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                said = _CASES.fullmatch(" ".join((ast.get_docstring(node) or "").split()))
                if said is not None:
                    file = str(path.relative_to(HERE.parent))
                    yield Case(
                        cases=said["cases"], injected=said["what"].rstrip("."), file=file,
                        test=node.name,
                    )  # fmt: skip


def results(path: Path) -> dict[tuple[str, str], tuple[str, float]]:
    """How each (file, test) ended, and its seconds; variants of one test together."""
    found: dict[tuple[str, str], tuple[str, float]] = {}
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        file = str(case.get("classname")).replace(".", "/") + ".py"
        name = (file, str(case.get("name")).partition("[")[0])
        bad = next(
            (tag for tag in ("failure", "error", "skipped") if case.find(tag) is not None), ""
        )
        before = found.get(name, ("", 0.0))
        ended = bad or before[0] or "held"
        found[name] = (ended, before[1] + float(str(case.get("time"))))
    return found


def main() -> None:
    """Print the table."""
    ended: dict[tuple[str, str], tuple[str, float]] = {}
    for name in sys.argv[1:]:  # of a test that was run again the last one counts
        ended |= results(Path(name))
    print("| cases | injected | what happened | in this run |")
    print("|---|---|---|---|")
    for case in all_cases():
        how, seconds = ended.get((case.file, case.test), ("not run", 0.0))
        link = f"[{case.happened}](../{case.file})"
        print(f"| {case.cases} | {case.injected} | {link} | {how}, {seconds:.1f} s |")


if __name__ == "__main__":
    main()
