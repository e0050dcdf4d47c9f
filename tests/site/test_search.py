"""The search of the site, by the index and the ranking that its pages use (`make site`)."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.constants import ROOT
from tests.support.searches import SEARCHED

SITE = ROOT / "site"
INDEX = SITE / "search.json"
FIRST = 3  # hits that a reader sees


@pytest.fixture(scope="module")
def found() -> dict[str, list[str]]:
    """The locations that each search finds, best first."""
    if not INDEX.exists() or not shutil.which("node"):
        pytest.skip("there is no site (`make site`), or no node")
    command = ["node", str(Path(__file__).with_name("search.js")), str(SITE), *SEARCHED]
    return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


@pytest.mark.parametrize("words", SEARCHED)
def test_a_search_finds_its_page_in_its_first_three_hits(
    found: dict[str, list[str]], words: str
) -> None:
    pages = [location.partition("#")[0].strip("/") for location in found[words][:FIRST]]
    assert SEARCHED[words].removesuffix(".md") in pages


@pytest.mark.skipif(not INDEX.exists(), reason="there is no site (`make site`)")
def test_the_page_of_errors_is_not_searched() -> None:
    items = json.loads(INDEX.read_text("utf-8"))["items"]
    assert items and not [one for one in items if "reference/errors" in one["location"]]
