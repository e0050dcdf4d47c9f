"""The pages: their links, the generated ones, and the tables that list words of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from docs import generate
from hpq.domain.retry_policy import RETRY_RULES
from hpq.domain.sweep import SweepState
from hpq.domain.trial import FailureKind, TrialState
from hpq.error_codes import Code
from hpq_views.analysis.output_records import WAITING
from tests.support.constants import ROOT
from tests.support.searches import SEARCHED

DOCS = ROOT / "docs"
PAGES = [
    *ROOT.glob("*.md"),
    *DOCS.rglob("*.md"),
    *(ROOT / "examples").rglob("*.md"),
    ROOT / "tests" / "CASES.md",
]
FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
FORGE = "https://github.com/hpq-project/hpq/blob/main/"
OFF_SITE = (DOCS / "results", DOCS / "explanation" / "decisions")  # `make site` leaves these out


def prose(path: Path) -> str:
    """Return a page without its fenced blocks."""
    return FENCED.sub("", path.read_text("utf-8"))


def anchors(path: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    heads = re.findall(r"^#+ (.+)$", prose(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def pages_of(nav: object) -> list[str]:
    """Return the pages of the site's menu, in its order."""
    if isinstance(nav, str):
        return [nav]
    parts = nav.values() if isinstance(nav, dict) else nav
    return [page for part in parts for page in pages_of(part)]  # type: ignore[attr-defined]


def in_site(path: Path) -> bool:
    """Return whether the site has this file."""
    return DOCS in path.parents and not any(folder in path.parents for folder in OFF_SITE)


def broken(page: Path, target: str, anchor: str) -> bool:
    """Return whether a link of a page leads nowhere, or out of the site if the page is in it."""
    if target.startswith(FORGE):
        path = ROOT / target.removeprefix(FORGE)
    elif target.startswith(("http:", "https:")):
        return False
    else:
        path = ((page.parent / target) if target else page).resolve()
        if in_site(page) and not in_site(path):
            return True
    return not path.exists() or (bool(anchor) and anchor not in anchors(path))


def test_every_link_leads_to_a_file_and_a_heading_and_every_page_is_linked() -> None:
    links = [(page, *found) for page in PAGES for found in LINK.findall(prose(page))]
    assert [link for link in links if broken(*link)] == []
    menu = pages_of(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"])
    index = {target for page, target, _ in links if page == DOCS / "README.md"}
    pages = [page for page in DOCS.rglob("*.md") if in_site(page)]
    listed = sorted(page.relative_to(DOCS).as_posix() for page in pages)
    assert sorted(menu) == listed and set(listed) <= {*index, "README.md"}
    records = {path.name for path in OFF_SITE[1].glob("0*.md")}
    assert records == {target for page, target, _ in links if page == OFF_SITE[1] / "README.md"}


@pytest.mark.parametrize("words", SEARCHED)
def test_a_section_of_the_page_has_all_words_of_a_search(words: str) -> None:
    """The site finds sections that have all words."""
    sections = re.split(r"^(?=#+ )", prose(DOCS / SEARCHED[words]).lower(), flags=re.MULTILINE)
    assert any(all(word in section for word in words.lower().split()) for section in sections)


def test_the_table_of_files_is_short_and_every_file_and_name_in_it_exists() -> None:
    folders = ("hpq", "views", "ops", "producer", "worker")
    files = [file for name in folders for file in (ROOT / name).rglob("*.*") if file.is_file()]
    tables = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Question")[2]
    questions, _, hops = tables.partition("## One parameter set")
    rows = [re.split(r" *\| *", line)[2] for line in tables.splitlines() if line.startswith("| ")]
    missing: list[str] = []
    for row in rows:
        found: list[Path] = []
        for word in re.findall(r"`([^`]+)`", row):
            if word.endswith((".py", ".lua")):
                found = [file for file in files if file.as_posix().endswith(f"/{word}")]
                is_there = bool(found)
            elif word.endswith("/"):
                is_there = (ROOT / word).is_dir()
            else:  # a name in the file before it
                texts = [file.read_text("utf-8") for file in found]
                is_there = any(all(n in text for n in word.split(".")) for text in texts)
            missing += [] if is_there else [word]
    assert missing == [] and len(rows) > 40 and "| parse |" in hops
    assert questions.count("\n| ") - 1 <= 30


def test_the_generated_pages_are_current() -> None:
    stale = [path for path, made in generate.PAGES.items() if path.read_text("utf-8") != made()]
    assert stale == [], "`make reference` writes them"


def test_each_id_of_an_error_is_explained_once_in_words_of_its_own() -> None:
    text = generate.ERRORS.read_text("utf-8")
    assert sorted(re.findall(r"^  ([a-z0-9-]+): ", text, re.M)) == sorted(get_args(Code))
    explained = [one for ids in yaml.safe_load(text).values() for one in ids.values()]
    assert len(set(explained)) == len(explained) and all(explained)


def rows_below(heading: str) -> list[list[str]]:
    """Return the rows of the table below a heading of the concepts page, without its head."""
    text = (DOCS / "explanation" / "concepts.md").read_text("utf-8")
    lines = text.split(f"\n## {heading}\n")[1].split("\n## ")[0].splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("| ")]
    return [[cell.strip(" `") for cell in row] for row in rows[1:]]


def test_the_concepts_page_lists_the_states_and_the_failures_with_those_that_are_retried() -> None:
    listed = {
        "States of a trial": TrialState,
        "States of a sweep": [SweepState.RUNNING, WAITING, *list(SweepState)[1:]],
        "Failure kinds": FailureKind,
    }
    for heading, words in listed.items():
        assert [row[0] for row in rows_below(heading)] == [str(word) for word in words]
    retried = {row[0] for row in rows_below("Failure kinds") if row[-1] != "no"}
    rules = {kind for kind, rule in RETRY_RULES.items() if rule.retries or rule.released}
    assert retried == {FailureKind.LOST, *rules}
