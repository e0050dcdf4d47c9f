"""What real workers tell a budget about their GPUs."""

from __future__ import annotations

import pytest

SWEEP = """
program: train.py
command: ["${env}", python, "${program}"]
method: grid
metric: {name: loss, goal: minimize}
parameters: {x: {values: [1]}}
budget: {gpu_hours: 1}
"""


@pytest.mark.parametrize(("visible", "gpus"), [("", 1), ("0", 0.25)])
def test_a_trial_counts_its_share_of_a_gpu_and_one_on_a_cpu(lab, visible: str, gpus: float) -> None:
    lab.write("train.py", 'print("loss=1")')
    sid = lab.enqueue(SWEEP)
    lab.worker(HPQ_TRIALS_PER_GPU="4", CUDA_VISIBLE_DEVICES=visible)
    lab.wait_over(sid)
    assert float(lab.redis.hget(lab.keys.trial(lab.trial(sid, 1).id), "gpus")) == gpus
