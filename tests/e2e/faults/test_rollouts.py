"""Two versions of hpq on one server: the older one leaves what is newer, and says so."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from hpq import __version__
from hpq.domain.sweep import COMMON_SCHEMA, FEATURE_SCHEMA, SCHEMA
from tests.support.constants import ROOT
from tests.support.ids import ids
from tests.support.lab import STEERED
from tests.support.released import install_released

NEWER = "99.0.0"

THIS: dict[str, str] = {"PYTHONPATH": ""}
SEARCHED = """
program: searched.py
method: bayes
run_cap: 12
metric: {name: loss, goal: minimize}
early_terminate: {type: hyperband, min_iter: 2}
parameters: {x: {distribution: uniform, min: 0, max: 1}}
"""
SEARCHES = """
import sys
x = float(sys.argv[1].partition("=")[2])
for epoch in range(1, 5):
    print(f"epoch={epoch} loss={x / epoch}")
"""


def copy_of(lab, name: str, *, version: str, schema: int) -> dict[str, str]:
    """Another version of hpq, as the environment that runs it: this one with another face."""
    folder = lab.folder / name
    for package in (ROOT / "hpq", ROOT / "producer/hpq_producer", ROOT / "worker/hpq_worker"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(package, folder / package.name, ignore=ignored)
    for path, rule, text in (
        ("hpq/__init__.py", r'__version__ = ".*"', f'__version__ = "{version}"'),
        ("hpq/domain/sweep.py", r"\nSCHEMA = \d+", f"\nSCHEMA = {schema}"),
        ("hpq/domain/sweep.py", r"\nCOMMON_SCHEMA = \d+", f"\nCOMMON_SCHEMA = {schema}"),
    ):
        file = folder / path
        new, count = re.subn(rule, text, file.read_text("utf-8"))
        assert count == 1, path
        file.write_text(new, "utf-8")
    return {"PYTHONPATH": str(folder)}


@pytest.fixture
def newer(lab) -> dict[str, str]:
    """The next version, whose sweeps this one cannot read."""
    env = copy_of(lab, "newer", version=NEWER, schema=SCHEMA + 1)
    assert lab.ok("--version", **env).strip() == f"hpq {NEWER}"
    return env


def versions(lab) -> set[str]:
    return {w.version for w in lab.reader.workers.live()}


def who_ran(lab, sid: str) -> set[str]:
    return {e.fields["worker"] for e in lab.reader.events.read(sid) if e.what == "claimed"}


@pytest.mark.slow
def test_workers_of_two_versions_finish_one_sweep_together(lab, newer) -> None:
    """B10: one worker of this version and one of the next on one sweep."""
    sid = lab.steered(6)
    lab.worker()
    lab.worker(**newer)
    lab.wait_until(lambda: versions(lab) == {__version__, NEWER}, "both workers")
    lab.wait_until(lambda: lab.reader.sweeps.get(sid).counts.running == 2, "a trial of each")
    lab.go()
    lab.wait_over(sid)
    assert len(who_ran(lab, sid)) == 2 and lab.reader.sweeps.get(sid).counts.finished == 6
    assert "Traceback" not in lab.log()


@pytest.mark.slow
def test_a_trial_whose_newer_worker_is_lost_is_finished_by_an_older_one(lab, newer) -> None:
    """B10, F1: kill -9 of a worker of the next version; one of this version takes its trial."""
    sid = lab.steered(1)
    fleet = lab.worker(**newer)
    lab.wait_for("began-1-1")
    lab.worker()
    lab.wait_until(lambda: versions(lab) == {__version__, NEWER}, "both workers")
    fleet.kill()
    lab.wait_for("began-1-2")
    lab.go()
    lab.wait_over(sid)
    assert lab.events(sid) == ["claimed", "requeued", "claimed", "finished"]


@pytest.mark.slow
def test_an_older_worker_leaves_a_newer_sweep_and_everybody_is_told_why(lab, newer) -> None:
    """B10: a sweep of a newer schema, and only an older worker."""
    lab.steered(1)  # makes the trainer
    lab.worker()
    lab.wait_until(lambda: versions(lab) == {__version__}, "the older worker")
    file = lab.code / "sweep-1.yaml"
    done = lab.hpq("enqueue", file, "--new", **newer)
    assert done.returncode == 0 and "hpq-too-old" in ids(done.stderr)
    sid = done.stdout.strip()
    lab.go()
    lab.wait_until(
        lambda: any(sid in w.refuses for w in lab.reader.workers.live()),
        "the older worker's reason",
    )
    assert "hpq-too-old" in ids(lab.log())
    for words in (("watch", sid, "--once"), ("show", sid), ("show", f"{sid}/1"), ("audit", sid)):
        for env in ({}, newer):
            done = lab.hpq(*words, **env)
            assert done.returncode == 0, (words, done)
    shown = json.loads(lab.ok("watch", sid, "--once", "--json"))
    assert [one["code"] for one in shown["needs_you"]] == ["hpq-too-old"]
    refuses = json.loads(lab.ok("workers", "--json"))[0]["refuses"]
    assert refuses[sid]["code"] == "hpq-too-old"
    more = lab.write("more.yaml", file.read_text("utf-8").replace("[1]", "[1, 2]"))
    assert "sweep-differs" in ids(lab.hpq("enqueue", more, "--into", sid).stderr)
    lab.ok("pause", sid)
    lab.ok("resume", sid)
    # It went on with what it can read, and a newer worker takes the rest.
    (other,) = (s for s in lab.reader.sweeps.ids() if s != sid)
    lab.wait_over(other)
    assert lab.reader.sweeps.get(sid).counts.queued == 1 and not who_ran(lab, sid)
    assert ids(lab.log()).count("hpq-too-old") == 1
    lab.worker(**newer)
    lab.wait_over(sid)
    assert "Traceback" not in lab.log()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reads", "more", "schema"),
    [(2, "", COMMON_SCHEMA), (3, "constraints: [gpu_gb <= 24]\n", FEATURE_SCHEMA)],
    ids=["signed parameters", "constraints"],
)
def test_a_worker_that_would_not_check_a_sweep_leaves_it(lab, reads, more, schema) -> None:
    """B10: schema 2 runs any parameters that a client of Redis wrote, 3 ranks any trial."""
    lab.worker(**copy_of(lab, "older", version="0.1.0a1", schema=reads))
    sid = lab.steered(1, more)
    assert lab.reader.sweeps.get(sid).schema == schema
    assert lab.refusal(sid).code == "hpq-too-old" and not who_ran(lab, sid)


@pytest.mark.slow
def test_an_older_hpq_reads_fields_and_words_that_it_does_not_know(lab) -> None:
    """B10: fields, states, failure kinds and events of a newer version in Redis."""
    sid = lab.steered(3)
    lab.go()
    lab.worker()
    lab.wait_over(sid)
    sweep, keys, redis = lab.keys.sweep(sid), lab.keys, lab.redis
    launch = json.loads(redis.hget(sweep, "launch")) | {"sandbox": "gvisor"}
    redis.hset(sweep, mapping={"launch": json.dumps(launch), "color": "blue"})
    first, second, third = (keys.trial(lab.trial(sid, n).id) for n in (1, 2, 3))
    redis.hset(first, mapping={"state": "suspended", "color": "blue"})
    redis.hset(second, mapping={"state": "failed", "kind": "evicted", "error": "by the cluster"})
    redis.hset(third, "shade", b"\xff\xfe")
    events = keys.sweep(sid, "events")
    redis.xadd(events, {"e": "suspended", "n": 1, "a": 1, "color": "blue"})
    redis.xadd(events, {"e": "repainted {0}", "color": b"\xff"})
    assert lab.trial(sid).phase.startswith("suspended ")
    for words in (
        ("show", sid), ("show", f"{sid}/1"), ("show", f"{sid}/2", "--json"), ("ls",), ("best",),
        ("results", sid), ("results", sid, "--json"), ("summary", sid), ("watch", sid, "--once"),
        ("logs", f"{sid}/3"), ("workers",),
    ):  # fmt: skip
        assert lab.hpq(*words).returncode == 0, lab.hpq(*words)
    shown = lab.ok("show", f"{sid}/2")
    assert "evicted" in shown and "by the cluster" in shown
    found = json.loads(lab.hpq("audit", sid, "--json").stdout)
    assert found["unknown_events"] == {"suspended": 1, "repainted {0}": 1}


INVITES = """
from hpq_producer.invitation import Invitation
files = {"code.key": "0123456789abcdef", "password": "secret"}
print(Invitation(url="redis://server:6379/0", settings={}, files=files, versions={}).encode())
"""
JOINS = "import sys, hpq_producer.invitation as i; print(i.Invitation.decode(sys.argv[1]).url)"


@pytest.fixture(scope="session")
def released(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Version N, as the environment that runs its wheel."""
    return {"PYTHONPATH": str(install_released(tmp_path_factory.mktemp("released")))}


