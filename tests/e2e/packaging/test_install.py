"""hpq's wheel as a user has it: built here, installed over this environment's libraries."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from email import message_from_string
from pathlib import Path

import pytest
import yaml

from hpq import __version__
from tests.support.commands import stdout_of
from tests.support.constants import DEADLINE_S, ROOT

Installed = Callable[..., subprocess.CompletedProcess[str]]
SWEEP = """
program: train.py
command: [python, "${program}", "${args}"]
method: grid
metric: {name: loss, goal: minimize}
parameters: {lr: {values: [0.25, 0.5]}}
"""
FUNCTION = """
trainer: mine:train
code: .
method: grid
metric: {name: loss, goal: minimize}
parameters: {lr: {values: [0.25, 0.5]}}
"""
MINE = "from worker.model import loss\ndef train(params, trial): return {'loss': loss(params)}\n"
PRINTS = "import sys\nprint(sys.argv[1].replace('--lr', 'loss'))\n"
MODEL = "def loss(params):\n    return params['lr']\n"
PIP = (sys.executable, "-m", "pip", "--quiet")


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    options = ("--no-deps", "--no-build-isolation", "--no-index")
    built = [*PIP, "wheel", *options, "--wheel-dir", folder, ROOT]
    subprocess.run(built, check=True, timeout=DEADLINE_S)
    (path,) = folder.glob("hpq-*.whl")
    return path


def environment(folder: Path, wheel: Path) -> Path:
    """The Python of a new environment that has the wheel, and sees the libraries of this one."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    theirs = [p for p in sys.path if Path(p).name in ("site-packages", "dist-packages")]
    install(python, wheel)
    (site / "beside.pth").write_text("\n".join(theirs))
    return python


def install(python: Path, wheel: Path) -> None:
    options = ("--no-deps", "--no-index", "--ignore-installed")
    here = [*PIP, "--python", python, "install", *options, wheel]
    subprocess.run(here, check=True, timeout=DEADLINE_S)


@pytest.fixture(scope="session")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return environment(tmp_path_factory.mktemp("environment"), wheel)


@pytest.fixture
def hpq(python: Path, tmp_path: Path) -> Installed:
    return installed(python, tmp_path)


def installed(python: Path, tmp_path: Path) -> Installed:
    """Runs the installed hpq in an empty directory, with an empty home."""
    home, work = tmp_path / "home", tmp_path / "work"
    home.mkdir()
    work.mkdir()
    kept = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COLUMNS")}

    def run(*words: object, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python.with_name("hpq"), *map(str, words)],
            cwd=work,
            env={**kept, "HOME": str(home), "HPQ_HOME": str(home / "hpq"), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )

    return run


