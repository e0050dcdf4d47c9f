"""The pages: links, lengths, the generated ones, README, and words that hpq does not use."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import get_args

import pytest
import yaml

from docs import generate
from hpq.domain.retry_policy import RETRY_RULES
from hpq.domain.sweep import SweepState
from hpq.domain.trial import FailureKind, TrialState
from hpq.error_ids import Code
from tests.support.constants import ROOT
from tests.support.desk import run_here
from tests.support.pages import blocks

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
        ROOT / "tests" / "CASES.md",
    ]
)
GOLDEN = sorted((ROOT / "tests" / "golden").glob("*.txt"))
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
COLUMNS = 100
DOCS = ROOT / "docs"
FORGE = "https://github.com/hpq-project/hpq/blob/main/"


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
        if target.startswith(FORGE):  # a file outside docs/, which the site lacks
            assert (ROOT / target.removeprefix(FORGE)).exists(), f"{page} links to {target}"
        if target.startswith(("http:", "https:")):
            continue
        path = ((page.parent / target) if target else page).resolve()
        is_ours = DOCS in page.parents
        assert not is_ours or DOCS in path.parents, f"{page}: the site lacks {target}; use {FORGE}"
        assert path.exists(), f"{page} links to {target}"
        assert not anchor or anchor in anchors(path), f"{page} links to {target}#{anchor}"


@pytest.mark.parametrize("path", generate.PAGES, ids=relative)
def test_a_generated_page_is_current(path: Path) -> None:
    assert path.read_text("utf-8") == generate.PAGES[path](), "`make reference` writes it"


def test_each_id_of_an_error_is_explained_once_in_words_of_its_own() -> None:
    text = generate.ERRORS.read_text("utf-8")
    assert sorted(re.findall(r"^  ([a-z0-9-]+):$", text, re.M)) == sorted(get_args(Code))
    explained = [one for ids in yaml.safe_load(text).values() for one in ids.values()]
    assert all(one.keys() in ({"what", "why", "do"}, {"what"}) for one in explained)
    whats = [one["what"] for one in explained]
    assert len(set(whats)) == len(whats)


CONCEPTS = DOCS / "explanation" / "concepts.md"


def rows_below(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading of the concepts page, without its head."""
    part = CONCEPTS.read_text("utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line for line in part.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row.strip("|").split(" | ")] for row in rows[1:]]


@pytest.mark.parametrize(
    ("heading", "words"),
    [
        ("States of a trial", TrialState),
        ("States of a sweep", SweepState),
        ("Failure kinds", FailureKind),
    ],
)
def test_the_concepts_page_has_each_word_of_the_code(heading: str, words: type[StrEnum]) -> None:
    assert [row[0].strip("`") for row in rows_below(heading)] == [str(word) for word in words]


def test_the_concepts_page_names_the_kinds_that_hpq_retries() -> None:
    retried = {row[0].strip("`") for row in rows_below("Failure kinds") if row[-1] != "no"}
    rules = {kind for kind, rule in RETRY_RULES.items() if rule.retries or rule.released}
    assert retried == {FailureKind.LOST, *rules}


def test_the_glossary_is_sorted() -> None:
    words = [row[0] for row in rows_below("Glossary")]
    assert words == sorted(words, key=str.lower)


def _pages_of(nav: object) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in _pages_of(part)]  # type: ignore[attr-defined]


def test_the_site_lists_each_page_once() -> None:
    """The page of the decisions links each of them (`make site` builds the site)."""
    listed = _pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    pages = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(p for p in pages if "/decisions/0" not in p)


def test_the_text_for_language_models_lists_each_page_of_the_site() -> None:
    text = (DOCS / "llms.txt").read_text("utf-8")
    links = re.findall(r"^- \[[^]]+\]\((https:\S+?)(?:#\S+)?\): \S", text, re.M)
    assert len(links) == text.count("\n- ")
    nav = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]
    assert {generate.RAW + f"docs/{page}" for page in _pages_of(nav)} - {*links} == {
        generate.RAW + "docs/README.md"
    }


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


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_accepts_the_unit_of_the_guide(tmp_path: Path) -> None:
    page = ROOT / "docs" / "guides" / "machines.md"
    (unit,) = [block for block in blocks(page) if block.language == "ini"]
    path = tmp_path / unit.words[0]
    path.write_text(unit.text.replace("%h/hpq/.venv/bin/hpq", shutil.which("true") or ""))
    done = subprocess.run(
        ["systemd-analyze", "--user", "verify", path],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


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
