"""README, the tutorial and the skill: all their commands and files, typed in an empty home."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.constants import ROOT
from tests.support.pages import OUTPUT, PAGES, blocks, script, typed
from tests.support.server import find_server

pytest.importorskip("torch")
pytest.importorskip("sklearn")
pytest.importorskip("optuna")
pytestmark = [pytest.mark.slow, pytest.mark.torch, pytest.mark.timeout(1500)]
LIMIT_S = 1200.0  # a page is many commands; on a quiet machine README takes half a minute
# uv tool install PATH[EXTRAS], into an environment with the libraries of this one.
UV = """#!/bin/sh
set -e
test "$1 $2" = "tool install"
{python} -m venv --without-pip "$HOME/tool"
echo '{libraries}' >"$(echo "$HOME"/tool/lib/python3*/site-packages)/beside.pth"
"$HOME/tool/bin/python" -m pip --disable-pip-version-check install --quiet --no-deps \
  --no-build-isolation "${{3%%\\[*}}"
mkdir -p "$HOME/.local/bin"
ln -s "$HOME/tool/bin/hpq" "$HOME/.local/bin/"
"""
# Copies a file to the home of another machine of the page: scp FILE MACHINE:
SCP = """#!/bin/sh
mkdir -p '{folder}'/"${{2%:}}" && cp "$1" '{folder}'/"${{2%:}}"
"""
ASK = "\nhpq ls --all --json >{folder}/sweeps.json\n"


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of hpq in the directory where the reader begins to type."""
    made = tmp_path / "home" / "work" / "hpq"
    left_out = shutil.ignore_patterns(".*", "__pycache__", "tests", "benchmarks", "shared")
    return shutil.copytree(ROOT, made, ignore=left_out)


def libraries() -> str:
    """The lines of a .pth file for an environment that shall have the libraries of this one."""
    return "\n".join(path for path in sys.path if path.endswith("-packages"))


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


# tests/slurm types the page of Slurm.
TYPED = [page for page in PAGES if page.stem != "slurm"]


@pytest.mark.parametrize("page", TYPED, ids=lambda path: path.stem)
def test_a_page_works_as_it_is_printed(page: Path, tmp_path: Path, checkout: Path) -> None:
    """Type the blocks of a page; each sweep that they start must finish without a failure."""
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "redis-server").symlink_to(find_server())
    (tools / "scp").write_text(SCP.format(folder=tmp_path))
    (tools / "uv").write_text(UV.format(python=sys.executable, libraries=libraries()))
    for tool in ("scp", "uv"):
        (tools / tool).chmod(0o755)
    hpq = f"{tmp_path}/home/.local/bin:{Path(sys.executable).parent}"
    env = {
        "PATH": f"{tools}:{hpq}:{os.environ['PATH']}", "LANG": "C.UTF-8", "USER": "ana",
        "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    port = str(free_port())
    changed = {"SERVER": "127.0.0.1", "6379": port, "MACHINE-2": "machine-2"}
    text = script(blocks(page), tmp_path, cluster=False, changed=changed)
    typed(text + ASK.format(folder=tmp_path), tmp_path, env, LIMIT_S)
    sweeps = json.loads((tmp_path / "sweeps.json").read_text())
    if "hpq run" in text or "hpq enqueue" in text:
        assert sweeps
    for sweep in sweeps:
        assert sweep["state"] in ("finished", "cancelled") and not sweep["failed"], sweep


def test_every_block_says_what_it_is() -> None:
    for page in PAGES:
        for block in blocks(page):
            known = block.language in ("sh", "yaml", "python", OUTPUT)
            assert known, f"{page}: a block of {block.language or 'no language'}"
            if block.language not in ("sh", OUTPUT):
                (name,) = block.words  # readers see no word behind a language
                before = page.read_text("utf-8").partition(block.text)[0]
                assert f"`{name}`" in before, f"{page} does not name {name} before its text"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit_of_the_guide(tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "machines.md"
    (unit,) = [block for block in blocks(page) if block.language == "ini"]
    path = tmp_path / unit.words[0]
    path.write_text(unit.text.replace("%h/.local/bin/hpq", shutil.which("true") or ""))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", path],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
