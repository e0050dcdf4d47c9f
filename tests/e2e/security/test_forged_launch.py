"""Forged launch records and commands that people type: nothing of them runs, none is signed."""

from __future__ import annotations

import json
import subprocess

import pytest

from hpq.code import bundle
from hpq.code.snapshot import digest_of, manifest
from hpq.domain.attempt import WorkerPresence
from hpq.domain.trainer_specs import built_in_launch
from hpq.store.scripts import StoreContext
from hpq.store.trials import TrialStore
from hpq.store.wire.row import text_of
from tests.support.ids import ids, refused
from tests.support.store_calls import end, take

DIGITS = "trainer: digits\nmethod: grid\nparameters: {epochs: {values: [1, 2]}}\n"
SENT = "program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"


def forge(lab, sid: str, **fields: object) -> None:
    """Change fields of a launch record, as any client may that can write to Redis."""
    key = lab.keys.sweep(sid)
    record = json.loads(lab.redis.hget(key, "launch"))
    lab.redis.hset(key, "launch", json.dumps(record | fields))


def unsign(lab, sid: str) -> None:
    """Remove the signatures of a sweep and of its rows."""
    key = lab.keys.sweep(sid, "params")
    lab.redis.hset(lab.keys.sweep(sid), "signature", "")
    for number, row in lab.redis.hgetall(key).items():
        lab.redis.hset(key, number, text_of(row))


def plant(lab, sid: str) -> None:
    """Put a bundle with a torch.py into Redis, as the code of a sweep."""
    files = {"torch.py": (b"raise SystemExit('evil')\n", 0o644)}
    digest = digest_of(manifest(files))
    lab.redis.set(lab.keys.bundle(digest), bundle.pack(files))
    lab.redis.hset(lab.keys.code, digest, json.dumps(manifest(files)))
    lab.redis.hset(lab.keys.sweep(sid), "bundle", digest)
    forge(lab, sid, bundled=True, code=digest)


def finish(lab, *values: float) -> None:
    """End trials with these results."""
    store = TrialStore(StoreContext.open(lab.redis, lab.keys))
    who = WorkerPresence(name="w1", host="h1", queue="default")
    for value in values:
        end(store, take(store, who), value)


def test_try_runs_no_command_that_a_record_of_a_built_in_trainer_names(lab) -> None:
    """Also for a viewer, who has no key, and once the signatures are removed."""
    sid, ran = lab.enqueue(DIGITS), lab.folder / "ran"
    lab.write("evil.py", f"open({str(ran)!r}, 'w')\n")
    viewer = {"HPQ_HOME": str(lab.folder / "viewer")}
    was = lab.redis.hgetall(lab.keys.sweep(sid))
    for fields in (
        {"command": ["touch", str(ran)]},
        {"program": str(lab.code / "evil.py")},
        {"command": ["touch", str(ran)], "program": "x", "preload": ["evil"]},
        {"code_dir": str(lab.code), "command": ["touch", str(ran)]},
    ):
        lab.redis.hset(lab.keys.sweep(sid), mapping=was)
        forge(lab, sid, **fields)
        refused(lab.hpq("try", f"{sid}/1"), "code-not-signed", exit=4)
        refused(lab.hpq("try", f"{sid}/1", **viewer), "code-key-missing", exit=4)
        unsign(lab, sid)
        refused(lab.hpq("try", f"{sid}/1"), "code-not-signed", exit=4)
        assert not ran.exists(), fields


def test_confirm_signs_no_code_that_a_record_of_a_built_in_trainer_names(lab) -> None:
    sid = lab.enqueue(DIGITS)
    honest = lab.redis.hget(lab.keys.sweep(sid), "launch")
    finish(lab, 0.5, 0.75)
    plant(lab, sid)
    refused(lab.hpq("best", sid, "--confirm", "2"), "code-key-differs")
    assert lab.reader.sweeps.ids() == [sid]
    unsigned = {"launch": honest, "signature": "", "digest": "another"}
    lab.redis.hset(lab.keys.sweep(sid), mapping=unsigned)  # its field `bundle` stays forged
    unsign(lab, sid)
    new = lab.reader.sweeps.get(lab.ok("best", sid, "--confirm", "2").strip())
    assert (new.launch, new.bundle) == (built_in_launch("digits"), "")


@pytest.mark.parametrize("words", [(), ("--as-enqueued",)])
def test_try_runs_no_directory_that_redis_names(lab, words) -> None:
    lab.write("train.py", "print('mine')\n")
    sid = lab.enqueue(SENT, "--code", ".")
    evil = lab.folder / "evil"
    evil.mkdir()
    (evil / "train.py").write_text("print('evil')\n")
    origin = json.loads(lab.redis.hget(lab.keys.sweep(sid), "provenance"))
    lab.redis.hset(lab.keys.sweep(sid), "provenance", json.dumps(origin | {"folder": str(evil)}))
    assert lab.ok("try", f"{sid}/1", *words) == "mine\n"


def test_diff_runs_no_command_of_a_repository_that_redis_names(lab) -> None:
    lab.write("train.py", "print('mine')\n")
    sid, ran = lab.enqueue(SENT), lab.folder / "ran"
    evil = lab.folder / "evil"
    evil.mkdir()
    for words in (("init", "-q"), ("config", "core.fsmonitor", f"touch {ran}; false")):
        subprocess.run(["git", *words], cwd=evil, check=True)
    (evil / "train.py").write_text("print('evil')\n")
    (lab.code / "train.py").unlink()
    forge(lab, sid, root=str(evil), code_dir=str(evil))
    done = lab.hpq("diff", sid, "--json")
    assert not ran.exists()
    assert "evil" not in done.stdout, ids(done.stderr)
