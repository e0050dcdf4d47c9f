"""hpq in an environment of its own, training code in another: programs get the one on PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpq.domain.trial import TrialState

SWEEP = "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}\n"
ASKS = """
    import sys
    from importlib import metadata, util
    import hpq, wandb

    assert util.find_spec("redis") is None, "hpq's own libraries are not this program's"
    assert metadata.version("mine") == "2.0" and "hpq" in metadata.version("wandb")
    print("runs in", sys.executable)
    hpq.report({"loss": float(sys.argv[1].partition("=")[2])}, step=0)
"""


@pytest.fixture
def another(tmp_path: Path) -> Path:
    """The `bin` of a bare environment with one library of the user's."""
    venv = tmp_path / "theirs"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "mine-2.0.dist-info").mkdir()
    (site / "mine-2.0.dist-info" / "METADATA").write_text("Name: mine\nVersion: 2.0\n")
    return venv / "bin"


def test_a_program_runs_in_the_python_on_path_and_everything_agrees_on_it(lab, another) -> None:
    python = str(another / "python")
    lab.env["PATH"] = f"{another}{os.pathsep}{lab.env['PATH']}"
    lab.write("train.py", ASKS)
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid, 2).objective == 2.0, lab.printed(sid, 2)
    assert f"runs in {python}" in lab.printed(sid)
    told = json.loads(lab.ok("show", f"{sid}/1", "--provenance"))["attempts"][0]["ran_on"]
    assert told["programs"]["packages"] == {"mine": "2.0"} and "redis" in told["packages"]
    assert told["programs"]["interpreter"] == python
    assert python in " ".join(lab.hpq("doctor").stdout.split())


def test_a_missing_module_names_both_pythons_and_the_setting_that_mends_it(lab, another) -> None:
    lab.env["PATH"] = f"{another}{os.pathsep}{lab.env['PATH']}"
    lab.write("train.py", "import redis\nprint('loss=1')\n")
    sid = lab.enqueue(SWEEP)
    worker = lab.worker()
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.failed == 2, "two failures")
    failure = lab.trial(sid).failure
    assert failure is not None
    for said in (f"{another}/python", sys.executable, "HPQ_PYTHON"):
        assert said in failure.message
    worker.terminate()
    worker.wait()
    lab.worker(HPQ_PYTHON=sys.executable)
    lab.ok("retry", sid, "--yes")
    lab.wait_over(sid)
    assert lab.trial(sid).state is TrialState.FINISHED, lab.printed(sid)
