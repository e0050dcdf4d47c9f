"""The init container of the component git-code: its own script, on a real repository."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from hpq_producer.manifests.render import manifests_folder

FETCH = manifests_folder() / "components/git-code/fetch.yaml"
ME = ("-c", "user.name=me", "-c", "user.email=me@example.org")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits of train.py, and a branch that is nobody's."""
    made = tmp_path / "repository"
    git(tmp_path, "init", "-q", "-b", "main", str(made))
    for text in ("one", "two"):
        (made / "train.py").write_text(text, "utf-8")
        git(made, "add", "train.py")
        git(made, *ME, "commit", "-q", "-m", text)
    return made


def git(where: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=where, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def fetch(code: Path, repository: Path, commit: str) -> subprocess.CompletedProcess[str]:
    """What the init container runs, in its working directory."""
    code.mkdir(exist_ok=True)
    pod = yaml.safe_load(FETCH.read_text("utf-8"))["spec"]["template"]["spec"]
    (init,) = pod["initContainers"]
    command = [*init["command"], *init["args"]]
    env = {"PATH": "/usr/bin:/bin", "HOME": str(code), "URL": f"file://{repository}"}
    return subprocess.run(
        command,
        cwd=code,
        env={**env, "COMMIT": commit},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_tree_of_one_commit_is_fetched_also_a_second_time(
    repository: Path, tmp_path: Path
) -> None:
    old, new = git(repository, "rev-parse", "HEAD~1"), git(repository, "rev-parse", "HEAD")
    code = tmp_path / "code"
    for commit, text in ((new, "two"), (old, "one"), (old, "one")):  # a pod may start it again
        done = fetch(code, repository, commit)
        assert done.returncode == 0, done.stderr
        assert (code / "train.py").read_text("utf-8") == text


def test_a_commit_that_is_not_there_ends_the_pod(repository: Path, tmp_path: Path) -> None:
    done = fetch(tmp_path / "code", repository, "1" * 40)
    assert done.returncode != 0 and not (tmp_path / "code" / "train.py").exists()


def test_a_branch_in_a_commits_place_is_refused(repository: Path, tmp_path: Path) -> None:
    done = fetch(tmp_path / "code", repository, "main")
    assert done.returncode != 0
