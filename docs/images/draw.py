"""Draw frames of `hpq watch` as SVG: python -m docs.images.draw [FOLDER].

The sweeps are made (tests/support/made_sweeps.py): 16 sets of the article, and 10,000 random ones.
"""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from hpq.domain.status import Worker
from hpq.domain.trial import Point, TrialState, TrialView
from hpq_views.command_output.summary_page import importance_lines
from hpq_views.page.sweep_data import SweepData
from hpq_views.text.screen import DrawnLines
from hpq_views.text.style import TerminalInfo
from hpq_views.watch.frame import render
from hpq_views.watch.keys import View, reduce
from hpq_views.watch.scene import Detail, Scene
from tests.support.made_sweeps import RANGES, SETS_OF_ARTICLE, drawn_sets, made

HERE = Path(__file__).parent
DONE, LIVE, WAITS = TrialState.FINISHED, TrialState.RUNNING, TrialState.QUEUED
SMALL = [*[DONE] * 9, TrialState.FAILED, LIVE, LIVE, *[WAITS] * 4]
LARGE = [DONE, DONE, TrialState.PRUNED, DONE, DONE] * 1_600 + [LIVE] * 16 + [WAITS] * 1_984


def main(folder: Path = HERE) -> None:
    small = made(SETS_OF_ARTICLE, states=SMALL)
    large = made(drawn_sets(10_000), sid="resnet-9c0de", workers=16, spec=RANGES, states=LARGE)
    draw(large, (140, 40), folder / "watch-10000-140x40.svg")
    draw(small, (80, 24), folder / "watch-trial-80x24.svg", "enter")
    draw(large, (80, 24), folder / "watch-importance-80x24.svg", "i")


def draw(data: SweepData, size: tuple[int, int], file: Path, *keys: str) -> None:
    columns, rows = size
    look = TerminalInfo(columns=columns, rows=rows, tty=True, color=True)
    scene, view = scene_of(data, columns), View(sweep=data.sweep.id)
    drawn, view = render(view, scene, look)
    for key in keys:
        drawn, view = render(reduce(view, key), scene, look)
    console = Console(record=True, width=columns, height=rows, file=io.StringIO())
    console.print(DrawnLines(drawn, look))
    console.save_svg(str(file), title=f"hpq watch {data.sweep.id}")


def scene_of(data: SweepData, columns: int) -> Scene:
    """Return what watch would read from Redis."""
    ranked = sorted(data.trials, key=_rank)
    best, at_ms = ranked[0], data.status.at_ms
    workers = tuple(
        Worker(name=t.worker, host=t.host, state="busy", trial=str(t.id), seen_ms=at_ms - 900,
               device="NVIDIA L4 22.5GB")
        for t in data.status.running
    )  # fmt: skip
    points = {
        name: [Point(step=int(x), name=name, value=y) for x, y in data.curves[best.id.number]]
        for name in best.metrics
    }
    log = "epoch 23: test/acc 0.9377\nepoch 24: test/acc 0.9412\n"
    return Scene(
        status=replace(data.status, workers=workers),
        rows=ranked[:60],
        total=len(ranked),
        curves={t.id.number: data.curves.get(t.id.number, ()) for t in ranked[:60]},
        winner=data.winner,
        detail=Detail(trial=best, curves=points, attempts=(), log=log),
        importance=list(importance_lines(data.importance, columns)),
    )


def _rank(trial: TrialView) -> tuple[bool, float, int]:
    value = max(trial.metrics.values(), default=None)
    has_none = value is None or trial.state is TrialState.FAILED
    return has_none, 0.0 if value is None else -value, trial.id.number


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
