"""Write docs/watch.svg: a moving picture of a real sweep (`make picture`; needs tmux).

`hpq run` trains with eight workers, one of which is killed: its trial is requeued and resumes from
its checkpoint. Two tmux terminals are filmed, one frame a second, so the picture follows whatever
hpq draws. CSS moves the film, also in an <img>; there is no script and no font to load.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from html import escape
from itertools import count
from pathlib import Path

from rich.console import Console
from rich.segment import Segment
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

FILE = Path(__file__).with_name("watch.svg")
COLUMNS, ROWS, SHELL_ROWS = 100, 24, 3  # of the terminal with `hpq run`, and of the one below it
COMMAND = "hpq run sweep.yaml --workers 8"
VICTIM = 6  # the trial whose worker is killed
KILLED_AT = 26  # steps of it; by then a checkpoint is stored
LIMIT_S = 300.0
FRAME_S, LAST_S = 0.35, 6.0  # how long the picture shows a frame, and the last one
READING = 4  # frames that show what was typed before the sweep goes on
WIDTH, HEIGHT = 8.4, 18.0  # of a character, in pixels
MARGIN, BAR = 12, 34
BACKGROUND, TEXT, FAINT = "#1b1f27", "#d5d9e0", "#3a404c"
TRAIN = """\
import argparse
import os
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch", type=int, default=64)
args = parser.parse_args()

file = Path(find_spec("sklearn").origin).with_name("datasets") / "data" / "digits.csv.gz"
data = np.loadtxt(file, delimiter=",")
np.random.default_rng(int(os.environ["HPQ_SEED"])).shuffle(data)
images, labels = data[:, :-1] / 16, data[:, -1].astype(int)
saved = Path(os.environ["HPQ_CHECKPOINT_DIR"], "weights.npz")
weights, first = np.zeros((64, 10)), 0
if saved.exists():
    state = np.load(saved)
    weights, first = state["weights"], int(state["epoch"]) + 1


def probabilities(x):
    z = np.exp(x @ weights - (x @ weights).max(1, keepdims=True))
    return z / z.sum(1, keepdims=True)


for epoch in range(first, 40):
    for start in range(0, 1400, args.batch):
        x = images[start : min(start + args.batch, 1400)]
        y = labels[start : min(start + args.batch, 1400)]
        weights = weights - args.lr * x.T @ (probabilities(x) - np.eye(10)[y]) / len(y)
    right = probabilities(images[1400:])[np.arange(len(labels) - 1400), labels[1400:]]
    print(f"val_loss={-np.log(right + 1e-9).mean()}", flush=True)
    with open(f"{saved}.tmp", "wb") as new:
        np.savez(new, weights=weights, epoch=epoch)
    os.replace(f"{saved}.tmp", saved)
    time.sleep(0.5)
"""
SWEEP = """\
name: digits
program: train.py
method: grid
replicates: 3
seed: 1
metric: {name: val_loss, goal: minimize}
parameters:
  lr: {values: [0.003, 0.03, 0.3, 1.0]}
  batch: {values: [32, 256]}
"""


def main() -> None:
    """Run the sweep, film it, and write the picture."""
    # The private server of the sweep ends a minute after its last user, and writes until then.
    home = tempfile.TemporaryDirectory(prefix="hpq-picture-", ignore_cleanup_errors=True)
    with home as folder:
        Path(folder, "train.py").write_text(TRAIN)
        Path(folder, "sweep.yaml").write_text(SWEEP)
        stage = Stage(folder)
        try:
            frames = [*film(stage)]
        finally:
            stage.close()
    FILE.write_text(drawn(frames))


class Stage:
    """Two terminals in tmux, in an empty home."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        bin_folder = Path(sys.executable).parent
        self._env = {
            "HOME": folder, "HPQ_HOME": f"{folder}/.hpq", "USER": "ana", "HPQ_NODE": "gpu-1",
            "PATH": f"{bin_folder}:{os.environ['PATH']}", "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
        }  # fmt: skip
        self._tmux = ("tmux", "-S", f"{folder}/tmux", "-f", "/dev/null")
        for name, rows in (("run", ROWS), ("shell", SHELL_ROWS)):
            size = ("-s", name, "-x", str(COLUMNS), "-y", str(rows))
            self.call(*self._tmux, "new-session", "-d", *size, "bash --norc --noprofile")
            self.call(*self._tmux, "set", "-t", name, "status", "off")
            self.call(*self._tmux, "resize-window", "-t", name, *size[2:])
            self.type(name, "PS1='$ '; clear")

    def call(self, *words: str) -> str:
        """Run a command in the empty home and return its output."""
        done = subprocess.run(
            words, cwd=self._folder, env=self._env, capture_output=True, text=True
        )
        return done.stdout

    def type(self, name: str, line: str) -> None:
        """Type a line into one of the terminals."""
        self.call(*self._tmux, "send-keys", "-t", name, line, "Enter")

    def frame(self) -> list[str]:
        """Return the rows of both terminals, with their escape sequences."""
        rows: list[str] = []
        for name, size in (("run", ROWS), ("shell", SHELL_ROWS)):
            shown = self.call(*self._tmux, "capture-pane", "-e", "-p", "-t", name).splitlines()
            rows += [*shown, *[""] * size][:size]
        return rows

    def close(self) -> None:
        """End the sweep and the terminals."""
        if sweeps := json.loads(self.call("hpq", "ls", "--json") or "[]"):
            self.call("hpq", "cancel", sweeps[0]["sweep"], "--yes")
        self.call(*self._tmux, "kill-server")


