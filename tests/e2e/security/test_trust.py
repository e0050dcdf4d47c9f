"""Nothing in Redis becomes code by itself: strays, forged launch records, keys."""

from __future__ import annotations

import json
import pickle
import zlib
from dataclasses import replace

import pytest

from hpq.code.signing import fingerprint, sign
from hpq.domain.sweep import SweepState
from hpq.store.tickets import TASK
from hpq.store.wire.sweep import encode_launch

PROGRAM = """
    from pathlib import Path
    Path("ran").touch()
    print("loss=1")
"""
SWEEP = "program: train.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {value: 1}}\n"
OURS, THEIRS = "ours, of 16 letters", "theirs, of 16 letters"


class Evil:
    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self):
        return open, (self.path, "w")


def test_what_is_no_ticket_is_set_aside_and_counted_and_nothing_of_it_runs(lab) -> None:
    """B8, R9, R10, R23: rubbish, pickles and calls of os.system on the queue of tickets."""
    evil = lab.folder / "evil"

    def zipped(*call: object) -> bytes:
        return zlib.compress(json.dumps(call).encode())

    strays = {
        b"\xff\xfe\x00": {"data": b"\x80garbage"},
        b"system": {"data": zipped("os.system", None, [f"touch {evil}"], {})},
        b"pickled": {"data": zlib.compress(pickle.dumps(Evil(str(evil))))},
        b"nested": {"data": zlib.compress(b"[" * 100_000)},
        b"bomb": {"data": zlib.compress(b"[" + b" " * 50_000_000)},
        b"number": {"data": zlib.compress(b"5")},
        b"empty": {"data": b""},
        b"mapping": {"data": zlib.compress(b"{}")},
        b"half": {"data": zlib.compress(f'["{TASK}"'.encode())},
        b"status": {"data": zipped("os.system", None, [], {}), "status": "no such status"},
        b"plain": {"data": f'["{TASK}", null, [], {{}}]'.encode(), "created_at": "never"},
    }
    queue = f"rq:queue:{lab.keys.tickets('default')}"
    for name, fields in strays.items():
        lab.redis.hset(b"rq:job:" + name, mapping=fields)
        lab.redis.rpush(queue, name)
    lab.redis.set("rq:job:text", "no hash at all")
    lab.redis.rpush(queue, "text", "a job that is not there")
    lab.go()
    lab.worker()
    lab.wait_until(lambda: not lab.redis.llen(queue), "the queue to be empty")
    sid = lab.steered(1)
    lab.wait_over(sid)
    aside = int(lab.redis.hget(lab.keys.counters, "tickets_set_aside"))
    assert aside == len(strays) + 1 == lab.redis.llen(lab.keys.set_aside)
    assert not evil.exists() and "Traceback" not in lab.log() and "touch" not in lab.log()


FORGED = {
    "another program": {"program": "other.py"},
    "another command": {"command": ["touch", "ran"]},
    "another directory": {"code_dir": "/"},
    "a built-in trainer with a command": {"trainer": "digits", "command": ["touch", "ran"]},
    "a built-in trainer with a directory": {"trainer": "digits", "program": "", "command": []},
    "more from the environment": {"pass_env": ["HOME"]},
    "a trainer of the standard library": {"trainer": "os:system", "program": "", "command": []},
    "another digest of the code": {"code": "0" * 64},
    "a runner that stays": {"resident": True},
    "a type that is wrong": {"program": ["touch", "ran"]},
    "no launch record": None,
}


@pytest.mark.slow
def test_a_forged_launch_record_is_refused_with_the_reason_and_nothing_runs(lab) -> None:
    """B8: each field of a launch record forged."""
    lab.write("other.py", PROGRAM)
    lab.write("train.py", PROGRAM)
    sids = {}
    for i, (what, change) in enumerate(FORGED.items()):
        sid = sids[what] = lab.enqueue(SWEEP, "--new", "--name", f"s{i}")
        key = lab.keys.sweep(sid)
        record = json.loads(lab.redis.hget(key, "launch"))
        forged = "{" if change is None else json.dumps(record | change)
        lab.redis.hset(key, "launch", forged)
    lab.worker()
    for sid in sids.values():
        lab.refusal(sid)
    assert not (lab.code / "ran").exists()
    sound = lab.enqueue(SWEEP, "--new", "--name", "sound")
    lab.wait_over(sound)
    assert (lab.code / "ran").exists()
    for what, sid in sids.items():
        told = [e.what for e in lab.reader.events.read(sid) if e.trial]
        assert told == ["claimed", "requeued"], (what, told)  # asked once, not in a circle
        assert lab.redis.zcard(lab.keys.sweep(sid, "waiting")) == 1, what  # the trial stays
    assert "Traceback" not in lab.log()