# Version N counts trials that were pruned at the usual last step as saved time, too.
OTHERWISE = ("saved",)


def has_all_of(new: Any, old: Any, alike: Callable[[Any], Any]) -> bool:
    """Whether `new` has each field of `old`, with a value that `alike` maps to the same."""
    if isinstance(old, dict):
        return all(k in new and (k in OTHERWISE or has_all_of(new[k], old[k], alike)) for k in old)
    if isinstance(old, list):
        return len(new) == len(old) and all(
            has_all_of(*two, alike) for two in zip(new, old, strict=True)
        )
    return bool(alike(new) == alike(old)) or None in (new, old)


def but_sentences(value: Any) -> str:
    """A value as text, and any sentence as the same one: a version may say it in other words."""
    return "" if isinstance(value, str) and " " in value else str(value)


@pytest.mark.slow
@pytest.mark.parametrize("commands", ["released", "this"])
def test_commands_of_one_version_and_workers_of_the_other_share_a_server(
    lab, newer, released, commands
) -> None:
    """B10: version N, a wheel of a recorded commit, as the Redis users of this version."""
    here, there = (released, THIS) if commands == "released" else (THIS, released)
    for role in ("producer", "worker", "viewer", "autoscaler"):
        (lab.folder / role).write_text("secret", "utf-8")
    for line in lab.ok("redis-acl", "--passwords", lab.folder, **THIS).splitlines():
        lab.redis.execute_command(*line.split())
    producer, worker = (
        {
            "HPQ_REDIS_URL": lab.server.url.replace("://", f"://hpq-{role}@"),
            "HPQ_REDIS_PASSWORD_FILE": str(lab.folder / role),
        }
        for role in ("producer", "worker")
    )
    lab.env |= here | producer
    says = 'print(f"runs in {hpq.__file__}"); mark(f'
    lab.write("steered.py", STEERED.replace("import os", "import hpq, os").replace("mark(f", says))
    sid = lab.steered(6)
    first = lab.worker(**there, **worker)
    lab.wait_for("began-1-1")
    lab.worker(**here, **worker)
    lab.wait_for("began-2-1")
    for words in (("watch", sid, "--once"), ("workers",), ("ls",)):
        old, new = (json.loads(lab.ok(*words, "--json", **env)) for env in (released, THIS))
        assert has_all_of(new, old, type), (words, old, new)
    lab.ok("pause", sid)
    lab.ok("set", sid, "priority=3", **there)
    lab.ok("cancel", f"{sid}/6", "--yes", **there)
    lab.ok("resume", sid, **there)
    unread = lab.ok("enqueue", lab.code / "sweep-1.yaml", "--new", **newer).strip()
    first.kill()
    lab.worker(**here, **worker)  # of the other version
    lab.wait_for("began-1-2")
    lab.worker(**there, **worker)
    lab.write("searched.py", SEARCHES)
    searched = lab.enqueue(SEARCHED)
    lab.go()
    for ended in (sid, searched):
        lab.wait_over(ended)
    for nth in (1, 3):  # one of each version
        lab.wait_until(lambda n=nth: "hpq-too-old" in ids(lab.log(n)), f"{nth} to refuse")
    assert lab.reader.sweeps.get(unread).counts.queued == 6
    places = {
        line for n in range(1, 6) for line in lab.printed(sid, n).splitlines() if "runs" in line
    }
    assert len(places) == 2 and any(released["PYTHONPATH"] in line for line in places)
    assert "Traceback" not in lab.log()

    for ended in (sid, searched):
        views = [(what, ended, "--json") for what in ("results", "summary", "audit")]
        seen = {words: json.loads(lab.ok(*words, **there)) for words in views}
        file = lab.folder / f"{ended}.hpq"
        lab.ok("archive", ended, file)
        lab.ok("rm", ended, "--yes", **there)
        lab.ok("archive", "--restore", file, **there)
        for words in views:
            new, old = json.loads(lab.ok(*words)), seen[words]
            if here is released:
                new, old = old, new
            assert has_all_of(new, old, but_sentences), (words, old, new)
    page = lab.folder / "page.html"
    lab.ok("report", sid, searched, "--out", page, **there)
    assert searched in page.read_text("utf-8")


@pytest.mark.parametrize("made_by", ["released", "this"])
def test_a_token_of_one_version_is_read_by_the_other(released, made_by) -> None:
    """B10: what `hpq invite` prints, and `hpq join` reads."""
    one, other = (released, THIS) if made_by == "released" else (THIS, released)
    python, env = [sys.executable, "-c"], {**os.environ}
    made = subprocess.run(
        [*python, INVITES], env=env | one, capture_output=True, text=True, check=True
    )
    read = [*python, JOINS, made.stdout]
    joined = subprocess.run(read, env=env | other, capture_output=True, text=True, check=True)
    assert joined.stdout == "redis://server:6379/0\n"
