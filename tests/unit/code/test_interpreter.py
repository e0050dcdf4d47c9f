"""Which Python programs get: HPQ_PYTHON, else PATH's, else hpq's own."""

from __future__ import annotations

import sys
from pathlib import Path

from hpq.code.command import interpreter, is_own
from tests.support.ids import raises


def _program(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return str(path)


def test_a_program_gets_paths_python_then_python3_then_hpqs_own(tmp_path: Path) -> None:
    path = {"PATH": f"{tmp_path}/a:{tmp_path}/b"}
    assert interpreter(path) == sys.executable
    third = _program(tmp_path / "a" / "python3")
    assert interpreter(path) == third
    assert interpreter(path) == third
    first = _program(tmp_path / "b" / "python")
    assert interpreter(path) == first  # by name before place: W&B knows `python` only


def test_the_setting_comes_before_path_and_may_be_a_name_or_a_path(tmp_path: Path) -> None:
    path = {"PATH": f"{tmp_path}/a"}
    _program(tmp_path / "a" / "python")
    named = _program(tmp_path / "a" / "python3.12")
    assert interpreter(path, "python3.12") == named
    other = _program(tmp_path / "venv" / "bin" / "python")
    assert interpreter(path, other) == other
    with raises("python-not-found", "/no/where"):
        interpreter(path, "/no/where")


def test_hpqs_own_python_is_known_by_its_environment_and_not_by_where_its_link_leads() -> None:
    own = Path(sys.executable)
    assert is_own(str(own)) and is_own(str(own.with_name("python")))
    assert not is_own(str(own.with_name("hpq")))
    assert not is_own(str(own.resolve())) or own.resolve() == own
