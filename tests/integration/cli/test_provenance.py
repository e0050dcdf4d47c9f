"""Everything is versioned: the file, git's state, the code itself, what each attempt ran on."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hpq.code import bundle, snapshot
from hpq.domain.attempt import Outcome, WorkerPresence
from hpq.domain.trial import Claim, TrialState
from hpq.store.trials import TrialStore
from tests.support.folders import git, write
from tests.support.ids import refused

Hpq = Callable[..., subprocess.CompletedProcess[str]]
SWEEP = "# by me\r\nprogram: train.py\r\nmethod: grid\r\nparameters: {x: {values: [1, 2]}}\r\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A user's repository in the folder where commands run, with a change not committed."""
    files = {"lib/model.py": "width = 1\n", "train.py": "import lib.model\n"}
    write(tmp_path, {**files, ".gitignore": "home\nback\n*.archive\n"})
    (tmp_path / "train.py").chmod(0o755)
    (tmp_path / "sweep.yaml").write_bytes(SWEEP.encode())
    git(tmp_path, "init", "-qb", "trunk")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    (tmp_path / "lib" / "model.py").write_text("width = 2\n")
    return tmp_path


def enqueue(hpq: Hpq, *flags: str) -> str:
    done = hpq("enqueue", "sweep.yaml", *flags)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def origin(hpq: Hpq, what: str) -> dict:
    done = hpq("show", what, "--provenance")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_sweep_knows_its_file_to_the_byte_and_the_state_of_its_repository(hpq, repo) -> None:
    told = origin(hpq, enqueue(hpq))
    assert told["text"] == SWEEP and told["seed"] == 0
    assert told["sha256"] == hashlib.sha256(SWEEP.encode()).hexdigest()
    git = told["git"]
    assert git["branch"] == "trunk" and len(git["commit"]) == 40 and git["dirty"] is True
    assert "-width = 1\n+width = 2\n" in git["diff"] and git["diff_is_cut"] is False
    assert set(told["code"]["files"]) == {"lib/model.py", "train.py"}


def test_a_diff_is_cut_at_one_mebibyte_and_says_so(hpq, repo) -> None:
    for name in ("lib/model.py", "train.py"):  # a larger file is in no snapshot
        (repo / name).write_text("# long\n" * 140_000)
    git = origin(hpq, enqueue(hpq))["git"]
    assert len(git["diff"]) == 1024 * 1024 < git["diff_bytes"] and git["diff_is_cut"] is True


def test_the_code_comes_back_as_it_was_and_goes_with_the_last_sweep_of_it(
    hpq, repo, redis, keys
) -> None:
    sid, other = enqueue(hpq), enqueue(hpq, "--new")
    digest = redis.hget(keys.sweep(sid), "bundle").decode()
    assert redis.ttl(keys.bundle(digest)) == -1
    (repo / "lib" / "model.py").write_text("width = 3\n")
    assert hpq("show", f"{sid}/1", "--code", "back").returncode == 0
    assert (repo / "back" / "lib" / "model.py").read_text() == "width = 2\n"
    assert (repo / "back" / "train.py").stat().st_mode & 0o777 == 0o755
    again = hpq("show", sid, "--code", "back")
    refused(again, "file-exists", "back")
    assert hpq("rm", other, "--yes").returncode == 0
    assert redis.exists(keys.bundle(digest))
    assert hpq("archive", sid, "one.archive").returncode == 0
    assert hpq("rm", sid, "--yes").returncode == 0
    assert not redis.exists(keys.bundle(digest), f"{keys.bundle(digest)}:sweeps")
    assert not redis.exists(keys.sweep(sid, "origin"))
    restored = hpq("archive", "--restore", "one.archive")
    assert restored.returncode == 0, restored.stderr
    assert redis.ttl(keys.bundle(digest)) == -1 and redis.ttl(keys.sweep(sid, "origin")) == -1
    assert hpq("show", sid, "--code", "once-more").returncode == 0
    assert "+width = 2" in origin(hpq, sid)["git"]["diff"]


def test_the_code_comes_back_into_the_current_directory_where_that_is_empty(
    hpq, repo, environ
) -> None:
    sid = enqueue(hpq)
    here = repo / "back"
    here.mkdir()
    words = [sys.executable, "-m", "hpq_producer", "show", sid, "--code", "."]
    done = subprocess.run(words, cwd=here, env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in here.iterdir()) == ["lib", "train.py"]
    done = subprocess.run(words, cwd=here, env=environ, capture_output=True, text=True)
    refused(done, "file-exists")


def test_code_that_was_changed_in_redis_is_not_given_back(hpq, repo, redis, keys) -> None:
    sid = enqueue(hpq)
    digest = redis.hget(keys.sweep(sid), "bundle").decode()
    (repo / "train.py").write_text("evil\n")
    files = snapshot.take_snapshot(repo, without=lambda p: p.name == "sweep.yaml")
    redis.set(keys.bundle(digest), bundle.pack(files))
    done = hpq("show", sid, "--code", "back")
    refused(done, "code-altered")
    redis.hset(keys.code, digest, json.dumps(snapshot.manifest(files)))
    done = hpq("show", sid, "--code", "back")
    refused(done, "code-altered")
    assert not (repo / "back").exists()


