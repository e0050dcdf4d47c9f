"""`python -m benchmarks [NAME …]`: print figures with their targets and their peers."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import (
    budget,
    checkpoint,
    cli,
    drain,
    enqueue,
    gap,
    million,
    page,
    parent,
    preload,
    recovery,
    reports,
    size,
    suggest,
    trainer,
    watch,
)
from benchmarks.figures import Figure
from benchmarks.server import private_server
from benchmarks.table import as_json, conditions, text

BENCHMARKS = {
    "enqueue": (enqueue.measure, "queueing a grid of five parameters"),
    "size": (size.measure, "Redis's memory for a queued trial, at 10,000"),
    "parent": (parent.measure, "memory of a worker's parent process"),
    "gap": (gap.measure, "from the end of a trial to the first step of the next"),
    "cli": (cli.measure, "wall time and CPU time of commands"),
    "drain": (drain.measure, "1,000 empty trials, one worker"),
    "preload": (preload.measure, "one-second programs that import torch, one worker"),
    "checkpoint": (checkpoint.measure, "copying a file of 1 GiB into the store"),
    "reports": (
        reports.measure,
        "CPU time of a call that reports three metrics, or more",
    ),
    "recovery": (recovery.measure, "from the loss of a worker to the requeue of its trial"),
    "budget": (budget.measure, "what 8 and 64 workers spend beyond a budget"),
    "suggest": (suggest.measure, "a set of a bayes sweep, CPU time; workers' gaps"),
    "trainer": (trainer.measure, "CIFAR10 on a CPU, a thread, the small sweep's sets"),
    "million": (million.measure, "a sweep of 1,000,000 trials, each command once"),
    "watch": (watch.measure, "CPU time of a frame, 120 columns by 50 rows"),
}
_BY_NAME_ONLY = ("trainer",)  # minutes of computing, and needs CIFAR10


def main() -> None:
    """Run the named benchmarks, without names all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(BENCHMARKS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print each round's value as JSON")
    parser.add_argument("--page", type=Path, help="write the tables into this page, too")
    args = parser.parse_args()
    names = args.names or [name for name in BENCHMARKS if name not in _BY_NAME_ONLY]
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"no benchmark {unknown[0]!r}; choose from {', '.join(BENCHMARKS)}")
    if args.rounds < 1:
        parser.error("--rounds: at least 1")
    # Workers and servers of a benchmark must end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with private_server() as server:
        about = conditions(server.version)
    if not args.json:
        print("\n".join(f"{key}: {value}" for key, value in about.items()), end="\n\n")
    groups: dict[str, Sequence[Figure]] = {}
    for name in names:
        print(f"{name} …", file=sys.stderr)
        measure, line = BENCHMARKS[name]
        groups[name] = list(measure(args.rounds))
        table = text(name, line, groups[name])
        if not args.json:
            print(table, flush=True)
        if args.page:
            page.write(args.page, name, table, about)
    if args.json:
        print(as_json(about, groups))


if __name__ == "__main__":
    main()
