"""What users import from `hpq`, and what `import hpq` costs a program."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib import import_module
from inspect import ismodule
from pathlib import Path

import pytest

import hpq
from tests.support.constants import ROOT

LAZY = sorted(hpq._HOMES)
MODULES = ("errors",)
LOADED = """
import sys
before = set(sys.modules)
import hpq
print(*{m for m in sys.modules if m.partition(".")[0] not in sys.stdlib_module_names} - before)
"""


def bare(code: str, *roots: Path) -> subprocess.CompletedProcess[str]:
    """Run code in a Python that has no site-packages and only these directories on its path."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))}
    words = [sys.executable, "-S", "-P", "-W", "error", "-c", code]
    return subprocess.run(words, env=env, capture_output=True, text=True)


def test_importing_hpq_loads_nothing_but_the_standard_library() -> None:
    done = bare(LOADED, ROOT)
    assert (set(done.stdout.split()), done.stderr) == ({"hpq"}, "")


def test_no_public_name_hides_a_module_of_hpq() -> None:
    modules = {path.stem for path in (ROOT / "hpq").iterdir()}
    hidden = [name for name in modules & set(dir(hpq)) if not ismodule(getattr(hpq, name))]
    assert hidden == [] and callable(hpq.report)


def test_editors_and_type_checkers_see_the_names_where_they_are() -> None:
    tree = ast.parse((ROOT / "hpq" / "__init__.py").read_text("utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and node.orelse)
    seen = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for name in MODULES:
        assert seen.pop(name) == hpq._HOMES[name].rpartition(".")[0]
    assert seen == {name: hpq._HOMES[name] for name in LAZY if name not in MODULES}


@pytest.mark.parametrize("name", LAZY)
def test_every_name_is_there_and_is_listed(name: str) -> None:
    home = import_module(hpq._HOMES[name])
    assert getattr(hpq, name) is (home if name in MODULES else getattr(home, name))


def test_completion_lists_the_public_names_and_no_other() -> None:
    assert dir(hpq) == LAZY


def test_a_name_that_hpq_has_not_is_no_attribute() -> None:
    assert not hasattr(hpq, "nonsense")


def test_a_program_without_the_rest_of_hpq_is_told_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "hpq").symlink_to(ROOT / "hpq")  # as an attempt has it
    code = """
import sys
try:
    from hpq import Trial
except ImportError as error:
    for part in ("hpq.Trial", "hpq_worker", sys.executable, "pip install ./hpq`", "HPQ_PYTHON"):
        assert part in str(error), part
    print("refused")
"""
    done = bare(code, tmp_path)
    assert (done.stdout, done.stderr) == ("refused\n", "")
