"""What `hpq worker` prints at its start."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S
from tests.support.ids import ids

SWEEP = "program: train.py\nmethod: grid\nparameters: {x: {values: [1, 2]}}\n"


def test_a_worker_names_the_sweeps_that_wait(desk, environ) -> None:
    old = desk.sweep(SWEEP)
    done = subprocess.run(
        [HPQ, "worker", "--count", "2"], stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=DEADLINE_S, check=False, env={**os.environ, "HPQ_LEES_S": "3"},
    )  # fmt: skip
    assert done.returncode == 0 and desk.reader.sweeps.get(old).state.is_over, done
    assert ids(done.stderr).count("setting-unknown") == 1
    assert "queue default: 1 sweep waits" in done.stderr and f"  {old}: 2 trials" in done.stderr


def test_sweeps_that_a_worker_cannot_claim_are_not_listed(desk, redis, redis_url) -> None:
    paused = desk.sweep(SWEEP)
    desk.hpq("pause", paused)
    other = desk.sweep(SWEEP + "queue: a100\n")
    redis.config_set("requirepass", "s3cr3t-Passw0rd")
    try:
        url = redis_url.replace("unix://", "unix://:s3cr3t-Passw0rd@")
        done = subprocess.run(
            [HPQ, "worker", "--count", "0"], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=DEADLINE_S, check=False,
            env={**os.environ, "HPQ_REDIS_URL": url},
        )  # fmt: skip
        assert done.returncode == 2
        worker = subprocess.Popen(
            [HPQ, "worker"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "HPQ_REDIS_URL": url},
        )  # fmt: skip
        assert worker.stderr is not None
        line = worker.stderr.readline()
        worker.terminate()
        rest = worker.communicate()[1]
    finally:
        redis.config_set("requirepass", "")
    assert "0 sweeps wait" in line and "unix://:***@" in line
    assert not [word for word in (paused, other, "s3cr3t") if word in line + rest]


def test_how_trials_share_gpus_is_an_option(desk, tmp_path: Path) -> None:
    """The settings' own checks refuse both: a machine without a GPU, and two ways at once."""
    for words, gpus, said in (
        (["--gpus", "2"], None, "no-gpu"),
        (["--gpus", "2", "--trials-per-gpu", "2"], "0,1", "setting-invalid"),
    ):
        env = {**os.environ, "PATH": str(tmp_path)}
        if gpus:
            env["CUDA_VISIBLE_DEVICES"] = gpus
        done = subprocess.run(
            [HPQ, "worker", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=DEADLINE_S, check=False, env=env,
        )  # fmt: skip
        assert done.returncode == 2 and said in ids(done.stderr), done.stderr
