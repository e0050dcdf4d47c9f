"""Code that is sent with its sweep: runs from a copy, signed or not at all."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile

import pytest

from hpq.code import bundle

SWEEP = """
    program: train.py
    code: .
    method: grid
    metric: {name: loss}
    parameters: {x: {values: [1, 2]}}
"""
PROGRAM = """
    import json, os
    from pathlib import Path
    from helper import value
    assert not Path("mine").exists()  # what an earlier attempt wrote into its copy
    Path("mine").touch()
    print("in", Path.cwd(), json.loads(Path("conf.json").read_text()))
    print(f"loss={value}")
"""


OURS, THEIRS = "ours, of 16 letters", "theirs, of 16 letters"


def test_a_module_that_the_image_lacks_is_mended_in_the_image(lab) -> None:
    """In a pod the worker takes most of its environment away; it still knows where it is."""
    lab.write("train.py", "import no_such_module_anywhere\n")
    sid = lab.enqueue(SWEEP, "--count", "1")
    lab.worker(KUBERNETES_SERVICE_HOST="10.96.0.1", HPQ_POD="worker-0")
    lab.wait_over(sid)
    failure = lab.trial(sid, 1).failure
    assert failure is not None and "FROM hpq-worker" in failure.message, failure


def project(lab, value: int = 7) -> None:
    lab.write("train.py", PROGRAM)
    lab.write("helper.py", f"value = {value}\n")
    lab.write("conf.json", '{"width": 3}')


def holes(size: int) -> bytes:
    """A bundle of few bytes whose one file says that it has `size`."""
    told = {"major": "1", "minor": "0", "name": "train.py", "realsize": str(size)}
    info, out = tarfile.TarInfo("train.py"), io.BytesIO()
    info.pax_headers = {f"GNU.sparse.{name}": value for name, value in told.items()}
    info.size = 10
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info, io.BytesIO(b"1\n0\n1\naaaa"))
    return gzip.compress(out.getvalue())


def left_of_work(lab) -> list[str]:
    work = lab.home / "work"
    return [p.name for p in work.iterdir()] if work.exists() else []


def test_a_program_runs_from_a_fresh_copy_of_what_was_sent_whatever_becomes_of_the_directory(
    lab,
) -> None:
    project(lab)
    sid = lab.enqueue(SWEEP)
    shutil.rmtree(lab.code)
    lab.code.mkdir()
    lab.worker()
    lab.wait_over(sid)
    assert [lab.trial(sid, n).objective for n in (1, 2)] == [7.0, 7.0]
    printed = lab.printed(sid)
    assert f"in {lab.home}/work/code-" in printed and "{'width': 3}" in printed
    assert not list(lab.home.glob("work/code-*"))  # each copy ends with its trial
    assert len(list(lab.home.glob("work/*/out/mine"))) == 2  # what was written into them
    assert "{'width': 3}\nloss=7" in lab.ok("try", f"{sid}/1", "--as-enqueued")

    project(lab, value=8)
    edited = lab.enqueue(SWEEP)
    assert edited != sid
    lab.wait_over(edited)
    assert lab.trial(edited).objective == 8.0


def test_a_resident_trainer_keeps_its_copy_from_trial_to_trial_and_no_longer(lab) -> None:
    lab.write(
        "mine.py",
        """
        import os
        def train(params, trial):
            print("in", os.getcwd(), os.path.dirname(__file__))
            return {"loss": float(os.getpid())}
        """,
    )
    text = SWEEP.replace("program: train.py", "trainer: mine:train\n    resident: true")
    sid = lab.enqueue(text)
    worker = lab.worker()
    lab.wait_over(sid)
    assert lab.trial(sid, 1).objective == lab.trial(sid, 2).objective
    assert lab.printed(sid, 1) == lab.printed(sid, 2) and "/work/code-" in lab.printed(sid)
    worker.terminate()
    worker.wait()
    assert not left_of_work(lab)


@pytest.mark.slow
def test_code_that_is_unsigned_altered_or_anothers_is_refused_and_counted_and_the_worker_goes_on(
    lab,
) -> None:
    project(lab)
    names = ("unsigned", "foreign", "altered", "of another sweep", "all holes")
    sids = {}
    for i, name in enumerate(names):
        key = THEIRS if name == "foreign" else OURS
        lab.write("helper.py", f"value = {i}\n")
        sids[name] = lab.enqueue(SWEEP, "--name", f"s{i}", HPQ_CODE_KEY=key)
    keys = {name: lab.keys.sweep(sid) for name, sid in sids.items()}
    digests = {name: lab.redis.hget(key, "bundle").decode() for name, key in keys.items()}
    evil = bundle.pack({"train.py": (b"print('evil')\n", 0o644)})
    lab.redis.hset(keys["unsigned"], "signature", "")
    lab.redis.set(lab.keys.bundle(digests["altered"]), evil)
    lab.redis.set(lab.keys.bundle(digests["all holes"]), holes(10**10))
    lab.redis.copy(
        lab.keys.bundle(digests["unsigned"]),
        lab.keys.bundle(digests["of another sweep"]),
        replace=True,
    )
    # The worker has a program of that name, too, which it must not run instead.
    lab.worker(HPQ_CODE_KEY=OURS, HPQ_CODE=str(lab.code))
    found = {name: lab.refusal(sid).code for name, sid in sids.items()}
    for name in ("altered", "of another sweep", "all holes"):
        assert found[name] == "code-altered", name
    assert found["foreign"] == "code-not-signed"
    counted = lambda: int(lab.redis.hget(lab.keys.counters, "code_refused") or 0)  # noqa: E731
    lab.wait_until(lambda: counted() == len(names), "all of it to be counted")

    project(lab, value=9)
    sound = lab.enqueue(SWEEP, HPQ_CODE_KEY=OURS)
    lab.wait_over(sound)
    assert lab.trial(sound).objective == 9.0
    said = lab.hpq("workers").stderr
    assert all(f"cannot run {sid}" in said for sid in sids.values())
    assert "Traceback" not in lab.log() and "evil" not in lab.log()
    assert all(not [e for e in lab.events(sid) if e == "finished"] for sid in sids.values())


def test_pods_run_the_snapshot_of_local_code(lab) -> None:
    project(lab)
    lab.worker(KUBERNETES_SERVICE_HOST="10.96.0.1", HPQ_POD="worker-0")
    done = lab.hpq("enqueue", lab.write("local.yaml", SWEEP.replace("    code: .\n", "")))
    sid = done.stdout.strip()
    lab.write("helper.py", "value = 8\n")
    # conf.json is no code outside git, so that pods lack it.
    why = lab.refusal(sid)
    assert why.code == "data-missing" and "conf.json" in why.text
    lab.ok("cancel", sid, "--yes")
    lab.write("train.py", "from helper import value\nprint(f'loss={value}')\n")
    sid = lab.enqueue(SWEEP.replace("    code: .\n", ""))
    lab.write("helper.py", "value = 9\n")
    lab.wait_over(sid)
    assert lab.trial(sid).objective == 8.0
