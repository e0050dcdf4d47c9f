"""What a snapshot of local code holds, and what it never holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpq.code.command import is_in_users_directory
from hpq.code.snapshot import git_root, take_snapshot
from hpq.domain.sweep import Launch
from tests.support.folders import git, write

SECRETS = (
    *(".env", ".env.prod", "a.pem", "tls.key", "id_rsa", "id_ed25519.pub", ".netrc"),
    *("my-credentials.json", "Credentials.yaml", "account.json", "id_rsa.json", "prod.env"),
    *(".pypirc", "kubeconfig.yaml", "host.yaml", "token", "notes.md"),
)
PRIVATE = {
    "account.json": '{"private_key": 1}',
    "token": f"hpq-invite-1-{20 * 'aB3_'}\n",
    "notes.md": f"hpq-invite-1-\n{20 * 'aB3_'}\n",
    "host.yaml": "key: |\n  -----BEGIN OPENSSH PRIVATE KEY-----\n",
}


def put(folder: Path, *names: str) -> None:
    write(folder, {name: PRIVATE.get(name, name) for name in names})


@pytest.mark.parametrize("is_sent", [False, True])
def test_secrets_are_in_no_snapshot_even_where_git_tracks_them(tmp_path, is_sent: bool) -> None:
    put(tmp_path, "train.py", "credentials.py", "id_map.json", *SECRETS)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "--force", ".")
    files = take_snapshot(tmp_path, ["train.py", "token"], is_sent=is_sent)
    assert set(files) == {"train.py", "credentials.py", "id_map.json"}


def test_a_snapshot_holds_submodules_and_neither_data_nor_links_out_of_the_code(tmp_path) -> None:
    repo, other = tmp_path / "repo", tmp_path / "other"
    put(other, "lib.py")
    put(repo, "train.py", "deep/conf.yaml", "data.bin", "notes.md", "real.py")
    (repo / "large.json").write_bytes(bytes(1024 * 1024 + 1))
    (repo / "out.py").symlink_to(other / "lib.py")
    (repo / "within.py").symlink_to("real.py")
    for folder in (other, repo):
        git(folder, "init", "-q")
        git(folder, "add", ".")
        git(folder, "commit", "-qm", "one")
    git(repo, "submodule", "add", "-q", str(other), "sub")
    put(repo, "new.py", "new.json")
    want = {"train.py", "deep/conf.yaml", "real.py", "within.py", "sub/lib.py", "new.py"}
    assert set(take_snapshot(repo)) == want
    assert git_root(repo / "deep") == repo and git_root(tmp_path) is None


@pytest.mark.parametrize(
    ("is_so", "command"),
    [
        (True, ()),
        (True, ("python", "train.py", "${args}")),
        (True, ("/usr/bin/env", "A=1", "python3.11", "-u", "-X", "dev", "${program}")),
        (True, ("${interpreter}", "-O", "${program}")),
        (False, ("python", "-m", "train")),
        (False, ("python", "-um", "train")),
        (False, ("python", "-c", "import train", "train.py")),
        (False, ("bash", "run.sh")),
        (False, ("sh", "${program}")),
        (False, ("torchrun", "${program}")),
        (False, ("${program}",)),
        (False, ("my-train", "${args}")),
    ],
)
def test_the_users_directory_is_for_what_an_interpreter_starts(is_so: bool, command) -> None:
    launch = Launch(program="train.py", command=command)
    assert is_in_users_directory(launch) is is_so


@pytest.mark.parametrize("is_sent", [True, False])
def test_a_link_that_leaves_the_directory_is_never_in_a_snapshot(
    tmp_path: Path, is_sent: bool
) -> None:
    put(tmp_path, "outside.txt", "code/t.py", "code/lib.py")
    code = tmp_path / "code"
    (code / "leak.yaml").symlink_to(tmp_path / "outside.txt")
    (code / "alias.py").symlink_to(code / "lib.py")
    git(code, "init", "-q")
    git(code, "add", "-A")
    assert sorted(take_snapshot(code, is_sent=is_sent)) == ["alias.py", "lib.py", "t.py"]
