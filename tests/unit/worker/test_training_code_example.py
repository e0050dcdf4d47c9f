"""The example of docs/guides/fast-trainer.md, run as it stands."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.support.commands import run_hpq
from tests.support.constants import DEADLINE_S, ROOT
from tests.support.libraries import needs

pytest.importorskip("torch")

pytestmark = [pytest.mark.torch, needs("sklearn")]


def test_the_example_of_the_page_trains_in_a_terminal(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "guides" / "fast-trainer.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (command,) = re.findall(r"`hpq (try train:[^`]*)`", page)
    assert len(code.strip().splitlines()) <= 32
    (tmp_path / "train.py").write_text(code, "utf-8")
    environ = {
        **os.environ, "HPQ_HOME": str(tmp_path / "home"), "PYTHONWARNINGS": "error",
        "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    done = run_hpq(command.split(), tmp_path, environ, DEADLINE_S)
    assert done.returncode == 0 and "\nloading digits\nepoch 1 of 2\n" in done.stderr
    steps = [line for line in done.stdout.splitlines() if "test/acc=" in line]
    assert [line.split(" ")[:2] for line in steps] == [["step", "1"], ["step", "2"]]
    assert float(re.findall(r"test/acc=([\d.]+)", steps[-1])[0]) > 0.5
