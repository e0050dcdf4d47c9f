"""Measure the wall time and the CPU time of commands, including the interpreter's start."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from benchmarks.figures import Figure, in_turn
from benchmarks.million import end_waiting
from benchmarks.processes import HPQ, RQ, environment, wall_and_cpu_s
from benchmarks.server import private_server
from benchmarks.sweeps import put, write_grid, write_trials

_SWEEPS = 100
_ENDED = 10_000  # trials of the sweep that is written as CSV
_FIRST_LINE_S = 1.1  # from the start of `hpq run` to its first line, at most
_MORE = 3  # rounds per requested round: the commands are short, and the machine is noisy


def measure(rounds: int) -> Iterator[Figure]:
    """Measure hpq's commands, Python itself and RQ's commands."""
    with private_server() as server:
        file = write_grid(server.folder, 100)
        sids = [put(server, file) for _ in range(_SWEEPS)]
        many = put(server, write_grid(server.folder, _ENDED))
        end_waiting(server, many)
        few = put(server, write_trials(server.folder, "stamps:nothing", 16, resident=True))
        end_waiting(server, few)
        report = ("report", few, "--out", str(server.folder / "report.html"))
        # the most CPU time in milliseconds, and RQ's command to compare with
        ours: dict[str, tuple[tuple[str, ...], float | None, str]] = {
            "python -c pass": ((sys.executable, "-c", "pass"), None, ""),
            "hpq --help": ((*HPQ, "--help"), 110, "rq --help"),
            "hpq ls, 20 of 100 sweeps": ((*HPQ, "ls"), 300, "rq info, one queue"),
            "hpq ls --all, 100 sweeps": ((*HPQ, "ls", "--all"), None, ""),
            "hpq show": ((*HPQ, "show", sids[0]), 300, ""),
            "hpq summary, 100 trials": ((*HPQ, "summary", sids[0]), 450, ""),
            "hpq enqueue, a known file": ((*HPQ, "enqueue", str(file)), 450, ""),
            "hpq report, 16 trials": ((*HPQ, *report), 400, ""),
            "hpq results -o csv, 10,000 trials": ((*HPQ, "results", many, "-o", "csv"), None, ""),
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
    first = [_first_line_s() for _ in range(rounds)]
    what = "hpq run, from its start to its first line, wall"
    yield Figure(what=what, unit="s", values=first, target=_FIRST_LINE_S)


def _first_line_s() -> float:
    """Run a sweep of one trial outside git, with a private server that starts first."""
    with tempfile.TemporaryDirectory(prefix="hpq-bench-") as name:
        folder = Path(name)
        (folder / "train.py").write_text("print('loss=0')\n", "utf-8")
        text = "program: train.py\nmethod: grid\nmetric: {name: loss}\n"
        text += "parameters: {x: {values: [1]}}\n"
        (folder / "sweep.yaml").write_text(text, "utf-8")
        begun = time.perf_counter()
        process = subprocess.Popen(
            [*HPQ, "run", "sweep.yaml", "--workers", "1"],
            cwd=folder,
            env=environment({"HPQ_HOME": str(folder / "home")}),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        assert process.stderr is not None
        with process, process.stderr as lines:
            lines.readline()
            waited_s = time.perf_counter() - begun
            lines.read()
        return waited_s
