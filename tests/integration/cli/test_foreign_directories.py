"""Somebody's directory is planned and enqueued: none of its code runs, and nothing beside it is
read."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpq.code.bundle import unpack
from tests.support.folders import git, write
from tests.support.ids import refused

Hpq = Callable[..., subprocess.CompletedProcess[str]]
SWEEP = "program: train.py\nmethod: grid\nparameters: {x: {value: 1}}\n"


def commit(folder: Path, files: dict[str, str]) -> None:
    """Make a checkout of these files."""
    write(folder, files)
    git(folder, "init", "-qb", "main")
    git(folder, "add", "--force", "--all")
    git(folder, "commit", "-qm", "one")


class Trap:
    """A program of the attacker's, which leaves a file."""

    def __init__(self, folder: Path) -> None:
        self.sprung = folder / "sprung"
        self.path = folder / "trap"
        self.path.write_text(f"#!/bin/sh\ntouch {shlex.quote(str(self.sprung))}\ncat\n")
        self.path.chmod(0o755)

    def module(self) -> str:
        return f"open({str(self.sprung)!r}, 'w').close()\n"


@pytest.fixture
def trap(tmp_path: Path) -> Trap:
    return Trap(tmp_path)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkout of the attacker's, with an edited file, and one that was only written again."""
    repo = tmp_path / "repo"
    commit(repo, {"train.py": "print('loss=1')\n", "lib.py": "", "sweep.yaml": SWEEP})
    (repo / "train.py").write_text("print('loss=2')\n")
    os.utime(repo / "lib.py", (1, 1))  # git looks at it again, and then writes its index
    return repo


def a_monitor(repo: Path, trap: Trap) -> None:
    git(repo, "config", "core.fsmonitor", str(trap.path))


def a_hook(repo: Path, trap: Trap) -> None:
    (repo / ".git" / "hooks").mkdir(exist_ok=True)
    (repo / ".git" / "hooks" / "post-index-change").symlink_to(trap.path)


def a_hook_elsewhere(repo: Path, trap: Trap) -> None:
    write(repo, {"hooks/post-index-change": trap.path.read_text()})
    (repo / "hooks" / "post-index-change").chmod(0o755)
    git(repo, "config", "core.hooksPath", "hooks")


def a_filter(repo: Path, trap: Trap) -> None:
    (repo / ".gitattributes").write_text("*.py filter=it\n")
    git(repo, "config", "filter.it.clean", str(trap.path))


def a_filter_process(repo: Path, trap: Trap) -> None:
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("*.py filter=it\n")
    git(repo, "config", "filter.it.process", str(trap.path))


def an_included_configuration(repo: Path, trap: Trap) -> None:
    (repo / "more").write_text(f"[core]\nfsmonitor = {trap.path}\n")
    git(repo, "config", "include.path", str(repo / "more"))


