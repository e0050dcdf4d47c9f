"""Read what a report holds: a sweep with all of its curves, and the pages of its best trials."""

from __future__ import annotations

import base64
import json
import posixpath
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from hpq.access.session import Session
from hpq.domain.trial import TrialView
from hpq.errors import HpqError
from hpq_views.command_output.logs import LINES, read_log
from hpq_views.page.curve_reads import RUNTIME, read_more
from hpq_views.page.render import part
from hpq_views.page.sweep_data import MOST_POINTS, SweepData
from hpq_views.page.sweep_reads import read_sweep
from hpq_views.page.trial_data import (
    CAPTIONS,
    HELD_BYTES,
    LOG_BYTES,
    PICTURES,
    Media,
    TrialData,
    read_trial,
)
from hpq_views.stored_files import open_stored

_PAGES = 10  # of the trials that rank first
_CAPTION_BYTES = 1 << 16


def read_report(session: Session, sid: str) -> SweepData:
    """Read a sweep with all that a file cannot ask for later.

    That is the curves of all its metrics, and the pages of its best trials; of several metrics, the
    trials of the front that the first screen names.

    Raises:
        NotFound: the sweep does not exist, or was removed meanwhile.
    """
    reader = session.reader
    data = read_sweep(reader, sid, session.settings, most_points=MOST_POINTS)
    shown = data.sweep.metric.name if data.sweep.metric else ""
    others = [*(name for name in data.metrics if name != shown), RUNTIME, *data.system]
    data = replace(data, more=read_more(reader, data.sweep, data.drawn, others))
    trials = {trial.id.number: trial for trial in data.trials}
    best = data.members or data.standings.best(trials, _PAGES)
    numbers = [trial.id.number for trial in best]
    return replace(data, pages={n: _page(session, data, trials[n]) for n in numbers})


def _page(session: Session, data: SweepData, trial: TrialView) -> str:
    log, _ = read_log(session.reader, trial.trained, LINES)
    standing = data.standings.of(trial.id.number)
    found = read_trial(session, trial, data.status, standing, data.front, log[-LOG_BYTES:])
    names = fitting(found.pictures, found.files)
    held = dict[str, str]()
    for name in names:
        with suppress(HpqError, OSError):  # the page counts it as left out
            held[name] = _as_uri(name, _read(session, found, name, found.files[name]))
    titles = _captions(session, found) if held else {}
    return part("trial", replace(found, held=held, titles=titles))


def fitting(media: Sequence[Media], sizes: Mapping[str, int]) -> list[str]:
    """Return the pictures that a page holds: of each name the newest, while they fit."""
    rows = [[file for _, file in files] for _, _, files in media]
    found, left = list[str](), HELD_BYTES
    for k in range(max(map(len, rows), default=0)):
        for row in rows:
            if len(row) <= k or (k and row[k - 1] not in found):  # none older than one left out
                continue
            if sizes[row[k]] <= left:
                found.append(row[k])
                left -= sizes[row[k]]
    return found


def _read(session: Session, trial: TrialData, name: str, most: int) -> bytes:
    with open_stored(session, trial.holder, name) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(f"{name} has more than {most} bytes")
    return data


def _as_uri(name: str, data: bytes) -> str:
    kind = PICTURES[posixpath.splitext(name)[1].lower()]
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _captions(session: Session, trial: TrialData) -> dict[str, str]:
    """Return the captions that the script gave its pictures, by file."""
    if CAPTIONS not in trial.files:
        return {}
    try:
        found = json.loads(_read(session, trial, CAPTIONS, _CAPTION_BYTES))
    except (HpqError, OSError, ValueError, RecursionError):
        return {}
    pairs = found.items() if isinstance(found, dict) else ()
    return {name: text for name, text in pairs if isinstance(text, str)}
