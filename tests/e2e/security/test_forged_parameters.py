"""What a client can do that writes to Redis and has no key: it changes no run of a program."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys

import pytest

from hpq.access.session import reader_of
from hpq.code.signing import RowSigner
from hpq.domain.trial import FailureKind, TrialState
from hpq.filestore.stores import open_files
from hpq.settings import read
from hpq.store.wire.fields import dumps
from hpq_views.page.sweep_data import encode_sweep
from hpq_views.page.sweep_reads import read_sweep
from tests.support.ids import ids, refused

PROGRAM = """
    import os, sys
    from pathlib import Path
    with open("ran", "a") as file:
        print(os.environ["HPQ_TRIAL_ID"], *sys.argv[1:], file=file)
    print("loss=1")
"""
SWEEP = """
program: train.py
method: grid
metric: {name: loss}
retries: 2
parameters: {x: {values: [1, 2, 3, 4, 5, 6, 7, 8, 9]}}
"""
OURS, THEIRS = "ours, of 16 letters", "theirs, of 16 letters"


def ran(lab) -> list[str]:
    """Return the arguments of each trial that a program ran."""
    path = lab.code / "ran"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [line.partition(" ")[2] for line in lines]


def rows(lab, sid: str) -> dict[int, bytes]:
    return {int(n): row for n, row in lab.redis.hgetall(lab.keys.sweep(sid, "params")).items()}


def put(lab, sid: str, number: int, row: bytes) -> None:
    """Overwrite a row: 16 bytes of signature, which may hold any character, and JSON."""
    lab.redis.hset(lab.keys.sweep(sid, "params"), str(number), row)


def kinds(lab, sid: str) -> dict[int, str]:
    """Return the kind of failure of each trial that failed."""
    trials = lab.reader.trials.all(sid)
    return {t.id.number: t.failure.kind for t in trials if t.failure is not None}


def wait_over(lab, sid: str) -> None:
    """Wait for the end; the audit, too, names trials whose parameters were changed."""
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).state.is_over, f"the end of {sid}")


def distrusted(*numbers: int) -> dict[int, str]:
    return dict.fromkeys(numbers, FailureKind.DISTRUSTED)


def test_a_trial_whose_row_was_changed_fails_without_a_run_and_the_others_run(lab) -> None:
    lab.write("train.py", PROGRAM)
    other = lab.enqueue(SWEEP, "--name", "other")
    lab.ok("cancel", other, "--yes")
    sid = lab.enqueue(SWEEP, "--new")
    was = rows(lab, sid)
    put(lab, sid, 2, was[2].replace(b'"x":2', b'"x":7'))  # a changed value
    put(lab, sid, 3, was[3].replace(b'{"x"', b'{"config":"/etc/passwd","x"'))  # another argument
    put(lab, sid, 5, was[6])  # swapped rows
    put(lab, sid, 6, was[5])
    put(lab, sid, 8, rows(lab, other)[8])  # the row of another sweep
    put(lab, sid, 9, b'{"x":9}')  # without a signature
    lab.worker()
    wait_over(lab, sid)
    assert kinds(lab, sid) == distrusted(2, 3, 5, 6, 8, 9)
    assert sorted(ran(lab)) == ["--x=1", "--x=4", "--x=7"]
    failed = lab.trial(sid, 2)
    assert failed.attempt == 1 and lab.events(sid, 2) == ["claimed", "failed"]  # never retried
    assert failed.failure and failed.failure.message in lab.ok("show", f"{sid}/2")


def test_the_same_values_in_another_order_or_form_are_not_what_was_signed(lab) -> None:
    """The order decides the arguments' order, and 3.0 is another argument than 3."""
    lab.write("train.py", PROGRAM)
    text = "parameters: {x: {values: [1, 3]}, y: {value: 2}}\n"
    sid = lab.enqueue(SWEEP[: SWEEP.index("parameters")] + text)
    was = rows(lab, sid)
    put(lab, sid, 1, was[1][:16] + b'{"y":2,"x":1}')
    put(lab, sid, 2, was[2].replace(b'"x":3', b'"x":3.0'))
    lab.worker()
    wait_over(lab, sid)
    assert kinds(lab, sid) == distrusted(1, 2) and not ran(lab)


