"""`python -m benchmarks.jobs IMAGE`: 16 trials of digits on a cluster, as Jobs or by two workers.

Needs the running test cluster with IMAGE (of `--target worker`). Both ways are limited by a node
resource with two units: as with GPUs, a new pod waits until another ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from benchmarks.figures import Figure
from benchmarks.table import text
from hpq.domain.trial import TrialId
from tests.cluster import kube
from tests.cluster.kube import Cluster, tweaked
from tests.cluster.place import SETTINGS, Laptop, Namespace

_SETS, _SLOTS = 16, 2
_DEADLINE_S = 1200.0
_RESOURCE = "hpq.example/slot"
_TRAINER = """
    import time
    from hpq_worker.trainers import digits

    class Noting:
        def __init__(self, trial):
            self.trial, self.at = trial, []

        def __getattr__(self, name):
            return getattr(self.trial, name)

        def report(self, metrics, step):
            self.at.append(time.time())
            self.trial.report({"acc": metrics["test/acc"]}, step)

    def train(params, trial):
        noting = Noting(trial)
        digits.train(params, noting)
        return {"first": noting.at[0], "last": noting.at[-1]}
"""
_SWEEP = """
    trainer: noting:train
    code: .
    resident: true
    method: grid
    metric: {name: acc, goal: maximize}
    parameters:
      epochs: {value: 100}
      max_learning_rate: {values: [0.01, 0.05, 0.2, 0.8]}
      momentum: {values: [0.5, 0.9]}
      hidden: {values: [8, 128]}
"""


@contextmanager
def _slots(cluster: Cluster) -> Iterator[None]:
    """Give the node two units of the resource during the measurement."""
    node = cluster.get("nodes")["items"][0]["metadata"]["name"]
    path = "/status/capacity/" + _RESOURCE.replace("/", "~1")

    def patch(op: dict[str, str]) -> None:
        words = ("patch", "node", node, "--subresource=status", "--type=json", "-p")
        cluster.kubectl(*words, json.dumps([op | {"path": path}]))

    patch({"op": "add", "value": str(_SLOTS)})
    try:
        yield
    finally:
        patch({"op": "remove"})


def _limited(objects: list[dict[str, Any]]) -> None:
    """Request one unit of the resource, and little else, for each worker's pod."""
    for one in objects:
        if one["kind"] in ("Deployment", "Job"):
            (worker,) = one["spec"]["template"]["spec"]["containers"]
            worker["resources"]["requests"] = {"cpu": "100m", "memory": "64Mi", _RESOURCE: "1"}
            worker["resources"]["limits"][_RESOURCE] = "1"


def _run(laptop: Laptop, start: Callable[[], str]) -> tuple[list[float], float]:
    """Return the gaps of a sweep that `start` starts, and its total time, in seconds."""
    begun = time.time()
    sid = start()
    laptop.wait_over(sid, _DEADLINE_S)
    steps = []
    for n in range(1, _SETS + 1):
        metrics = laptop.reader.trials.get(TrialId(sweep=sid, number=n)).metrics
        steps.append((metrics["first"], metrics["last"]))
    ends = sorted(last for _, last in steps)
    starts = sorted(first for first, _ in steps)
    # A starting trial takes the place of the one that ended first.
    gaps = [starts[i] - ends[i - _SLOTS] for i in range(_SLOTS, _SETS)]
    mean_s = sum(last - first for first, last in steps) / _SETS
    load = os.getloadavg()[0]
    print(f"{sid}: the steps of a set take {mean_s:.2f} s; load {load:.1f}", file=sys.stderr)
    return gaps, ends[-1] - begun


def _by_jobs(namespace: Namespace, laptop: Laptop, image: str, file: Path) -> str:
    words = ("manifests", "--namespace", namespace.name, "--image", image, "--gpus", 0)
    printed = laptop.ok(*words, "--jobs", file)
    objects = tweaked([one for one in yaml.safe_load_all(printed) if one], SETTINGS)
    _limited(objects)
    namespace.apply(objects)
    return str(objects[-1]["metadata"]["labels"]["hpq/sweep"])


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs")
    parser.add_argument("image")
    image = parser.parse_args().image
    cluster = kube.connect()
    with tempfile.TemporaryDirectory() as name, _slots(cluster):
        namespace = Namespace(cluster, "hpq-bench-jobs", Path(name, "home"))
        try:
            namespace.deploy(image, replicas=_SLOTS, change=_limited)
            laptop = Laptop(namespace, Path(name))
            laptop.write("noting.py", _TRAINER)
            file = laptop.write("sweep.yaml", _SWEEP)
            resident, all_s = _run(laptop, lambda: laptop.ok("enqueue", file, "--new").strip())
            namespace.scale(0)
            namespace.wait_ready(0)
            file.write_text(file.read_text("utf-8") + "\nseed: 1\n", "utf-8")
            start = lambda: _by_jobs(namespace, laptop, image, file)  # noqa: E731
            jobs, jobs_s = _run(laptop, start)
            laptop.close()
        finally:
            namespace.delete()
    ours = Figure(what="hpq, two resident workers, gap of two sets", unit="s", values=resident)
    whole = Figure(what="hpq, two resident workers, all 16 sets", unit="s", values=[all_s])
    figures = [ours, ours.peer("a Job a set, two at a time, gap of two sets", jobs)]
    figures += [whole, whole.peer("a Job a set, all 16 sets", [jobs_s])]
    line = "16 sets of digits in pods, from a set's last step to the first of the next in its place"
    print(text("jobs", line, figures))


if __name__ == "__main__":
    main()