def a_missing_object(repo: Path, trap: Trap) -> None:
    """git fetches an object that a partial clone lacks, by the command that the clone names."""
    blob = git(repo, "rev-parse", "HEAD:train.py")
    (repo / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    for name, value in (
        ("core.repositoryFormatVersion", "1"), ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"), ("remote.origin.url", "ssh://x/y"),
        ("core.sshCommand", str(trap.path)),
    ):  # fmt: skip
        git(repo, "config", name, value)


def a_monitor_of_a_submodule(repo: Path, trap: Trap) -> None:
    other = repo.with_name("other")
    commit(other, {"lib.py": ""})
    git(repo, "submodule", "add", "-q", str(other), "sub")
    a_monitor(repo / "sub", trap)


@pytest.mark.parametrize(
    "prepare",
    [
        a_monitor,
        a_hook,
        a_hook_elsewhere,
        a_filter,
        a_filter_process,
        an_included_configuration,
        a_missing_object,
        a_monitor_of_a_submodule,
    ],
)
def test_no_command_of_a_checkouts_configuration_runs(hpq: Hpq, repo, trap, prepare) -> None:
    prepare(repo, trap)
    for words in (("plan",), ("enqueue",), ("enqueue", "--new", "--code", repo)):
        done = hpq(words[0], repo / "sweep.yaml", *words[1:])
        assert done.returncode == 0, done.stderr
        assert not trap.sprung.exists(), words
    assert hpq("diff").returncode == 0
    assert not trap.sprung.exists()


def sent(hpq: Hpq, redis, keys, file: Path, *words: object) -> str:
    """Enqueue a file; return all that Redis then holds of its code and origin, as one text."""
    done = hpq("enqueue", file, *words)
    assert done.returncode == 0, done.stderr
    sid = done.stdout.strip()
    shown = hpq("show", sid, "--provenance")
    assert shown.returncode == 0, shown.stderr
    digest = json.loads(shown.stdout)["code"]["digest"]
    bundle = redis.get(keys.bundle(digest)) or b""
    files = unpack(bundle, digest) if bundle else {}
    return shown.stdout + "".join(f"{name}\n{data.decode()}" for name, (data, _) in files.items())


SECRET = "of-the-victim"


def another_worktree(repo: Path, private: Path) -> None:
    git(repo, "config", "core.worktree", "../..")


def a_git_file(repo: Path, private: Path) -> None:
    (repo / ".git").rename(repo / "no-git")
    (repo / ".git").write_text(f"gitdir: {private / '.git'}\n")


def a_link_to_a_git_directory(repo: Path, private: Path) -> None:
    (repo / ".git").rename(repo / "no-git")
    (repo / ".git").symlink_to(private / ".git")


def a_common_directory(repo: Path, private: Path) -> None:
    (repo / ".git" / "commondir").write_text(f"{private / '.git'}\n")


def links_to_objects_and_refs(repo: Path, private: Path) -> None:
    links_in(repo / ".git", private)


def a_made_up_worktree(repo: Path, private: Path) -> None:
    """The git directory points back to the checkout, and its common directory elsewhere."""
    (repo / ".git").rename(repo / "made")
    write(repo / "made", {"gitdir": f"{repo / '.git'}\n", "commondir": f"{private / '.git'}\n"})
    (repo / ".git").write_text("gitdir: made\n")


def alternate_objects(repo: Path, private: Path) -> None:
    write(repo, {".git/objects/info/alternates": f"{private / '.git' / 'objects'}\n"})
    write(repo, {".git/HEAD": f"{git(private, 'rev-parse', 'HEAD')}\n"})


def links_among_the_objects(repo: Path, private: Path) -> None:
    """Each directory of objects is a link; all that is needed of the other is a commit's id."""
    objects = repo / ".git" / "objects"
    for name in ("pack", *(f"{n:02x}" for n in range(256))):
        shutil.rmtree(objects / name, ignore_errors=True)
        (objects / name).symlink_to(private / ".git" / "objects" / name)
    write(repo, {".git/HEAD": f"{git(private, 'rev-parse', 'HEAD')}\n"})


def a_git_file_that_ends_with_a_blank(repo: Path, private: Path) -> None:
    """git reads the blank as a part of the path."""
    (repo / ".git").rename(repo / "made")
    (repo / "made ").symlink_to(private / ".git")
    (repo / ".git").write_text("gitdir: made ")


def a_worktree_of_linked_objects(repo: Path, private: Path) -> None:
    common = repo.with_name("common")
    (repo / ".git").rename(common)
    links_in(common, private)
    tree = common / "worktrees" / "repo"
    write(tree, {"gitdir": f"{repo / '.git'}\n", "commondir": "../..\n"})
    write(tree, {"HEAD": "ref: refs/heads/main\n"})
    (common / "index").rename(tree / "index")
    (repo / ".git").write_text(f"gitdir: {tree}\n")


def a_submodule_of_linked_objects(repo: Path, private: Path) -> None:
    made = repo.with_name("made")
    (repo / ".git").rename(made)
    links_in(made, private)
    subprocess.run(["git", "config", "--file", made / "config", "core.worktree", repo], check=True)
    (repo / ".git").write_text(f"gitdir: {made}\n")


def links_in(folder: Path, private: Path) -> None:
    for name in ("objects", "refs"):
        (folder / name).rename(folder / f"no-{name}")
        (folder / name).symlink_to(private / ".git" / name)


def an_included_remote(repo: Path, private: Path) -> None:
    git(private, "config", "remote.origin.url", f"ssh://host/{SECRET}")
    git(repo, "config", "include.path", str(private / ".git" / "config"))


def a_linked_configuration(repo: Path, private: Path) -> None:
    git(private, "config", "remote.origin.url", f"ssh://host/{SECRET}")
    (repo / ".git" / "config").unlink()
    (repo / ".git" / "config").symlink_to(private / ".git" / "config")


def a_linked_directory(repo: Path, private: Path) -> None:
    write(repo, {"data/settings.py": ""})
    git(repo, "add", ".")
    (repo / "data" / "settings.py").unlink()
    (repo / "data").rmdir()
    (repo / "data").symlink_to(private)


def a_linked_word(repo: Path, private: Path) -> None:
    (repo / "words.json").symlink_to(private / "secret.json")
    (repo / "sweep.yaml").write_text(SWEEP + "command: [python, train.py, words.json]\n")


@pytest.mark.parametrize(
    "prepare",
    [
        another_worktree,
        a_git_file,
        a_link_to_a_git_directory,
        a_common_directory,
        links_to_objects_and_refs,
        alternate_objects,
        links_among_the_objects,
        a_git_file_that_ends_with_a_blank,
        a_worktree_of_linked_objects,
        a_submodule_of_linked_objects,
        an_included_remote,
        a_linked_configuration,
        a_made_up_worktree,
        a_linked_directory,
        a_linked_word,
    ],
)
@pytest.mark.parametrize("is_sent", [False, True])
def test_no_checkout_leads_to_files_elsewhere(
    hpq: Hpq, repo, redis, keys, prepare, is_sent: bool
) -> None:
    private = repo.with_name("private")
    commit(private, {"settings.py": f"key = '{SECRET}'\n", "secret.json": f'"{SECRET}"\n'})
    (repo / "settings.py").write_text("")  # the victim's repository has a file of this name
    prepare(repo, private)
    words = ("--code", repo) if is_sent else ()
    assert SECRET not in sent(hpq, redis, keys, repo / "sweep.yaml", *words)


def test_a_program_that_is_a_link_out_of_the_code_is_refused(hpq: Hpq, repo) -> None:
    private = repo.with_name("private")
    write(private, {"secret.json": SECRET})
    (repo / "train.py").unlink()
    (repo / "train.py").symlink_to(private / "secret.json")
    for words in (("plan",), ("enqueue",), ("enqueue", "--code", repo)):
        refused(hpq(words[0], repo / "sweep.yaml", *words[1:]), "code-invalid", "secret.json")


def test_a_link_to_gits_configuration_is_not_sent(hpq: Hpq, repo, redis, keys) -> None:
    git(repo, "config", "remote.origin.url", f"https://me:{SECRET}@host/x")
    (repo / "words.json").symlink_to(".git/config")
    git(repo, "add", ".")
    assert SECRET not in sent(hpq, redis, keys, repo / "sweep.yaml")
    (repo / "sweep.yaml").write_text(SWEEP.replace("train.py", ".git/config"))
    assert SECRET not in sent(hpq, redis, keys, repo / "sweep.yaml")


def test_a_worktree_a_submodule_and_a_directory_below_are_checkouts(
    hpq: Hpq, repo, redis, keys
) -> None:
    """Their git directories are elsewhere, and name them."""
    other = repo.with_name("other")
    commit(other, {"lib.py": "one = 1\n"})
    git(repo, "submodule", "add", "-q", str(other), "sub")
    git(repo, "commit", "-aqm", "two")
    git(repo, "worktree", "add", "-q", str(tree := repo.with_name("tree")))
    (tree / "lib.py").write_text("of_the_worktree = 1\n")
    write(repo, {"sub/lib.py": "one = 2\n", "deep/new.py": "of_the_branch = 1\n"})
    (repo / "deep" / "sweep.yaml").write_text(SWEEP.replace("train.py", "../train.py"))
    told = sent(hpq, redis, keys, tree / "sweep.yaml")
    assert "+of_the_worktree = 1" in told and git(tree, "rev-parse", "HEAD") in told
    told = sent(hpq, redis, keys, repo / "deep" / "sweep.yaml")
    assert "-one = 1\\n+one = 2" in told and "+of_the_branch = 1" in told


def test_a_clone_that_shares_objects_says_which_files_differ(hpq: Hpq, repo, redis, keys) -> None:
    """Its commits may be of any repository, so none of their text is sent."""
    git(repo, "clone", "-q", "--shared", str(repo), str(clone := repo.with_name("clone")))
    write(clone, {".gitignore": "made.py\n", "made.py": SECRET, "lib.py": "one = 1\n"})
    told = sent(hpq, redis, keys, clone / "sweep.yaml")
    assert "Files a/lib.py and b/lib.py differ" in told and "train.py differ" not in told
    assert SECRET not in told and git(clone, "rev-parse", "HEAD") in told


@pytest.mark.parametrize(
    "data",
    [b"gitdir: a\0b", b"gitdir: ", b"\xff", b"gitdir: " + b"a/" * 5000, b"gitdir: /dev/zero"],
)
def test_a_git_file_that_names_no_directory_is_no_checkout(hpq: Hpq, repo, data: bytes) -> None:
    (repo / ".git").rename(repo / "no-git")
    (repo / ".git").write_bytes(data)
    assert hpq("plan", repo / "sweep.yaml").returncode == 0
    (repo / ".git").unlink()
    (repo / "no-git" / "HEAD").unlink()
    (repo / "no-git" / "HEAD").symlink_to("HEAD")
    (repo / "no-git").rename(repo / ".git")
    assert hpq("plan", repo / "sweep.yaml").returncode == 0


def test_an_example_is_written_through_no_link(hpq: Hpq, repo, tmp_path) -> None:
    made = tmp_path / "usercustomize.py"
    (repo / "wandb_train.py").symlink_to(made)
    words = ("init", "--example", "wandb-bayes", "--out", repo / "sweep2.yaml")
    refused(hpq(*words), "file-exists", "wandb_train.py")
    assert not made.exists()
    (repo / "wandb_train.py").unlink()
    for _ in range(2):  # the same text may be there
        assert hpq(*words).returncode == 0
        (repo / "sweep2.yaml").unlink()


def test_the_variables_of_a_git_hook_name_no_other_repository(
    hpq: Hpq, repo, trap, redis, keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = repo.with_name("other")
    commit(other, {"train.py": SECRET})
    a_filter(other, trap)
    environ = {
        "GIT_DIR": str(other / ".git"), "GIT_WORK_TREE": str(other),
        "GIT_INDEX_FILE": str(other / ".git" / "index"), "GIT_EXTERNAL_DIFF": str(trap.path),
        "GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(trap.path),
    }  # fmt: skip
    done = hpq("enqueue", repo / "sweep.yaml", **environ)
    assert done.returncode == 0 and not trap.sprung.exists(), done.stderr
    told = json.loads(hpq("show", done.stdout.strip(), "--provenance", **environ).stdout)
    assert told["git"]["commit"] == git(repo, "rev-parse", "HEAD")
    assert SECRET not in json.dumps(told)


KEY = "-----BEGIN PRIVATE KEY-----\n"
TOKEN = f"hpq-invite-1-{20 * 'aB3_'}\n"


@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        (".env", f"A={SECRET}", "A=b"),
        ("lib/prod.env", f"A={SECRET}", "A=b"),
        ("tls.pem", SECRET, "new"),
        ("deploy.key", SECRET, "new"),
        ("kubeconfig.yaml", f"token: {SECRET}", "token: new"),
        ("id_rsa", SECRET, "new"),
        ("credentials.json", f'"{SECRET}"', '"new"'),
        ("settings.yaml", f"# {SECRET}\n{KEY}", "a: 1\n"),
        ("settings.yaml", "a: 1\n", f"# {SECRET}\n{KEY}"),
        ("host.toml", f"# {SECRET}\n{TOKEN}", "a = 1\n"),
        ("notes.txt", SECRET, "new"),  # no code
        ("big.json", f'"{SECRET}{"x" * 1024 * 1024}"', "1"),
        ("gone.py", f"# {SECRET}", None),
    ],
)
def test_the_diff_holds_no_file_that_the_snapshot_leaves_out(
    hpq: Hpq, repo, redis, keys, name: str, before: str, after: str | None
) -> None:
    commit(repo, {name: before})
    (repo / name).unlink()
    write(repo, {} if after is None else {name: after})
    (repo / "train.py").write_text("print('loss=3')\n")
    told = sent(hpq, redis, keys, repo / "sweep.yaml")
    assert SECRET not in told and "+print('loss=3')" in told


