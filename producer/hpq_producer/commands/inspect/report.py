"""`hpq report`."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

from typer import Option

from hpq.access.session import open_session
from hpq.errors import writing
from hpq.extras import library
from hpq.notice import print_message
from hpq_views.targets import SweepRefs
from hpq_views.text.text import size


def report(
    sweep: SweepRefs = None,
    out: Annotated[
        Path | None, Option(metavar="FILE", help="File to write. Default: SWEEP.html.")
    ] = None,
) -> None:
    """Write a page about sweeps as one HTML file, which needs no server and no network.

    Examples:
      hpq report
      hpq report digits-3f2a1 digits-9c0de --out both.html
    """
    for name in ("jinja2", "plotly"):
        library(name, "hpq report")
    # Here, since the modules above may be missing.
    from hpq_views.page.render import sweep_page  # noqa: PLC0415
    from hpq_views.page.report import read_report  # noqa: PLC0415

    with open_session() as session:
        ids = list(dict.fromkeys(session.find(one) for one in (sweep or (None,))))
        page = sweep_page([read_report(session, session.find(sid)) for sid in ids])
    file = out or Path(f"{ids[0]}.html")
    draft = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        with writing(file):
            with draft.open("x", encoding="utf-8") as out_file:
                out_file.write(page)
            draft.replace(file)
    finally:
        draft.unlink(missing_ok=True)
    print(file)
    print_message(f"hpq: {size(len(page.encode()))}; open it in a browser, or send it to someone")
