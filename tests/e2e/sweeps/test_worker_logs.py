"""What a worker prints for log collectors: JSON, one object a line, and the output of trials."""

from __future__ import annotations

import json
import os
import socket
from datetime import datetime
from typing import Any

import pytest

from hpq.settings import read
from tests.support.ids import raises
from tests.support.lab import Lab

PROGRAM = """
    import os, sys
    print("epoch 1\\repoch 2\\rloss=0.5")
    print('{"level": "error"}', "\\x1b[31mred", os.environ.get("API_KEY"))
    sys.stdout.write("no end of line")
    if os.environ["HPQ_TRIAL_ID"].endswith("/2"):
        raise ValueError("bad")
"""
SWEEP = "program: ends.py\nmethod: grid\nmetric: {name: loss}\nparameters: {x: {values: [1, 2]}}\n"


def objects(lab: Lab) -> list[dict[str, Any]]:
    """Every line of the log, which must be an object with these fields."""
    found = [json.loads(line) for line in lab.log().splitlines()]
    for one in found:
        assert {"time", "level", "logger", "message"} <= set(one), one
        assert datetime.fromisoformat(one["time"]).tzinfo is not None
    return found


def test_every_line_is_an_object_with_the_id_the_trial_and_the_worker(lab: Lab) -> None:
    lab.write("ends.py", PROGRAM)
    sid = lab.enqueue(SWEEP)
    lab.worker(HPQ_LOG_FORMAT="json", HPQ_LOG_TRIALS="1", API_KEY="hidden-hidden-hidden")
    lab.wait_over(sid)
    os.kill(lab.parent(), 9)
    lab.wait_until(lambda: "worker-ended" in lab.log(), "the supervisor's line")
    found = objects(lab)
    (ended,) = [one for one in found if one.get("id") == "worker-ended"]
    assert ended["level"] == "error" and "[" not in ended["message"] and "worker" not in ended
    (failed,) = [one for one in found if f"{sid}/2 failed" in one["message"]]
    assert failed["level"] == "warning" and (failed["sweep"], failed["trial"]) == (sid, 2)
    assert failed["worker"] in {one.get("worker") for one in found if "ready" in one["message"]}
    output = [one for one in found if one["logger"] == "hpq.trial" and one["trial"] == 1]
    assert [one["message"] for one in output] == [
        "loss=0.5",
        '{"level": "error"} \x1b[31mred ***',
        "no end of line",
    ]
    assert all(one["sweep"] == sid and one["worker"] for one in output)
    assert any("ValueError: bad" in one["message"] for one in found if one.get("trial") == 2)


def test_an_error_that_ends_the_worker_is_an_object_too(lab: Lab) -> None:
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert lab.worker(HPQ_LOG_FORMAT="json", HPQ_PORT=port).wait() == 2
    assert [one["id"] for one in objects(lab)] == ["port-unusable"]


def test_text_has_the_output_of_trials_with_their_ids_if_asked(lab: Lab) -> None:
    lab.write("ends.py", PROGRAM)
    sid = lab.enqueue(SWEEP)
    lab.worker(1, "--count", "1", HPQ_LOG_TRIALS="1").wait()
    assert f"{sid}/1: loss=0.5\n" in lab.log() and f"{sid}/1: no end of line\n" in lab.log()
    assert "\x1b" not in lab.log()
    lab.worker(1, "--count", "1").wait()
    assert f"{sid}/2: " not in lab.log(), "by default it stays in Redis"
    assert "no end of line" in lab.ok("logs", f"{sid}/2")


@pytest.mark.parametrize(
    ("name", "text", "remedy"),
    [
        ("HPQ_LOG_FORMAT", "xml", "use text or json"),
        ("HPQ_LOG_TRIALS", "yes", "0 to 1"),
        ("HPQ_LOG", "loud", "use debug, info, warning or error"),
    ],
)
def test_a_value_that_is_none_is_refused(name: str, text: str, remedy: str) -> None:
    with raises("setting-invalid", name, remedy):
        read({name: text})
