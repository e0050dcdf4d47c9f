"""The examples by framework: the sweep files of examples/frameworks, as their pages say.

Most need a Python that has the framework; the variable ML_PYTHON names one, else these tests skip.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.constants import DEADLINE_S, ROOT
from tests.support.ids import ids

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


class Agent:
    """A client of the MCP SDK, which has started the server of examples/mcp."""

    def __init__(self, lab) -> None:
        client = ROOT / "tests" / "support" / "mcp_client.py"
        self._client = subprocess.Popen(
            [PYTHON, client, ROOT / "examples" / "mcp" / "server.py", lab.code],
            env=lab.env | {"HPQ_REDIS_URL": ""}, cwd=lab.folder,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self.tools: list[str] = self._read()

    def _read(self) -> Any:
        assert self._client.stdout
        return json.loads(self._client.stdout.readline())

    def _call(self, tool: str, arguments: dict[str, object]) -> Any:
        assert self._client.stdin
        self._client.stdin.write(json.dumps([tool, arguments]) + "\n")
        self._client.stdin.flush()
        return self._read()

    def gets(self, tool: str, **arguments: object) -> Any:
        """Return the data of a call."""
        is_error, text, data = self._call(tool, arguments)
        assert not is_error, text
        return data

    def refusal(self, tool: str, **arguments: object) -> list[str]:
        """Return the ids of a refused call."""
        is_error, text, _ = self._call(tool, arguments)
        assert is_error, text
        return ids(text)

    def end(self) -> None:
        self._client.communicate()
        assert self._client.returncode == 0


@pytest.fixture
def agent(lab) -> Iterator[Agent]:
    """An agent on the private server."""
    skip_without("mcp")
    for name in ("sweep.yaml", "train.py"):
        shutil.copy(ROOT / "examples" / "variants" / name, lab.code)
    made = Agent(lab)
    yield made
    made.end()
    lab.kill(lab.processes())  # the private server stays for a minute


@pytest.mark.slow
def test_an_agent_runs_a_sweep_through_the_mcp_server_from_plan_to_best(lab, agent: Agent) -> None:
    assert agent.tools == ["plan", "enqueue", "status", "best", "results", "stop", "cancel"]
    file = str(lab.code / "sweep.yaml")
    assert agent.gets("plan", file=file)["trials"] == 2
    sid = agent.gets("enqueue", file=file)["sweep"]
    again = agent.gets("enqueue", file=file)
    assert (again["sweep"], again["new"]) == (sid, False)
    waiting = agent.gets("status", sweep=sid)
    assert (waiting["queued"], waiting["needs_you"][0]["code"]) == (2, "no-worker")
    assert agent.refusal("best", sweep=sid) == ["no-result"]
    lab.worker(HPQ_REDIS_URL="")
    over = agent.gets("status", sweep=sid, wait_s=DEADLINE_S)
    assert (over["state"], over["finished"], over["needs_you"]) == ("finished", 2, []), over
    (first,) = agent.gets("best", sweep=sid)["result"]
    assert first["param"] == {"lr": 0.01} and first["objective"] == over["best"]
    ranked = agent.gets("best", sweep=sid, top=2)["result"]
    assert [trial["param"]["lr"] for trial in ranked] == [0.01, 0.1]
    (worse,) = agent.gets("results", sweep=sid, where="lr > 0.05")["result"]
    assert worse["trial"] == ranked[1]["trial"]


@pytest.mark.slow
def test_the_mcp_server_ends_sweeps_and_refuses_what_hpq_refuses_with_its_id(
    lab, agent: Agent
) -> None:
    file = str(lab.code / "sweep.yaml")
    assert agent.refusal("plan", file=file, overrides=["method=gird"]) == ["invalid-value"]
    (lab.folder / "other.yaml").write_text((lab.code / "sweep.yaml").read_text())
    (lab.code / "link.yaml").symlink_to(lab.folder / "other.yaml")
    (lab.code / "key.yaml").symlink_to(lab.home / "code.key")
    others = (lab.folder / "other.yaml", lab.code / ".." / "other.yaml", "/etc/passwd", "--help")
    for other in (*others, lab.home / "code.key", lab.code / "link.yaml", lab.code / "key.yaml"):
        for tool in ("plan", "enqueue"):
            assert agent.refusal(tool, file=str(other)) == ["file-not-found"], other
    for tool, count in (("stop", 1), ("cancel", 2)):
        sid = agent.gets("enqueue", file=file, overrides=[f"run_cap={count}"])["sweep"]
        assert agent.refusal(tool, sweep="") == ["sweep-not-found"]
        assert agent.gets(tool, sweep=sid)["cancelled"] == count
    for tool in ("status", "best", "results"):
        assert agent.refusal(tool, sweep="none") == ["sweep-not-found"]
    assert agent.refusal("results", sweep=sid, where="x >") == ["filter-invalid"]