@pytest.mark.parametrize("key", [THEIRS, None])
def test_a_worker_without_the_key_sets_no_trial_aside_beside_one_that_has_it(lab, key) -> None:
    lab.write("train.py", PROGRAM)
    sid = lab.enqueue(SWEEP, HPQ_CODE_KEY=OURS)
    put(lab, sid, 1, b"{}")
    put(lab, sid, 2, rows(lab, sid)[3])
    lab.worker(2, **({"HPQ_CODE_KEY": key} if key else {}))
    lab.refusal(sid)
    returned = lambda: lab.reader.sweeps.get(sid).counts.queued == 9  # noqa: E731
    lab.wait_until(returned, "the trials to return")
    assert not kinds(lab, sid)
    lab.worker(HPQ_CODE_KEY=OURS)
    wait_over(lab, sid)
    assert kinds(lab, sid) == distrusted(1, 2) and len(ran(lab)) == 7
    for number in range(1, 10):  # no worker took a trial again and again
        assert len(lab.events(sid, number)) <= 6, lab.events(sid, number)


LATE = """
trainer: steered:train
method: random
metric: {name: loss, goal: minimize}
parameters: {x: {min: 0.0, max: 1.0}}
"""


@pytest.mark.parametrize(
    ("field", "old", "new"),
    [
        ("search", '"high":1.0', '"high":9.0'),
        ("search", '"seed":0', '"seed":1'),
        ("sampler", "random", "qmc"),
        ("seed", "0", "1"),
        ("replicates", "", "3"),
    ],
)
def test_an_edited_search_is_refused_whole_and_no_trial_is_made_of_it(lab, field, old, new) -> None:
    lab.steered(1)
    sid = lab.enqueue(LATE)
    key = lab.keys.sweep(sid)
    was = (lab.redis.hget(key, field) or b"").decode()
    assert old in was
    lab.redis.hset(key, field, was.replace(old, new) or new)
    lab.worker(1, "--sweep", sid)
    assert lab.refusal(sid).code == "code-not-signed" and not rows(lab, sid)
    assert lab.redis.hget(key, "suggest_token") is None  # no worker took the lease


def test_a_shipped_trainer_runs_without_a_key_but_only_the_signer_makes_its_trials(lab) -> None:
    digits = "trainer: digits\nparameters: {epochs: {value: 1}, hidden: {values: [4, 8]}}\n"
    sid = lab.enqueue(digits + "method: grid\n", HPQ_CODE_KEY=OURS)
    text = digits.replace("hidden: {values: [4, 8]}", "momentum: {min: 0.1, max: 0.9}")
    text += "method: random\n"
    late = lab.enqueue(text, HPQ_CODE_KEY=OURS)
    put(lab, sid, 1, b'{"epochs":1,"hidden":4,"data":"/etc/passwd"}')
    lab.worker()
    wait_over(lab, sid)
    assert kinds(lab, sid) == {1: FailureKind.BAD_PARAMS}
    assert lab.trial(sid, 2).state is TrialState.FINISHED
    assert lab.refusal(late).code == "code-key-missing" and not rows(lab, late)


def test_a_suggested_trial_is_signed_by_the_worker_that_made_it(lab) -> None:
    lab.steered(1)
    lab.ok("cancel", lab.reader.sweeps.ids()[0], "--yes")
    sid = lab.enqueue(LATE)
    lab.worker()
    lab.wait_until(lambda: len(rows(lab, sid)) >= 2, "a trial that waits")
    lab.wait_until(lambda: lab.has_claimed(sid, 1), "the first to run")
    last = max(rows(lab, sid))
    key = (lab.home / "code.key").read_bytes()
    assert all(RowSigner(key, "hpq", sid).has_signed(n, row) for n, row in rows(lab, sid).items())
    put(lab, sid, last, rows(lab, sid)[1])
    lab.go()
    lab.wait_until(lambda: len(rows(lab, sid)) > last + 2, "more trials")
    lab.ok("stop", sid, "--yes")
    wait_over(lab, sid)
    assert kinds(lab, sid) == distrusted(last)