def test_code_of_another_key_is_written_only_on_request(hpq, repo) -> None:
    sid = enqueue(hpq)
    other = {"HPQ_CODE_KEY": "another, of 16 letters"}
    refused(hpq("show", sid, "--code", "back", **other), "code-not-signed", "--unsigned")
    assert not (repo / "back").exists()
    assert hpq("show", sid, "--code", "back", "--unsigned", **other).returncode == 0
    assert (repo / "back" / "train.py").exists()


@pytest.mark.parametrize(
    "name", [".git/config", "lib/.GIT/hooks/post-checkout", "bare/HEAD", "../out.py", "a/../../b"]
)
def test_no_code_makes_a_repository_or_leaves_the_directory(hpq, repo, redis, keys, name) -> None:
    sid = enqueue(hpq)
    files = {name: (b"evil", 0o755), "train.py": (b"", 0o644)}
    digest = snapshot.digest_of(snapshot.manifest(files))
    launch = json.loads(redis.hget(keys.sweep(sid), "launch")) | {"code": digest}
    redis.hset(keys.sweep(sid), mapping={"launch": json.dumps(launch), "bundle": digest})
    redis.set(keys.bundle(digest), bundle.pack(files))
    redis.hset(keys.code, digest, json.dumps(snapshot.manifest(files)))
    before = {path for path in repo.rglob("*") if ".git" not in path.parts}
    refused(hpq("show", sid, "--code", "back", "--unsigned"), "code-altered")
    assert {path for path in repo.rglob("*") if ".git" not in path.parts} == before


def test_a_bundle_depends_on_its_files_alone_and_holds_only_them(tmp_path: Path) -> None:
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "y.py").write_text("y\n")
        (folder / "x.py").write_text("x\n")
    found = snapshot.take_snapshot(tmp_path / "a")
    data, digest = bundle.pack(found), snapshot.digest_of(snapshot.manifest(found))
    same = snapshot.take_snapshot(tmp_path / "b")
    assert data == bundle.pack(dict(reversed(same.items())))
    assert bundle.unpack(data, digest) == {"x.py": (b"x\n", 0o644), "y.py": (b"y\n", 0o644)}
    for broken in (data[:-9], data[:40], b"", b"x" * 100):
        with pytest.raises(ValueError):
            bundle.unpack(broken, digest)
    with pytest.raises(ValueError, match="another digest"):
        bundle.unpack(bundle.pack({"x.py": found["x.py"]}), digest)


def test_the_code_counts_as_room_that_the_server_must_have(hpq, repo, redis) -> None:
    noise = "".join(hashlib.sha256(str(i).encode()).hexdigest() for i in range(60_000))
    for part in range(5):  # each below the size of data
        size = len(noise) // 5
        (repo / f"table{part}.py").write_text(f"x = '{noise[part * size :][:size]}'\n")
    used = int(redis.info("memory")["used_memory"])
    redis.config_set("maxmemory", int((used + 1_500_000) / 0.8))
    try:
        done = hpq("enqueue", "sweep.yaml")
    finally:
        redis.config_set("maxmemory", 0)
    refused(done, "redis-memory", exit=3)
    assert not redis.keys("hpq:b:*") and not redis.keys("hpq:s:*")


def _worker(store: TrialStore, name: str, digest: str) -> WorkerPresence:
    who = WorkerPresence(name=name, host="h", queue="default", fields={"ran_on": digest})
    store.keep_provenance(digest, f'{{"host":"{name}"}}')
    store.present(who, idle=True, lifetime_ms=600_000)
    return who


def test_a_manifest_and_what_attempts_ran_on_go_with_the_last_sweep_that_refers_to_them(
    hpq, repo, redis, keys, store, reader
) -> None:
    one, other = enqueue(hpq), enqueue(hpq, "--new")
    code = redis.hget(keys.sweep(one), "bundle").decode()
    gone, lives, starts = (_worker(store, name, f"d-{name}") for name in ("w1", "w2", "w3"))
    for who, sid in ((gone, one), (lives, one), (gone, other)):
        claim = store.claim(
            who, nonce=f"{who.name}-{sid}", lease_ms=60_000, provenance=f"d-{who.name}", only=sid
        )
        assert isinstance(claim, Claim)
        store.commit(claim, Outcome(state=TrialState.CANCELLED, step=0))
    store.absent(gone)
    store.absent(starts)  # it has not said yet that it is there
    assert hpq("archive", one, "one.archive").returncode == 0
    assert hpq("rm", one, "--yes").returncode == 0
    assert redis.hkeys(keys.code) == [code.encode()] and not reader.audit.missing(
        reader.sweeps.get(other)
    )
    assert hpq("rm", other, "--yes").returncode == 0
    assert not redis.exists(keys.code) and set(redis.hkeys(keys.provenance)) == {b"d-w2", b"d-w3"}
    # All of it comes back out of an archive, also what earlier attempts ran on.
    assert hpq("archive", "--restore", "one.archive").returncode == 0
    assert redis.hkeys(keys.code) == [code.encode()] and redis.hexists(keys.provenance, "d-w1")
    redis.hdel(keys.provenance, "d-w1")
    assert reader.audit.missing(reader.sweeps.get(one)) != []
    told = hpq("audit", one)
    assert told.returncode == 1 and "d-w1" in told.stdout


def test_a_webhook_in_a_sweep_file_is_refused(hpq, repo) -> None:
    done = hpq("enqueue", "sweep.yaml", "--set", "notify=https://hooks.example/s3cret")
    refused(done, "unsupported-key", "HPQ_NOTIFY")