def test_the_wheel_says_what_an_index_shows(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as file:
        info = f"hpq-{__version__}.dist-info"
        said = message_from_string(file.read(f"{info}/METADATA").decode())
        license = file.read(f"{info}/licenses/LICENSE").decode()
    assert said["Version"] == __version__
    assert said["License-Expression"] == "Apache-2.0" and said["Author"]
    assert license == (ROOT / "LICENSE").read_text() and "Version 2.0, January 2004" in license
    assert not [c for c in said.get_all("Classifier", []) if c.startswith("Private")]
    assert said.get_all("Project-URL")
    plain = [r for r in said.get_all("Requires-Dist", []) if "extra ==" not in r]
    assert not [r for r in plain if r.startswith("kubernetes")]


def test_the_code_comes_from_the_wheel(python: Path, hpq: Installed) -> None:
    assert stdout_of(hpq("--version")) == f"hpq {__version__}\n"
    shown = subprocess.run(
        [python, "-c", "import hpq; print(hpq.__file__)"],
        cwd=python.parent, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(shown.stdout.strip()).is_relative_to(python.parent.parent)


def test_an_example_is_written_once_and_can_be_planned(hpq: Installed, tmp_path: Path) -> None:
    assert stdout_of(hpq("init", "--example", "digits")) == "digits.yaml\n"
    schema, written = (tmp_path / "work" / "digits.yaml").read_text().split("\n", 1)
    assert "sweep.schema.json" in schema
    assert written == (ROOT / "configs" / "digits.yaml").read_text()
    assert stdout_of(hpq("plan", "digits.yaml"))
    assert hpq("init", "--example", "digits").returncode == 2
    assert hpq("init", "--example", "nonsense").returncode == 2


def test_an_example_of_a_program_brings_the_program(hpq: Installed, tmp_path: Path) -> None:
    stdout_of(hpq("init", "--example", "wandb-bayes", "--out", "mine.yaml"))
    written = {path.name for path in (tmp_path / "work").iterdir()}
    assert written == {"mine.yaml", "wandb_train.py"}


def test_manifests_are_in_the_wheel(hpq: Installed) -> None:
    rendered = stdout_of(hpq("manifests", "--image", "hpq-worker:1"))
    assert "Deployment" in {one["kind"] for one in yaml.safe_load_all(rendered)}


def objectives(hpq: Installed, tmp_path: Path, sweep: str, **env: str) -> list[float]:
    """What the two trials of a sweep report, run to its end in the empty directory."""
    (tmp_path / "work" / "sweep.yaml").write_text(sweep)
    ran = hpq("run", "sweep.yaml", "--workers", "1", **env)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    rows = json.loads(stdout_of(hpq("results", "--json", **env)))
    return sorted(row["objective"] for row in rows)


@pytest.mark.slow
def test_a_sweep_of_a_program_runs_from_an_empty_home(hpq: Installed, tmp_path: Path) -> None:
    """Lua, the private server and the worker's wandb stand-in are the wheel's."""
    (tmp_path / "work" / "train.py").write_text(
        "import sys, wandb\nrun = wandb.init()\nwandb.log({'loss': run.config.lr})\n"
    )
    assert objectives(hpq, tmp_path, SWEEP) == [0.25, 0.5]


@pytest.mark.slow
def test_a_trainer_imports_a_package_of_its_own_that_is_called_worker(
    hpq: Installed, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "worker").mkdir()
    (work / "worker" / "__init__.py").touch()
    (work / "worker" / "model.py").write_text(MODEL)
    (work / "mine.py").write_text(MINE)
    assert objectives(hpq, tmp_path, FUNCTION) == [0.25, 0.5]


def test_a_package_producer_on_the_path_is_not_taken_for_hpqs(
    hpq: Installed, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    (work / "producer").mkdir()
    (work / "producer" / "__init__.py").write_text("raise SystemExit('not for hpq')\n")
    (work / "sweep.yaml").write_text(SWEEP)
    (work / "train.py").touch()
    assert stdout_of(hpq("plan", "sweep.yaml", PYTHONPATH="."))


@pytest.mark.slow
def test_a_file_worker_on_the_path_is_not_taken_for_hpqs(hpq: Installed, tmp_path: Path) -> None:
    work = tmp_path / "work"
    (work / "worker.py").write_text("raise SystemExit('not for hpq')\n")
    (work / "train.py").write_text(PRINTS)
    assert objectives(hpq, tmp_path, SWEEP, PYTHONPATH=".") == [0.25, 0.5]


@pytest.fixture
def beside(wheel: Path, tmp_path: Path) -> Path:
    """The Python of an environment that has hpq, and then another distribution with `worker`."""
    files = {
        "worker/__init__.py": "",
        "worker/__main__.py": "raise SystemExit('not for hpq')\n",
        "worker/model.py": MODEL,
        "theirs-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n",
        "theirs-1.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
    }
    files["theirs-1.0.dist-info/RECORD"] = "".join(f"{name},,\n" for name in files)
    theirs = tmp_path / "theirs-1.0-py3-none-any.whl"
    with zipfile.ZipFile(theirs, "w") as file:
        for name, text in files.items():
            file.writestr(name, text)
    python = environment(tmp_path / "environment", wheel)
    install(python, theirs)
    return python


@pytest.mark.slow
def test_another_distribution_that_ships_worker_lives_beside_hpq(
    beside: Path, tmp_path: Path
) -> None:
    hpq = installed(beside, tmp_path)
    (tmp_path / "work" / "mine.py").write_text(MINE)
    assert objectives(hpq, tmp_path, FUNCTION) == [0.25, 0.5]


@pytest.mark.slow
def test_the_removal_of_a_distribution_that_ships_worker_takes_nothing_of_hpq(
    beside: Path, tmp_path: Path
) -> None:
    subprocess.run([*PIP, "--python", beside, "uninstall", "--yes", "theirs"], check=True)
    hpq = installed(beside, tmp_path)
    (tmp_path / "work" / "train.py").write_text(PRINTS)
    assert objectives(hpq, tmp_path, SWEEP) == [0.25, 0.5]
