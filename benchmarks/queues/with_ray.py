"""Ray Tune, one trial at a time: runs as many trials as each line of the input says."""

import os
import sys
import tempfile

os.environ["RAY_AIR_NEW_OUTPUT"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import ray
from ray import tune


def train(params):
    tune.report({"loss": 0.0})


def run(trials, folder):
    config = tune.TuneConfig(
        num_samples=trials, max_concurrent_trials=1, reuse_actors="reuse_actors" in sys.argv
    )
    quiet = tune.RunConfig(verbose=0, storage_path=folder)
    space = {"number": tune.uniform(0, 1)}
    tune.Tuner(train, param_space=space, tune_config=config, run_config=quiet).fit()


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            run(int(line), folder)
            print("done", flush=True)
