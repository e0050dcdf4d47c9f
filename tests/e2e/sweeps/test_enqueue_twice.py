"""Enqueue is all or nothing, and twice is once."""

from __future__ import annotations

import signal
import subprocess
import sys
from typing import Any

import pytest

from hpq.store.sweep_writer import SweepWriter
from tests.support.constants import DEADLINE_S

SWEEP = "program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"
# The command line, which is killed when its first rows are written.
KILLED = """
import os, signal
from hpq.store.sweep_writer import SweepWriter
from hpq_producer.cli import main
add_rows = SweepWriter.add_rows

def add_rows_and_die(*words):
    add_rows(*words)
    os.kill(os.getpid(), signal.SIGKILL)

SweepWriter.add_rows = add_rows_and_die
main()
"""


def test_the_same_file_twice_is_one_sweep_unless_it_is_to_be_new(lab) -> None:
    """F28: the same enqueue again."""
    lab.write("train.py", "")
    sid = lab.enqueue(SWEEP)
    file = lab.code / "sweep-1.yaml"
    again = lab.hpq("enqueue", file)
    assert (again.returncode, again.stdout.strip()) == (0, sid) and "--new" in again.stderr
    new = lab.ok("enqueue", file, "--new").strip()
    assert new != sid and set(lab.reader.sweeps.ids()) == {sid, new}
    lab.write("train.py", "# edited\n")
    edited = lab.ok("enqueue", file).strip()
    assert edited not in (sid, new)


def test_enqueues_at_the_same_time_make_one_sweep(lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """F28: two producers, the same file: both have written rows when the second creates."""
    lab.write("train.py", "")
    file = lab.write("sweep.yaml", SWEEP)
    create, second = SweepWriter.create, list[str]()

    def create_after_another(*words: Any, **fields: Any) -> str | None:
        monkeypatch.setattr(SweepWriter, "create", create)
        second.append(lab.ok("enqueue", file).strip())
        return create(*words, **fields)

    monkeypatch.setattr(SweepWriter, "create", create_after_another)
    assert [lab.ok("enqueue", file).strip()] == second == lab.reader.sweeps.ids()
    (sid,) = second
    assert lab.redis.hlen(lab.keys.sweep(sid, "params")) == 2
    (owner,) = {k.split(b":")[2] for k in lab.redis.keys("hpq:s:*")}
    assert owner.decode() == sid  # of the other no row is left


def test_an_enqueue_that_was_killed_leaves_nothing_visible(lab) -> None:
    """F28: kill -9 of an enqueue between its rows."""
    lab.write("train.py", "")
    file = lab.write("sweep.yaml", SWEEP)
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, "enqueue", str(file)], cwd=lab.code, env=lab.env,
        stdin=subprocess.DEVNULL, capture_output=True, timeout=DEADLINE_S, check=False,
    )  # fmt: skip
    assert killed.returncode == -signal.SIGKILL, killed
    rows = lab.redis.keys("hpq:s:*")
    assert rows and all(lab.redis.ttl(key) > 0 for key in rows)
    assert lab.reader.sweeps.ids() == [] and "sweep" not in lab.ok("ls", "--json")
    sid = lab.ok("enqueue", file).strip()
    assert lab.reader.sweeps.get(sid).counts.queued == 2
