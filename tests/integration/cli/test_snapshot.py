"""What a user reads about a snapshot before any trial runs, and which code is refused at plan."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpq.code.bundle import unpack
from tests.support.folders import git, write
from tests.support.ids import refused

SWEEP = "program: train.py\nmethod: grid\nparameters: {x: {value: 1}}\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A directory in a checkout; commands run at the checkout's root."""
    repo = tmp_path / "repo"
    write(
        repo,
        {
            "exp/train.py": "print('loss=1')\n",
            "lib.py": "",
            ".gitignore": "made.py\nauto/\n.venv/\n",
        },
    )
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("train.py", "repo/exp/train.py"))
    git(tmp_path, "init", "-q")
    return repo


def planned(hpq, *words: str) -> list[str]:
    done = hpq("plan", "sweep.yaml", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_checkout_that_is_too_large_names_what_the_snapshot_holds_instead(hpq, repo) -> None:
    for n in range(11):
        (repo / f"table{n}.py").write_text(f"x = '{'y' * 1_000_000}'\n")
    (line,) = [line for line in planned(hpq) if "more than 10 MiB" in line]
    assert f"{repo.parent} has" in line and f"holds {repo / 'exp'} alone" in line
    assert line in hpq("enqueue", "sweep.yaml").stderr


def test_modules_that_run_live_are_named_once(hpq, repo, tmp_path) -> None:
    elsewhere = tmp_path.with_name(f"{tmp_path.name}-elsewhere")
    write(elsewhere, {"net.py": ""})
    write(repo, {"exp/made.py": "", "auto/code.py": "", "data.csv": "", ".venv/x.py": ""})
    (repo / "linked").symlink_to(elsewhere)
    (repo / "out.py").symlink_to(elsewhere / "net.py")
    write(tmp_path / "images", {"1.png": ""})
    (repo / "images").symlink_to(tmp_path / "images")
    want = "not in the snapshot: repo/auto/, repo/exp/made.py, repo/linked/, repo/out.py"
    assert want in planned(hpq)
    said = hpq("enqueue", "sweep.yaml").stderr
    assert said.count("not in the snapshot: ") == 1 and want in said


def test_outside_git_linked_packages_and_large_modules_are_named(hpq, tmp_path) -> None:
    write(tmp_path / "code", {"train.py": "", "large.py": "x" * (1024 * 1024 + 1), "ok/a.py": ""})
    write(tmp_path / "elsewhere", {"net.py": ""})
    (tmp_path / "code" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "sweep.yaml").write_text(SWEEP.replace("train.py", "code/train.py"))
    # Outside git the snapshot is of the working directory.
    assert "not in the snapshot: code/large.py, code/linked/" in planned(hpq)
    write(tmp_path / "code", {"config.json": "{}", "large.json": "x" * (1024 * 1024 + 1)})
    write(tmp_path / "code", {"a.csv": "", ".hidden.json": "", "other-sweep.yaml": SWEEP})
    assert "not in the snapshot: code/config.json, code/large.py, code/linked/" in planned(hpq)


@pytest.mark.parametrize("is_in_git", [True, False])
def test_names_that_no_bundle_can_hold_are_left_out_and_named(
    hpq, repo, redis, keys, reader, is_in_git
) -> None:
    for name in (b"back\\slash.py", b"new\nline.py", b"caf\xe9.py"):
        with open(os.fsencode(repo / "exp") + b"/" + name, "w"):
            pass
    if not is_in_git:
        (repo.parent / ".git").rename(repo.parent / "no.git")
    (line,) = [line for line in planned(hpq) if line.startswith("not in the snapshot")]
    assert all(part in line for part in ("back\\slash.py", "line.py", "caf\\xe9.py")), line
    sid = hpq("enqueue", "sweep.yaml").stdout.strip()
    launch = reader.sweeps.get(sid).launch
    assert "lib.py" in {
        Path(name).name for name in unpack(redis.get(keys.bundle(launch.code)), launch.code)
    }


def test_thousands_of_tiny_modules_are_a_bundle_that_workers_accept_or_are_not_sent(
    hpq, repo, redis, keys, reader
) -> None:
    write(repo, {f"many/module_with_a_name_{'x' * 70}_{n}.py": "" for n in range(10_000)})
    sid = hpq("enqueue", "sweep.yaml").stdout.strip()
    launch = reader.sweeps.get(sid).launch
    assert len(unpack(redis.get(keys.bundle(launch.code)), launch.code)) == 10_002
    write(repo, {f"many/{n}.py": "" for n in range(300)})
    assert any("more than 10 MiB" in line for line in planned(hpq))


def test_a_module_runs_in_a_copy_and_a_program_in_the_directory_itself(hpq, repo) -> None:
    where = f"in {repo.parent}"
    assert f"runs repo/exp/train.py {where}" in planned(hpq)
    text = SWEEP.replace("program: train.py", "command: [python, -m, repo.lib]")
    (repo.parent / "sweep.yaml").write_text(text)
    line = f"runs python -m repo.lib in a copy of {repo.parent}"
    assert line in planned(hpq) and line in hpq("enqueue", "sweep.yaml").stderr


@pytest.mark.parametrize("command", ["[python, train.py, '${args}']", "[bash, -e, train.py]"])
@pytest.mark.parametrize("code", ["", "code: ..\n"])
def test_a_command_whose_script_is_missing_is_refused_at_plan(hpq, tmp_path, command, code) -> None:
    write(tmp_path, {"other.py": "", "exp/sweep.yaml": f"command: {command}\n{code}method: grid\n"
                   "parameters: {x: {value: 1}}\n"})  # fmt: skip
    for words in (("plan",), ("enqueue",)):
        refused(hpq(*words, "exp/sweep.yaml"), "code-invalid", "exp/sweep.yaml:1:1", "'train.py'")
    write(tmp_path, {"train.py": ""})
    assert hpq("plan", "exp/sweep.yaml").returncode == 0
