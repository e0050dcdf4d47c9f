"""The log as JSON: what a whole worker rarely logs."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import sys
import threading
from hpq.domain.trial import TrialId
from hpq.settings import read
from hpq_worker.process import logs

url = "redis://worker:a-password@host"
logs.configure(read({"HPQ_REDIS_URL": url, "HPQ_LOG_FORMAT": "json"}), worker="one")

def fail():
    raise ValueError("a-password")

for target in (fail, sys.exit):
    thread = threading.Thread(target=target)
    thread.start()
    thread.join()
logs.TrialOutput(TrialId(sweep="mine-00000", number=1)).add(b"said [redis-forbidden]\\n")
fail()
"""


def test_an_exception_of_any_thread_is_one_object_without_secrets() -> None:
    words = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(one["level"], one["worker"]) for one in found] == [("critical", "one")] * 2
    assert all("ValueError: ***" in one["message"] for one in found)
    assert "a-password" not in done.stderr
    (line,) = map(json.loads, done.stdout.splitlines())
    assert line["message"] == "said [redis-forbidden]" and "id" not in line  # ids are hpq's own
