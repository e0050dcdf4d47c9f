"""The files in .github: they parse, and run only what the Makefile has and .ci/run can run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.constants import ROOT

GITHUB = ROOT / ".github"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE))
ACTION = re.compile(r"[\w.-]+/[\w.-]+@(v\d+|release/v1)\Z")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_runs_only_targets_of_the_makefile(path: Path) -> None:
    jobs: dict[str, Any] = yaml.safe_load(path.read_text("utf-8"))["jobs"]
    for job in jobs.values():
        assert job["runs-on"] and job.get("needs", "check") in {*jobs, "check"}
        for step in job["steps"]:
            if "uses" in step:
                assert ACTION.match(step["uses"]), step
                continue
            command, *words = step["run"].split()
            targets = [word for word in words if not re.match(r"[A-Z_]+=", word)]
            assert command == "make" and targets and set(targets) <= TARGETS, step


def test_a_release_is_checked_before_anything_is_published() -> None:
    jobs = yaml.safe_load((GITHUB / "workflows" / "release.yml").read_text("utf-8"))["jobs"]
    assert {name for name, job in jobs.items() if "needs" not in job} == {"check"}
    writers = {name for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert writers == {"publish", "images"}


def test_templates_and_dependabot_parse() -> None:
    for template in (GITHUB / "ISSUE_TEMPLATE").glob("*.md"):
        head = yaml.safe_load(template.read_text("utf-8").split("---\n")[1])
        assert {"name", "about", "labels"} == set(head), template
    updates = yaml.safe_load((GITHUB / "dependabot.yml").read_text("utf-8"))["updates"]
    assert {one["package-ecosystem"] for one in updates} == {"pip", "github-actions", "docker"}