def test_a_pointer_to_another_trials_files_is_not_followed(lab) -> None:
    """A checkpoint is unpickled by most training code: a trial reads only its own."""
    lab.write(
        "train.py",
        """
        import os
        from pathlib import Path
        print("found", sorted(os.listdir(os.environ["HPQ_CHECKPOINT_DIR"])))
        print("loss=1")
        """,
    )
    store = open_files(str(lab.folder / "store"))
    with store.write("hpq/other-00000/1/1/artifacts/evil.pkl") as file:
        file.write(b"evil")
    sid = lab.enqueue(SWEEP.replace("[1, 2, 3, 4, 5, 6, 7, 8, 9]", "[1, 2, 3, 4, 5]"))
    own = f"hpq/{sid}/5/1/checkpoint-1"
    pointers = {
        1: {"path": "hpq/other-00000/1/1/artifacts"},
        2: {"path": f"hpq/{sid}/2/../../other-00000/1/1/artifacts"},
        3: {"path": ["hpq"]},
        4: "[" * 100_000,
        5: {"path": own, "step": "x", "counts": [1]},
    }
    for number, forged in pointers.items():
        text = forged if isinstance(forged, str) else dumps({"store": store.id, "step": 3} | forged)
        lab.redis.hset(lab.keys.trial(lab.trial(sid, number).id), "checkpoint", text)
    lab.worker(HPQ_STORE=str(lab.folder / "store"))
    lab.wait_over(sid)
    assert "Traceback" not in lab.log()
    for number in pointers:
        assert "found []" in lab.printed(sid, number)
        assert "training-restarted" in ids(lab.printed(sid, number))


def test_an_archive_keeps_the_signatures_and_an_edited_one_changes_no_run(lab) -> None:
    lab.write("train.py", PROGRAM)
    sid = lab.enqueue(SWEEP)
    was = rows(lab, sid)
    path = lab.folder / "s.hpq.gz"
    lab.ok("archive", sid, path)
    lab.ok("rm", sid, "--yes")
    other = rows(lab, lab.enqueue(SWEEP, "--new", "--name", "other"))
    lab.ok("cancel", lab.reader.sweeps.ids()[0], "--yes")
    lines = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    items = next(line["items"] for line in lines if line.get("part") == "params")
    assert len(items) == 9
    lab.ok("archive", "--restore", path)
    assert rows(lab, sid) == was
    lab.ok("rm", sid, "--yes")
    items[1][1], items[2][1] = items[2][1], items[1][1]
    items[4][1] = json.dumps({"x": "forged"})
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))
    lab.ok("archive", "--restore", path)
    assert other
    lab.worker()
    wait_over(lab, sid)
    assert kinds(lab, sid) == distrusted(2, 3, 5) and len(ran(lab)) == 6


def test_only_the_signer_adds_to_a_sweep_and_only_from_what_was_signed(lab) -> None:
    lab.write("train.py", PROGRAM)
    sid = lab.enqueue(SWEEP, HPQ_CODE_KEY=OURS)
    more = lab.write("more.yaml", SWEEP.replace("9]", "9, 10]"))
    for key in ({"HPQ_CODE_KEY": THEIRS}, {}):
        refused(lab.hpq("add", sid, "--file", more, **key), "code-key-differs")
    lab.ok("add", sid, "--file", more, HPQ_CODE_KEY=OURS)
    lab.worker(HPQ_CODE_KEY=OURS)
    lab.wait_over(sid)
    assert not kinds(lab, sid) and "--x=10" in ran(lab)
    again = lab.enqueue(SWEEP, "--new", "--reuse", HPQ_CODE_KEY=OURS)
    lab.ok("retry", f"{again}/3", "--yes", HPQ_CODE_KEY=OURS)  # a copied result has a signed row
    lab.wait_over(again)
    assert not kinds(lab, again) and ran(lab).count("--x=3") == 2
    for number, row in rows(lab, sid).items():
        put(lab, sid, number, row + b" ")
    for words in ((), ("--confirm", "2")):
        refused(lab.hpq("best", sid, *words, HPQ_CODE_KEY=OURS), "parameters-altered")


