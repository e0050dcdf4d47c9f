"""Draw a frame of `hpq watch` as SVG: python docs/images/draw.py SWEEP COLUMNSxROWS FILE [KEY …]"""

from __future__ import annotations

import io
import sys

from rich.console import Console

from hpq_producer.session import open_session
from hpq_producer.terminal.style import TerminalInfo
from hpq_producer.watch.frame import render
from hpq_producer.watch.scene import SceneReader
from hpq_producer.watch.view import View, reduce


def main(sweep: str, size: str, file: str, *keys: str) -> None:
    columns, rows = map(int, size.split("x"))
    look = TerminalInfo(columns=columns, rows=rows, tty=True, colour=True)
    console = Console(record=True, width=columns, height=rows, file=io.StringIO())
    with open_session() as session:
        scenes, view = SceneReader(session.reader), View(sweep=sweep)
        for key in ("", *keys):
            view = reduce(view, key) if key else view
            drawn, view = render(view, scenes.read(view, look), look)
    console.print(drawn)
    console.save_svg(file, title=f"hpq watch {sweep}")


main(*sys.argv[1:])