def test_a_built_in_trainers_sweep_sends_no_diff(hpq: Hpq, repo, redis, keys) -> None:
    (repo / "sweep.yaml").write_text(
        SWEEP.replace("program: train.py", "trainer: digits").replace("x:", "epochs:")
    )
    (repo / "lib.py").write_text(f"# {SECRET}\n")
    told = sent(hpq, redis, keys, repo / "sweep.yaml")
    assert SECRET not in told and git(repo, "rev-parse", "HEAD") in told


def test_no_module_of_the_current_directory_is_imported(
    hpq_process: Hpq, tmp_path: Path, trap
) -> None:
    """Neither by hpq's own processes, nor by the Python of programs when hpq asks it something."""
    ours = ("hpq", "hpq_views", "hpq_ops", "hpq_producer", "hpq_worker")
    theirs = ("yaml", "redis", "typer", "pydantic", "rq", "sitecustomize", "usercustomize")
    for name in {*sys.stdlib_module_names, *theirs, *ours}:
        (tmp_path / f"{name}.py").write_text(trap.module())
    (tmp_path / "train.py").write_text("")
    (tmp_path / "sweep.yaml").write_text(SWEEP)
    for words in (
        ("plan", "sweep.yaml"),
        ("enqueue", "sweep.yaml"),
        ("invite", "--file", "token"),
        ("join", "--no-worker", "token"),
        ("leave",),
        ("doctor",),
        ("worker", "--until-idle", "1s", "--queue", "empty"),
    ):
        joins = {"HPQ_REDIS_URL": ""} if words[0] in ("join", "leave") else {}
        done = hpq_process(*words, **joins)
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        assert not trap.sprung.exists(), words