def test_a_worker_with_another_key_refuses_and_says_so(lab) -> None:
    lab.write("train.py", PROGRAM)
    sid = lab.enqueue(SWEEP, HPQ_CODE_KEY=OURS)
    lab.worker(HPQ_CODE_KEY=THEIRS)
    why = lab.refusal(sid)
    ours, theirs = fingerprint(OURS.encode()), fingerprint(THEIRS.encode())
    assert why.code == "code-not-signed"
    for said in (why.text, lab.ok("show", sid, HPQ_CODE_KEY=THEIRS)):
        assert ours in said and theirs in said
    found = json.loads(lab.hpq("doctor", "--json", HPQ_CODE_KEY=OURS).stdout)
    (differs,) = (one["what"] for one in found if one["code"] == "code-key-differs")
    assert ours in differs and theirs in differs
    assert f"*** (key {ours})" in lab.ok("doctor", "--settings", HPQ_CODE_KEY=OURS)
    assert (
        lab.reader.sweeps.get(sid).state is SweepState.RUNNING and not (lab.code / "ran").exists()
    )
    lab.worker(HPQ_CODE_KEY=OURS)
    lab.wait_over(sid)


def test_the_record_and_signature_of_one_sweep_are_worth_nothing_in_another(lab) -> None:
    lab.write("train.py", PROGRAM)
    lab.write("other.py", PROGRAM)
    theirs = lab.enqueue(SWEEP.replace("train.py", "other.py"))
    ours = lab.enqueue(SWEEP)
    record = lab.redis.hgetall(lab.keys.sweep(theirs))
    lab.redis.hset(
        lab.keys.sweep(ours),
        mapping={b"launch": record[b"launch"], b"signature": record[b"signature"]},
    )
    lab.ok("cancel", theirs, "--yes")
    lab.worker()
    assert lab.refusal(ours).code == "code-not-signed"
    returned = lambda: lab.reader.sweeps.get(ours).counts.queued == 1  # noqa: E731
    lab.wait_until(returned, "the trial to return")
    assert not (lab.code / "ran").exists()


def test_a_signed_sweep_without_code_runs_the_program_of_the_workers_own_image(lab) -> None:
    image = lab.folder / "image"
    image.mkdir()
    (image / "train.py").write_text("print('loss=1')\n", "utf-8")
    lab.write("train.py", PROGRAM)
    sid = lab.enqueue(SWEEP, HPQ_CODE_KEY=OURS)
    sweep = lab.reader.sweeps.get(sid)
    launch = replace(sweep.launch, code_dir="", code="", bundled=False, root="", home="")
    mac = sign(OURS.encode(), lab.keys.prefix, replace(sweep, launch=launch))
    record = {"launch": encode_launch(launch), "signature": mac}
    lab.redis.hset(lab.keys.sweep(sid), mapping=record)
    lab.worker(HPQ_CODE_KEY=OURS, HPQ_CODE=str(image))
    lab.wait_over(sid)
    assert lab.trial(sid).objective == 1.0 and not (lab.code / "ran").exists()


def test_a_manifest_that_was_tampered_with_decides_nothing(lab) -> None:
    """B8: the manifest of the code overwritten; workers compare with the signed digest."""
    lab.write("train.py", PROGRAM)
    sid = lab.enqueue(SWEEP)
    for digest in lab.redis.hkeys(lab.keys.code):
        lab.redis.hset(lab.keys.code, digest, "no JSON")
    lab.worker()
    lab.wait_over(sid)
    assert (lab.code / "ran").exists() and "Traceback" not in lab.log()
