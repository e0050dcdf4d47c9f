"""`hpq logs`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from typing import Annotated

import typer

from hpq.domain.trial import OTHER_CODE
from hpq.notice import tagged
from hpq_producer.reports.logs import Cleaner, follow_log, read_log
from hpq_producer.session import Session, open_session
from hpq_producer.targets import complete_sweep_ids, find_trial
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.text import WHY_THINNED, clean


def logs(
    trial: Annotated[
        str | None,
        typer.Argument(help="SWEEP/7, or 7 of my last sweep.", autocompletion=complete_sweep_ids),
    ] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on until it ends.")] = False,
    tail: Annotated[int | None, typer.Option("-n", "--tail", min=0, help="Last lines.")] = None,
    raw: Annotated[bool, typer.Option(help="Bytes as printed, escapes and all.")] = False,
) -> None:
    """What a trial printed; of a sweep, one that runs, else the last that failed, or ended."""
    with open_session() as session:
        found = find_trial(session.reader, trial, session.settings.user)
        if trial is None or not trial.endswith(str(found.number)):
            print_message(f"trial {found}")
        record = session.reader.trials.get(found)  # NotFound, where there is none
        if record.reused:
            print_message(_what_trained(session, clean(record.reused.removesuffix(OTHER_CODE))))
        if record.thinned:
            print_message(tagged(f"its log was {WHY_THINNED}", "histories-dropped"))
        data, last = read_log(session.reader, found, tail)
        more = follow_log(session.reader, found, last) if follow else ()
        _write(chain([data], more), raw)


def _what_trained(session: Session, trial: str) -> str:
    if session.reader.sweeps.exists(trial.rpartition("/")[0]):
        return f"it never ran here; what trained: hpq logs {trial}"
    return f"it never ran here; {trial} trained it, and was deleted since, with its log"


def _write(pieces: Iterable[bytes], raw: bool) -> None:
    cleaner = Cleaner()
    for piece in pieces:
        if raw:
            sys.stdout.buffer.write(piece)
        else:
            sys.stdout.write(cleaner.take(piece))
        sys.stdout.flush()
    sys.stdout.write(cleaner.take(b"", final=True))
