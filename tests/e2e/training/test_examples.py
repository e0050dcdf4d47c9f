"""The examples by framework: the sweep files of examples/frameworks, as their pages say.

Most need a Python that has the framework; the variable ML_PYTHON names one, else these tests skip.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.constants import ROOT
from tests.support.mcp_agent import connected

PYTHON = os.environ.get("ML_PYTHON", sys.executable)
FOLDER = ROOT / "examples" / "frameworks"
# What shortens the trials of a sweep file, and a file of a trial.
SHORT = {
    "sklearn": ("sklearn", ["parameters.images.value=60", "parameters.max_iter.value=2"], ""),
    "pytorch": ("torch", ["parameters.epochs.value=3"], "model.pt"),
    "lightgbm": ("lightgbm", ["parameters.trees.value=2"], ""),
    "keras": ("keras", ["parameters.epochs.value=1"], ""),
    "lightning": ("lightning", ["parameters.epochs.value=1"], ""),
    "lora": ("peft", ["parameters.epochs.value=1"], "adapter/adapter_config.json"),
    "hydra": ("hydra", [], ".hydra/overrides.yaml"),
    "torchrun": ("torch", ["parameters.epochs.value=2"], ""),
}


def test_each_sweep_file_of_the_examples_is_tested_and_in_the_gallery() -> None:
    files = {path.stem for path in FOLDER.glob("*.yaml")} - {"hydra_config"}
    assert files == SHORT.keys()
    page = (ROOT / "docs" / "guides" / "examples.md").read_text("utf-8")
    assert all(f"/{name}.yaml)" in page and f"/{name}_train.py)" in page for name in files)


def skip_without(library: str) -> None:
    looked = f"import importlib.util as u; u.find_spec('{library}').origin"
    if subprocess.run([PYTHON, "-c", looked], capture_output=True).returncode:
        pytest.skip(f"{library} is not installed (ML_PYTHON names a Python that has it)")


@pytest.mark.slow
@pytest.mark.parametrize("name", SHORT)
def test_an_example_runs(lab, name: str) -> None:
    library, sets, kept = SHORT[name]
    skip_without(library)
    for path in FOLDER.iterdir():
        shutil.copy(path, lab.code)
    flags = [word for one in sets for word in ("--set", one)]
    sid = lab.ok("enqueue", f"{name}.yaml", "--count", 1, *flags).strip()
    lab.worker(HPQ_STORE=str(lab.folder / "store"), HPQ_PYTHON=PYTHON, HF_HUB_OFFLINE="1")
    lab.wait_over(sid)
    trial = lab.trial(sid)
    assert trial.state == "finished" and trial.objective is not None, lab.printed(sid)
    files = trial.artifacts.files if trial.artifacts else []
    assert not kept or kept in files, files


def test_the_example_of_two_variants_shows_the_edited_line_and_both_sweeps(lab) -> None:
    for path in (ROOT / "examples" / "variants").iterdir():
        shutil.copy(path, lab.code)
    env = {**lab.env, "PATH": f"{Path(sys.executable).parent}:{lab.env['PATH']}"}
    words = [sys.executable, "compare.py"]
    shown = subprocess.run(words, cwd=lab.code, env=env, check=True, capture_output=True, text=True)
    assert "+    loss = loss * 0.8 + lr * 0.01" in shown.stdout
    sweeps = lab.reader.sweeps.ids()
    assert len(sweeps) == 2 and all(one in shown.stdout for one in sweeps)
    assert shown.stdout.splitlines()[-1] == "--lr=0.01"


@pytest.mark.slow
def test_an_agent_runs_a_sweep_on_the_private_server_from_plan_to_best(lab) -> None:
    for name in ("sweep.yaml", "train.py"):
        shutil.copy(ROOT / "examples" / "variants" / name, lab.code)
    with connected(lab.code, lab.env | {"HPQ_REDIS_URL": ""}, "--allow-writes") as agent:
        assert agent.gets("plan", file="sweep.yaml")["trials"] == 2
        sid = agent.gets("enqueue", file="sweep.yaml")["sweep"]
        waiting = agent.gets("status", sweep=sid)
        assert (waiting["queued"], waiting["needs_you"][0]["code"]) == (2, "no-worker")
        lab.worker(HPQ_REDIS_URL="")

        def has_ended() -> bool:
            return agent.gets("status", sweep=sid, wait_s=30)["state"] == "finished"

        lab.wait_until(has_ended, "the end")
        over = agent.gets("status", sweep=sid, since=waiting["cursor"])
        assert (over["finished"], over["needs_you"], over["all"]) == (2, [], True), over
        assert len(over["events"]) >= 4
        first, second = agent.gets("best", sweep=sid, top=2)["trials"]
        assert first["param"] == {"lr": 0.01} and first["objective"] == over["best"]
        (worse,) = agent.gets("results", sweep=sid, where="lr > 0.05")["trials"]
        assert worse["trial"] == second["trial"]
    lab.kill(lab.processes())  # the private server stays for a minute
