"""The trainer on a GPU: `python -m benchmarks.gpu OUT --data DIR --published DIR`.

Runs the parts of PLAN (benchmarks/gpu_parts.py) in their order until --minutes are over, each in a
process of its own with a time limit. Each row is a line of OUT/gpu.jsonl once it is measured. A
later call of the same commit continues: it runs the parts that are missing, and parity from its
next pair. Exits with 1 while a part is missing, with 2 if none can run. --home keeps decoded images
and compiled kernels. Needs torch with CUDA, NumPy, Pillow and PyYAML; the part `sweep` needs hpq
with its server. `--small` runs all of it on a CPU; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.page import commit
from benchmarks.processes import ROOT, environment

MINUTES = 6.25  # of a call; two shall do
KERNELS = "inductor"  # the directory in --home of what torch.compile keeps
WHOLE = f"{KERNELS}/whole"  # is there once all of it is; torch itself makes the directory


@dataclass(frozen=True)
class Part:
    """A part of the plan, its limit in seconds, and the least time with which it begins."""

    name: str
    most_s: float
    least_s: float
    needs_published: bool = False
    fills: str = ""  # what it leaves in --home for later parts; it runs again if that is gone


PLAN = (
    Part("data", 75, 20, fills="cache"),
    Part("kernels", 45, 15),
    Part("half", 30, 15, needs_published=True),
    Part("captured", 30, 15),
    Part("shipped", 30, 15),
    Part("unlimited", 45, 15),
    Part("compile-cold", 75, 45, fills=WHOLE),
    Part("compile-warm", 45, 20),
    Part("parity", 450, 40, needs_published=True),
    Part("sweep", 300, 200),
    Part("published", 90, 60, needs_published=True),
)


@dataclass(frozen=True, kw_only=True)
class Rows:
    """The lines of gpu.jsonl. Those of another commit, and those of --small, do not count."""

    file: Path
    stamp: dict[str, Any]

    def say(self, part: str, **row: Any) -> None:
        """Print a row, and append it to the file."""
        date = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
        line = json.dumps({"part": part, **row, **self.stamp, "date": date})
        print(line, flush=True)
        text = self.file.read_text("utf-8") if self.file.exists() else ""
        start = "" if text.endswith("\n") or not text else "\n"  # after a row that was cut off
        with self.file.open("a", encoding="utf-8") as file:
            file.write(f"{start}{line}\n")

    def of(self, part: str) -> list[dict[str, Any]]:
        """Return the rows of a part, without one that was cut off."""
        if not self.file.exists():
            return []
        every = []
        for line in self.file.read_text("utf-8").splitlines():
            with suppress(ValueError):
                every.append(json.loads(line))
        return [row for row in every if row["part"] == part and {**row, **self.stamp} == row]

    def has(self, part: str) -> bool:
        """Return whether a part is measured."""
        return any("done" in row for row in self.of(part))


def is_missing(part: Part, rows: Rows, home: Path) -> bool:
    """Return whether a part is to run: it is not measured, or what it left in `home` is gone."""
    return not rows.has(part.name) or not (home / part.fills).exists()


def run_part(rows: Rows, name: str, words: Sequence[str], limit_s: float, **environ: str) -> int:
    """Run a command, and end all its processes after a time; return its exit status.

    A row says that the part is done, or out of time.
    """
    began = time.monotonic()
    process = subprocess.Popen(words, env=environment(environ), start_new_session=True)
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        rows.say(name, failed=f"ended after {limit_s:.0f} s")
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    status = process.wait()
    if status == 0:
        rows.say(name, done=round(time.monotonic() - began, 1))
    return status


def options() -> argparse.ArgumentParser:
    """Return the options, which the process of a part reads again."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu")
    parser.add_argument("out", type=_path, help="directory of all files; a later call continues")
    parser.add_argument("--data", type=_path, required=True, help="where CIFAR10 lies")
    parser.add_argument("--published", type=_path, help="a checkout of the article's code")
    parser.add_argument("--home", type=_path, default=Path.home() / ".cache" / "hpq-gpu")
    parser.add_argument("--only", nargs="+", choices=[part.name for part in PLAN])
    parser.add_argument("--minutes", type=float, default=MINUTES, help="default: %(default)s")
    parser.add_argument("--commit", help="of each row; default: that of this checkout")
    parser.add_argument("--small", action="store_true", help="tiny sizes, also without a GPU")
    return parser


def _path(text: str) -> Path:
    return Path(text).resolve()


def rows_of(given: argparse.Namespace) -> Rows:
    """Return the rows of these options."""
    stamp = {"commit": given.commit, "small": given.small}
    return Rows(file=given.out / "gpu.jsonl", stamp=stamp)


def main() -> None:
    """Run the plan."""
    parser, began = options(), time.monotonic()
    given = parser.parse_args()
    parts = [part for part in PLAN if not given.only or part.name in given.only]
    if given.commit is None:
        given.commit = commit() if shutil.which("git") else "unknown"
    if given.commit == "unknown":
        parser.error("this is no git checkout: pass --commit")
    if given.commit.endswith("changed") and not given.small:
        # Later calls would take rows of other changes for their own.
        parser.error("files differ from the commit: commit them, or pass --commit")
    if given.published is None and any(part.needs_published for part in parts):
        parser.error("pass --published, or with --only parts that do without")
    rows = rows_of(given)
    for folder in (given.out, given.home):
        folder.mkdir(parents=True, exist_ok=True)
    for part in parts:
        most_s = 10 * part.most_s if given.small else part.most_s  # a CPU may be busy
        limit_s = min(most_s, began + 60 * given.minutes - time.monotonic())
        if is_missing(part, rows, given.home) and limit_s >= part.least_s:
            words = [sys.executable, "-m", "benchmarks.gpu_parts", part.name]
            words += [str(time.monotonic() + limit_s), *sys.argv[1:], "--commit", given.commit]
            status = run_part(
                rows,
                part.name,
                words,
                limit_s,
                PYTHONPATH=os.environ.get("PYTHONPATH", str(ROOT)),
                HPQ_HOME=str(given.home),
                HPQ_DATA=str(given.data),
                TORCHINDUCTOR_CACHE_DIR=str(given.home / KERNELS),
            )
            if status == 2:
                sys.exit(2)
    if missing := [part.name for part in parts if not rows.has(part.name)]:
        again = shlex.join(["python", "-m", "benchmarks.gpu", *sys.argv[1:]])
        print(f"benchmarks.gpu: missing: {', '.join(missing)}; continue with: {again}")
        sys.exit(1)


if __name__ == "__main__":
    main()