def test_a_ranking_marks_the_altered_trial_and_keeps_the_others(lab) -> None:
    lab.write("train.py", PROGRAM)
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_over(sid)
    best = [t["trial"] for t in json.loads(lab.ok("best", sid, "-n", "3", "-o", "json"))]
    put(lab, sid, best[1], rows(lab, sid)[best[1]] + b" ")
    found = json.loads(lab.ok("best", sid, "-n", "3", "-o", "json"))
    kinds_of = [t["failure"] and t["failure"]["kind"] for t in found]
    assert kinds_of == [None, FailureKind.DISTRUSTED, None] and not found[1]["param"]
    assert "distrusted" in lab.ok("best", sid, "-n", "3")
    refused(lab.hpq("best", sid, "-n", "3", "--args"), "parameters-altered")


def test_a_sweep_whose_signature_was_removed_is_not_shown_as_if_it_were_verified(lab) -> None:
    lab.write("train.py", PROGRAM)
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_over(sid)
    best = lab.reader.status(sid, rows=0).best[0].id
    lab.redis.hset(lab.keys.sweep(sid), mapping={"signature": "", "signer": ""})
    for words in (("results",), ("summary",), ("show", "1"), ("best", "-n", "3")):
        assert "parameters-unverified" in ids(lab.hpq(*words).stderr)
    shown = json.loads(lab.ok("results", sid, "-o", "json"))
    assert {t["failure"]["kind"] for t in shown} == {FailureKind.DISTRUSTED}
    assert not any(t["param"] for t in shown)
    refused(lab.hpq("best", sid), "parameters-altered")
    assert lab.hpq("audit", sid).returncode == 1
    # With the rows' signatures removed, too, it looks like a sweep that no key signed.
    for number, row in rows(lab, sid).items():
        put(lab, sid, number, row[16:])
    done = lab.hpq("best", sid)
    assert done.returncode == 0 and ids(done.stderr) == ["parameters-unverified"]
    refused(lab.hpq("best", sid, "--args"), "code-not-signed", "--unsigned")
    assert lab.hpq("best", sid, "--args", "--unsigned").returncode == 0
    settings = read(lab.env)
    command = read_sweep(reader_of(lab.redis, settings), sid, settings).command
    assert str(best) in command and "77131" not in command


def test_a_forged_id_of_a_sweep_leads_nowhere(lab) -> None:
    digits = "trainer: digits\nmethod: grid\nparameters: {epochs: {values: [1, 2]}}\n"
    sid = lab.enqueue(digits)
    forged = ("../../../evil", "evil/../../x", "\x1b[31mred", "a b", "", "A" * 200)
    for name in forged:
        for part in ("", "params", "waiting", "ids"):
            lab.redis.copy(lab.keys.sweep(sid, part), lab.keys.sweep(name, part))
        lab.redis.zadd("hpq:q:default:open", {name: -1})
        lab.redis.zadd(lab.keys.sweeps, {name: 1})
    for digest in lab.redis.hkeys(lab.keys.digests):
        lab.redis.hset(lab.keys.digests, digest, forged[0])
    before = {path for path in lab.folder.rglob("*") if lab.home not in path.parents}
    for word in ("enqueue", "run"):  # the log of `run` has the sweep's id in its name
        assert forged[0] in lab.hpq(word, lab.code / "sweep-1.yaml").stderr
    lab.worker()
    lab.wait_over(sid)
    for words in (("ls",), ("ls", "--json"), ("workers",), ("show", sid), ("watch", "--once")):
        done = lab.hpq(*words)
        assert done.returncode == 0 and "evil" not in done.stdout and "\x1b" not in done.stdout
    after = {path for path in lab.folder.rglob("*") if lab.home not in path.parents}
    assert {path.name for path in after - before} <= {"worker-0.log"}
    assert "Traceback" not in lab.log()
    for name in forged:
        assert lab.redis.zcard(lab.keys.sweep(name, "waiting")) == 2


