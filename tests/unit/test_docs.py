"""The pages: links, lengths, the generated ones, README, and words that hpq does not use."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from docs import generate
from tests.support.constants import ROOT
from tests.support.desk import run_here
from tests.support.pages import blocks

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), ROOT / "tests" / "CASES.md"])
GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.txt"))
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COLUMNS = 100


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(path: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCED.sub("", path.read_text("utf-8"))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)", prose(page)):
        if target.startswith(("http:", "https:")):
            continue
        path = (page.parent / target) if target else page
        assert path.exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(path), f"{page} links to {target}#{anchor}"


@pytest.mark.parametrize("path", generate.PAGES, ids=relative)
def test_a_generated_page_is_current(path: Path) -> None:
    assert path.read_text("utf-8") == generate.PAGES[path](), "`make reference` writes it"


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_lines_of_prose_are_wrapped(page: Path) -> None:
    """A row of a table and an address cannot be wrapped."""
    for line in prose(page).splitlines():
        if len(line) > COLUMNS:
            assert line.startswith("|") or " " not in line.strip("-* "), (page, line)


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text("utf-8")
    for page in (ROOT / "docs").rglob("*.md"):
        name = page.relative_to(ROOT / "docs").as_posix()
        if not name.startswith("explanation/decisions/0") and name != "README.md":
            assert f"]({name})" in index, name


def test_the_readme_is_short_and_names_only_commands_that_exist() -> None:
    page = ROOT / "README.md"
    assert page.stat().st_size <= 9000
    assert all(len(line) <= COLUMNS for line in page.read_text("utf-8").splitlines())
    paragraphs = [part for part in prose(page).split("\n\n") if not part.lstrip().startswith("|")]
    lists = [part for part in paragraphs if part.lstrip().startswith("- ")]
    assert all(part.strip().count("\n") < 5 for part in paragraphs if part not in lists)
    known = set(re.findall(r"^### hpq (\S+)$", generate.commands(), re.MULTILINE))
    typed = "\n".join(block.text for block in blocks(page) if block.language == "sh")
    used = re.findall(r"^hpq ([a-z-]+)", typed, re.M) + re.findall(r"`hpq ([a-z-]+)", prose(page))
    assert used and set(used) <= known, set(used) - known


# Words of prose.md's rules 2, 3 and 5, which came back most often.
WORDS = re.compile(
    r"\b(told|said|so many|whoever|nobody|somebody|no one|leaves it|left alone)\b", re.IGNORECASE
)
# What is allowed all the same: a page and the text around the word.
ALLOWED: dict[str, tuple[str, ...]] = {}


@pytest.mark.parametrize("path", [*PAGES, *GOLDEN], ids=relative)
def test_a_text_has_no_word_that_hpq_does_not_use(path: Path) -> None:
    text = path.read_text("utf-8")
    for allowed in ALLOWED.get(relative(path), ()):
        text = text.replace(allowed, "")
    found = [line for line in text.splitlines() if WORDS.search(line)]
    assert not found, found


def test_the_list_of_commands_has_no_word_that_hpq_does_not_use() -> None:
    assert not WORDS.findall(run_here(["--help"]).stdout)


# How hpq is installed until a package is on an index, in pages, messages and the notebook.
INSTALLED = re.compile(r"'\.\[([a-z,]+)\]'")


def test_hpq_is_installed_in_one_way_everywhere() -> None:
    """A message names libraries, which any installation of hpq may lack."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    sources = [p for part in ("hpq", "producer", "worker") for p in (ROOT / part).rglob("*.py")]
    extras = []
    for path in [*PAGES, *sources, *(ROOT / "examples").rglob("*.ipynb")]:
        text = path.read_text("utf-8")
        assert not re.search(r"install [^\n]*\bhpq(\[|==|\s*$)", text), path
        extras += [one for found in INSTALLED.findall(text) for one in found.split(",")]
    assert "bayes" in extras and set(extras) <= set(project["optional-dependencies"])
