"""Write docs/watch.svg: what `hpq run configs/digits.yaml` shows, half-way (`make picture`).

The sweep is real. tmux is the terminal, so the picture follows whatever `hpq watch` draws.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
COLUMNS, ROWS = 100, 27
FINISHED = 9  # trials, when the picture is taken
LIMIT_S = 300.0
COMMAND = "hpq run configs/digits.yaml"


def main() -> None:
    """Run the sweep in tmux, capture one frame, and export it."""
    with tempfile.TemporaryDirectory(prefix="hpq-picture-") as home:
        bin_folder = Path(sys.executable).parent
        env = {
            "HOME": home, "HPQ_HOME": f"{home}/.hpq", "USER": "ana", "HPQ_NODE": "gpu-1",
            "PATH": f"{bin_folder}:{os.environ['PATH']}", "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }  # fmt: skip

        def run(*words: str) -> str:
            done = subprocess.run(words, cwd=ROOT, env=env, capture_output=True, text=True)
            return done.stdout

        tmux = ("tmux", "-S", f"{home}/tmux", "-f", "/dev/null")
        size = ("-x", str(COLUMNS), "-y", str(ROWS))
        run(*tmux, "new-session", "-d", *size, f"{COMMAND} --workers 2")
        try:
            until = time.monotonic() + LIMIT_S
            while finished(run("hpq", "ls", "--json")) < FINISHED:
                if time.monotonic() > until:
                    raise SystemExit(f"no {FINISHED} trials in {LIMIT_S:.0f} s")
                time.sleep(0.5)
            time.sleep(1.5)  # a frame later
            frame = run(*tmux, "capture-pane", "-e", "-p", "-t", "0")
        finally:
            run("hpq", "cancel", "--yes")
            run(*tmux, "kill-server")
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(Text.from_ansi(frame.rstrip()), no_wrap=True)
    console.save_svg(str(Path(__file__).with_name("watch.svg")), title=COMMAND)


def finished(listed: str) -> int:
    """Return how many trials are finished, from `hpq ls --json`; 0 if that is an error."""
    sweeps = json.loads(listed or "[]")
    return int(sweeps[0]["finished"]) if sweeps and isinstance(sweeps, list) else 0


if __name__ == "__main__":
    main()
