"""Code that reaches running pods without an image, and what it finds there."""

from __future__ import annotations

import json

from tests.cluster.place import Laptop, Namespace

SWEEP = """
    program: train.py
    code: .
    method: grid
    metric: {name: loss}
    parameters: {x: {value: 1}}
"""
LOOKS = """
    import json, os
    from pathlib import Path

    def writable(place):
        try:
            Path(place, "probe").touch()
        except OSError:
            return False
        return True

    Path(os.environ["HPQ_OUT"], "found.json").write_text("{}")
    print("FOUND " + json.dumps({
        "env": sorted(os.environ),
        "uid": os.getuid(),
        "writable": [p for p in ("/", "/opt/hpq", "/opt/venv", "/tmp", "/cache") if writable(p)],
        "token": Path("/var/run/secrets/kubernetes.io").exists(),
        "compilers": [c for c in ("gcc", "cc", "g++", "clang", "make")
                      if any(Path(p, c).exists() for p in os.environ["PATH"].split(":"))],
    }))
    print("loss=1")
"""


def test_an_edit_is_trained_by_the_pod_that_was_there_before_it(
    namespace: Namespace, laptop: Laptop
) -> None:
    (pod,) = namespace.wait_ready(1)
    laptop.write("train.py", "print('loss=1')\n")
    before = laptop.enqueue(SWEEP)
    laptop.wait_over(before)
    laptop.write("train.py", "from helper import loss\nprint(f'loss={loss}')\n")
    laptop.write("helper.py", "loss = 2\n")
    after = laptop.enqueue(SWEEP)
    laptop.wait_over(after)
    assert (laptop.trial(before).objective, laptop.trial(after).objective) == (1.0, 2.0)
    assert namespace.ready() == [pod]
    status = namespace.pods()[0]["status"]["containerStatuses"][0]
    assert status["restartCount"] == 0 and pod in laptop.trial(after).worker


def test_unsigned_code_is_refused_and_counted_and_the_pod_works_on(
    namespace: Namespace, laptop: Laptop
) -> None:
    laptop.write("train.py", "print('loss=3')\n")
    forged = laptop.enqueue(SWEEP, "--name", "forged", HPQ_CODE_KEY="not the cluster's")
    refusal = lambda: [w for w in laptop.reader.workers.live() if forged in w.refuses]  # noqa: E731
    (worker,) = laptop.wait_until(refusal, "the refusal")
    assert worker.refuses[forged].code == "code-not-signed"
    sound = laptop.enqueue(SWEEP, "--name", "sound", "--new")
    laptop.wait_over(sound)
    assert laptop.redis.hget(laptop.keys.counters, "code_refused") == b"1"
    assert "claimed" in laptop.events(forged) and "finished" not in laptop.events(forged)
    assert forged in laptop.hpq("workers").stderr
    laptop.ok("cancel", forged, "--yes")


def test_a_program_sees_what_it_is_passed_and_writes_where_it_may(
    namespace: Namespace, laptop: Laptop
) -> None:
    laptop.write("train.py", LOOKS)
    sid = laptop.enqueue(SWEEP + "    pass_env: [ASKED_AND_PASSED, ASKED_ONLY]\n")
    laptop.wait_over(sid)
    (line,) = [x for x in laptop.ok("logs", sid + "/1").splitlines() if "FOUND" in x]
    found = json.loads(line.partition("FOUND ")[2])
    assert found["uid"] == 10001 and not found["token"] and not found["compilers"]
    assert found["writable"] == ["/cache"]
    env = set(found["env"])
    assert {"HPQ_PARAMS", "HPQ_OUT", "HPQ_IMAGE", "ASKED_AND_PASSED", "PATH"} <= env
    assert not {n for n in env if "KEY" in n or "PASSWORD" in n or "REDIS" in n or "ONLY" in n}
    assert "KUBERNETES_SERVICE_HOST" not in env
