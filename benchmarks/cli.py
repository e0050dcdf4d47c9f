"""Measure the wall time of commands, including the interpreter's start."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

from benchmarks.figures import Figure, in_turn
from benchmarks.processes import HPQ, RQ, wall_s
from benchmarks.server import private_server
from benchmarks.sweeps import put, write_grid

_SWEEPS = 100
_MORE = 3  # rounds per requested round: the commands are short, and the machine is noisy


def measure(rounds: int) -> Iterator[Figure]:
    """Measure hpq's commands, Python itself and RQ's commands."""
    with private_server() as server:
        file = write_grid(server.folder, 100)
        for _ in range(_SWEEPS):
            put(server, file)
        commands = {
            "hpq --help": (*HPQ, "--help"),
            "rq --help": (*RQ, "--help"),
            "hpq ls": (*HPQ, "ls"),
            "hpq ls --all": (*HPQ, "ls", "--all"),
            "rq info": (*RQ, "info", "--url", server.url),
            "python": (sys.executable, "-c", "pass"),
        }
        calls = {name: partial(wall_s, words, server.env) for name, words in commands.items()}
        found = {
            name: [1000 * s for s in values]
            for name, values in in_turn(_MORE * rounds, calls).items()
        }
    yield Figure(what="python -c pass", unit="ms", values=found["python"])
    ours = Figure(what="hpq --help", unit="ms", values=found["hpq --help"], target=250)
    yield ours
    yield ours.peer("rq --help", found["rq --help"])
    ours = Figure(what="hpq ls, 20 of 100 sweeps", unit="ms", values=found["hpq ls"], target=500)
    yield ours
    yield ours.peer("rq info, one queue", found["rq info"])
    yield Figure(
        what="hpq ls --all, 100 sweeps", unit="ms", values=found["hpq ls --all"], target=500
    )
