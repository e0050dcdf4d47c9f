"""Measure the wall time and the CPU time of commands, including the interpreter's start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.figures import Figure, in_turn
from benchmarks.processes import HPQ, RQ, wall_and_cpu_s
from benchmarks.server import private_server
from benchmarks.sweeps import put, write_grid

_SWEEPS = 100
_MORE = 3  # rounds per requested round: the commands are short, and the machine is noisy


def measure(rounds: int) -> Iterator[Figure]:
    """Measure hpq's commands, Python itself and RQ's commands."""
    with private_server() as server:
        file = write_grid(server.folder, 100)
        sids = [put(server, file) for _ in range(_SWEEPS)]
        # the most CPU time in milliseconds, and RQ's command to compare with
        ours: dict[str, tuple[tuple[str, ...], float | None, str]] = {
            "python -c pass": ((sys.executable, "-c", "pass"), None, ""),
            "hpq --help": ((*HPQ, "--help"), 110, "rq --help"),
            "hpq ls, 20 of 100 sweeps": ((*HPQ, "ls"), 300, "rq info, one queue"),
            "hpq ls --all, 100 sweeps": ((*HPQ, "ls", "--all"), None, ""),
            "hpq show": ((*HPQ, "show", sids[0]), 300, ""),
            "hpq summary, 100 trials": ((*HPQ, "summary", sids[0]), 450, ""),
            "hpq enqueue, a known file": ((*HPQ, "enqueue", str(file)), 450, ""),
        }
        commands = {what: words for what, (words, *_) in ours.items()} | {
            "rq --help": (*RQ, "--help"),
            "rq info, one queue": (*RQ, "info", "--url", server.url),
        }
        calls = {
            what: partial(wall_and_cpu_s, words, server.env) for what, words in commands.items()
        }
        found = in_turn(_MORE * rounds, calls)
    for kind, place in (("CPU", 1), ("wall", 0)):
        values = {what: [1000 * pair[place] for pair in pairs] for what, pairs in found.items()}
        for what, (_, most, peer) in ours.items():
            target = most if kind == "CPU" else None
            figure = Figure(what=f"{what}, {kind}", unit="ms", values=values[what], target=target)
            yield figure
            if peer:
                yield figure.peer(f"{peer}, {kind}", values[peer])