def film(stage: Stage) -> Iterator[list[str]]:
    """Yield the screen every second or so, from the enqueue to the verdict."""
    stage.type("run", COMMAND)
    sid, attempt, until = "", 1, time.monotonic() + LIMIT_S
    for number in count():
        if time.monotonic() > until:
            raise SystemExit(f"the sweep is not over in {LIMIT_S:.0f} s")
        typed = ""
        if number % 4 == 0:  # a question to hpq takes longer than a frame
            sweeps = json.loads(stage.call("hpq", "ls", "--json") or "[]")
            sid = sweeps[0]["sweep"] if sweeps else ""
            if sweeps and sweeps[0]["state"] == "finished":
                break
        elif sid and attempt == 1 and (pid := victim(stage, sid)):
            typed, attempt = f"kill -{signal.SIGKILL} {pid}  # one of the eight workers", 2
        elif attempt == 2 and victim(stage, sid, attempt):
            typed, attempt = f"# another worker continues trial {VICTIM} at its checkpoint", 3
        if typed:
            stage.type("shell", typed)
            time.sleep(0.5)
        if sid:
            yield from [stage.frame()] * (READING if typed else 1)
        time.sleep(0.7)
    time.sleep(8.0)  # the summary
    stage.type("run", "clear")
    stage.type("run", "hpq best")
    time.sleep(8.0)
    stage.type("run", f"hpq show {sid}/{VICTIM} | grep -A 2 ^attempts")
    time.sleep(8.0)
    yield stage.frame()


def victim(stage: Stage, sid: str, attempt: int = 1) -> int | None:
    """Return the process of the worker that has the trial in this attempt, with a checkpoint."""
    name = f"{sid}/{VICTIM}"
    trial = json.loads(stage.call("hpq", "show", name, "--json") or "{}")
    if trial.get("attempt") != attempt or (trial.get("step") or 0) < KILLED_AT:
        return None
    workers = json.loads(stage.call("hpq", "workers", "--json") or "[]")
    return next((one["pid"] for one in workers if one["trial"] == name), None)


def drawn(frames: list[list[str]]) -> str:
    """Return the picture; a row that several frames share is stored once."""
    names: dict[str, str] = {}
    rows: list[str] = []
    film: list[str] = []
    width = round(COLUMNS * WIDTH + 2 * MARGIN)
    inside = round((ROWS + SHELL_ROWS) * HEIGHT + 2 * MARGIN)
    for number, frame in enumerate(frames):
        uses: list[str] = []
        for index, row in enumerate(frame):
            text = row_text(row)
            if not text:
                continue
            if text not in names:
                names[text] = f"r{len(names)}"
                rows.append(f'<g id="{names[text]}">{text}</g>')
            gap = MARGIN / 2 if index >= ROWS else 0.0
            y = number * inside + (index + 0.8) * HEIGHT + gap
            uses.append(f'<use href="#{names[text]}" y="{y:.0f}"/>')
        film.append("".join(uses))
    seconds = FRAME_S * (len(frames) - 1) + LAST_S
    stops = "".join(
        f"{100 * FRAME_S * number / seconds:.2f}%{{transform:translateY({-number * inside}px)}}"
        for number in range(len(frames))
    )
    last = -(len(frames) - 1) * inside
    line = MARGIN / 2 + ROWS * HEIGHT + BAR
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {inside + BAR}" role="img">
<title>{COMMAND}: one of eight workers is killed, its trial resumes, the sweep ends</title>
<style>
text {{ font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  fill: {TEXT}; white-space: pre }}
.film {{ animation: film {seconds:.1f}s step-end infinite }}
@keyframes film {{{stops}}}
@media (prefers-reduced-motion: reduce) {{
  .film {{ animation: none; transform: translateY({last}px) }} }}
</style>
<rect width="{width}" height="{inside + BAR}" rx="8" fill="{BACKGROUND}" stroke="{FAINT}"/>
<circle cx="18" cy="17" r="5.5" fill="#e06c60"/><circle cx="36" cy="17" r="5.5" fill="#d9a343"/>
<circle cx="54" cy="17" r="5.5" fill="#5fae62"/>
<text x="{width // 2}" y="22" text-anchor="middle">$ {COMMAND}</text>
<path d="M{MARGIN} {line:.0f}H{width - MARGIN}" stroke="{FAINT}"/>
<defs>
{"".join(rows)}
</defs>
<svg x="{MARGIN}" y="{BAR}" width="{width - 2 * MARGIN}" height="{inside}"><g class="film">
{"".join(film)}
</g></svg>
</svg>
"""


def row_text(row: str) -> str:
    """Return a row of a terminal as elements of SVG; "" if it is blank."""
    console = Console(width=COLUMNS, color_system="truecolor", file=open(os.devnull, "w"))  # noqa: SIM115
    out: list[str] = []
    column = 0
    for segment in Segment.simplify(Text.from_ansi(row.rstrip()).render(console)):
        if segment.text.strip():
            lead = len(segment.text) - len(segment.text.lstrip())
            text = segment.text.strip()
            x, length = (column + lead) * WIDTH, len(text) * WIDTH
            place = f'x="{x:.1f}" textLength="{length:.1f}"'
            out.append(f"<text {place}{look(segment)}>{escape(text, quote=False)}</text>")
        column += len(segment.text)
    return "".join(out)


def look(segment: Segment) -> str:
    """Return the style of a piece of text: its color, and whether it is bold or dim."""
    style = segment.style
    out: list[str] = []
    if style and style.color is not None and not style.color.is_default:
        out.append(f"fill:{style.color.get_truecolor(SVG_EXPORT_THEME).hex}")
    if style and style.bold:
        out.append("font-weight:bold")
    if style and style.dim:
        out.append("opacity:0.65")
    return f' style="{";".join(out)}"' if out else ""


if __name__ == "__main__":
    main()
