"""Version N of hpq, which meets this checkout on one server: a wheel of a recorded commit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.constants import ROOT

# The newest tag of a release. Until there is one: a commit that stores what this checkout stores.
RELEASED = "4659b31fd0ada2d80fd3fc17a09e6bba14fc45e4"


def install_released(folder: Path) -> Path:
    """Build and install version N below a folder; return what PYTHONPATH needs to name."""
    known = ("git", "cat-file", "-e", f"{RELEASED}^{{commit}}")
    if subprocess.run(known, cwd=ROOT, capture_output=True, check=False).returncode:
        pytest.skip(f"this clone lacks {RELEASED}, which is version N")
    tree, site = folder / "tree", folder / "site"
    tree.mkdir()
    packed = subprocess.run(("git", "archive", RELEASED), cwd=ROOT, capture_output=True, check=True)
    subprocess.run(("tar", "-x", "-C", tree), input=packed.stdout, check=True)
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    built = ("--no-deps", "--no-build-isolation", "--no-index")
    subprocess.run((*pip, "wheel", *built, "--wheel-dir", folder, tree), check=True)
    (wheel,) = folder.glob("hpq-*.whl")
    placed = ("--no-deps", "--no-index", "--target", site)
    subprocess.run((*pip, "install", *placed, wheel), check=True)
    return site
