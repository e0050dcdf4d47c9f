"""What a real worker without a GPU tells a budget; test_telemetry has one with a GPU."""

from __future__ import annotations

SWEEP = """
trainer: train:train
resident: true
method: grid
metric: {name: loss, goal: minimize}
parameters: {x: {values: [1]}}
budget: {gpu_hours: 1}
"""


def test_a_trial_on_a_cpu_counts_as_one_gpu(lab) -> None:
    lab.write("train.py", "def train(params, trial):\n    return {'loss': 1}\n")
    sid = lab.enqueue(SWEEP)
    lab.worker(HPQ_TRIALS_PER_GPU="4")
    lab.wait_over(sid)
    key = lab.keys.trial(lab.trial(sid).id)
    assert float(lab.redis.hget(key, "gpus") or 1) == 1  # the record leaves out one
