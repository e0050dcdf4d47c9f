"""Data of a newer hpq: refused in one place, and named wherever the sweep would be read."""

from __future__ import annotations

import json

import pytest

from hpq.domain.sweep import SCHEMA
from hpq.domain.trial import TrialState
from tests.support.ids import ids, refused


@pytest.mark.slow
def test_a_sweep_of_a_greater_schema_is_refused_by_name_and_the_others_run(lab) -> None:
    """B10: a sweep of a newer schema."""
    sid = lab.steered(1)
    lab.redis.hset(lab.keys.sweep(sid), "schema", SCHEMA + 1)
    lab.worker()
    assert lab.refusal(sid).code == "hpq-too-old"
    for words in (("show", sid), ("results", sid), ("pause", sid), ("archive", sid, "it.hpq")):
        refused(lab.hpq(*words), "hpq-too-old", exit=3)
    (row,) = json.loads(lab.ok("ls", "--json"))
    assert (row["id"], row["state"]) == (sid, "unreadable") and "upgrade" in row["why"]
    other = lab.steered(2)
    lab.go()
    lab.wait_over(other)
    assert ids(lab.log()).count("hpq-too-old") == 1 and "Traceback" not in lab.log()
    lab.redis.hset(lab.keys.sweep(sid), "schema", SCHEMA)
    assert lab.trial(sid).state is TrialState.QUEUED and lab.events(sid)[-1:] != ["failed"]