def test_every_view_marks_parameters_that_were_changed_after_the_trials_ran(lab) -> None:
    lab.write("train.py", PROGRAM)
    sid = lab.enqueue(SWEEP)
    lab.worker()
    lab.wait_over(sid)
    was = rows(lab, sid)
    put(lab, sid, 2, was[2].replace(b'"x":2', b'"x":77131'))
    put(lab, sid, 5, was[6])  # swapped rows: the sweep knows both identities
    put(lab, sid, 6, was[5])
    shown = {t["trial"]: t for t in json.loads(lab.ok("results", sid, "-o", "json"))}
    marked = {n for n, t in shown.items() if t["failure"]}
    assert marked == {2, 5, 6} and not any(shown[n]["param"] for n in marked)
    assert {shown[n]["failure"]["kind"] for n in marked} == {FailureKind.DISTRUSTED}
    message = shown[2]["failure"]["message"]
    reader = reader_of(lab.redis, read(lab.env))
    page = encode_sweep(read_sweep(reader, sid, read(lab.env)))["trials"]
    texts = {words: lab.ok(*words, sid) for words in (("results",), ("summary",))}
    texts["page"] = json.dumps(page)
    code = f"import hpq; print(hpq.Sweep({sid!r}).trial(2).failure)"
    texts["python"] = subprocess.check_output([sys.executable, "-c", code], env=lab.env, text=True)
    for where, text in {**texts, "show": lab.ok("show", f"{sid}/2")}.items():
        assert "77131" not in text and "distrusted" in text, (where, text)
    for where in (("results",), "page", "python"):
        assert message in texts[where], where
    found = lab.hpq("audit", sid, "-o", "json")
    assert {v["trial"] for v in json.loads(found.stdout)["violations"]} == {2, 5, 6}
    assert "77131" in lab.ok("results", sid, "-o", "json", HPQ_CODE_KEY=OURS), (
        "not our key: unknown"
    )
    assert {t.id.number for t in lab.reader.trials.all(sid) if t.params["x"] == 77131} == {2}
    again = lab.enqueue(SWEEP, "--new", "--reuse")
    reused = [t for t in lab.reader.trials.all(again) if t.reused]
    assert {t.id.number for t in reused} == {1, 3, 4, 7, 8, 9}, "what was forged is not reused"


@pytest.mark.parametrize("part", ["", "waiting"])
def test_numbers_that_are_none_hold_their_sweep_and_others_run(lab, part: str) -> None:
    lab.write("train.py", PROGRAM)
    spoilt = lab.enqueue(SWEEP)
    if part:
        lab.redis.delete(lab.keys.sweep(spoilt, part))
        lab.redis.set(lab.keys.sweep(spoilt, part), "x")
    fields = ["max_parallel", "run_cap", "n_finished", "replicates", "suggest_until"]
    lab.redis.hset(lab.keys.sweep(spoilt), mapping=dict.fromkeys(fields, "x"))
    for number in range(1, 10):
        lab.redis.hset(f"{lab.keys.sweep(spoilt).replace(':s:', ':t:')}/{number}", "attempt", "x")
    lab.redis.zadd(lab.keys.leases, {f"{spoilt}/1": 1, f"{spoilt}/x": 1, "evil": 1})
    lab.redis.zadd("hpq:q:default:open", {spoilt: "-inf"})
    lab.redis.hset("hpq:q:default:busy", "me", "x")
    lab.redis.hset("hpq:queues", "booked:default", "x")
    sid = lab.enqueue(SWEEP, "--new", "--name", "good")
    lab.worker()
    wait_over(lab, sid)
    assert not kinds(lab, sid) and len(ran(lab)) == 9
