"""`hpq logs`."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from itertools import chain
from typing import Annotated

from typer import Argument, Option

from hpq.access.session import Session, open_session
from hpq.domain.trial import OTHER_CODE, TrialView
from hpq.notice import print_message, tagged
from hpq_views.command_output.logs import Cleaner, follow_log, read_log
from hpq_views.targets import complete_sweep_ids, find_trial
from hpq_views.text.text import WHY_THINNED, clean


def logs(
    trial: Annotated[
        str | None,
        Argument(
            help="SWEEP/7, or 7 of your last sweep, or a sweep. Default: your last sweep.",
            autocompletion=complete_sweep_ids,
        ),
    ] = None,
    follow: Annotated[
        bool, Option("-f", "--follow", help="Print new lines until the trial ends.")
    ] = False,
    tail: Annotated[
        int | None, Option("-n", "--tail", min=0, help="Print only the last N lines.")
    ] = None,
) -> None:
    """Print the log of a trial.

    For a sweep, hpq chooses a running trial, else the trial that failed or ended last.

    Examples:
      hpq logs digits-3f2a1/7
      hpq logs 7 -f
    """
    with open_session() as session:
        found = find_trial(session.reader, trial, session.settings.user)
        record = session.reader.trials.get(found)
        data, last = read_log(session.reader, record.trained, tail)
        if not (data or follow or tail == 0 or record.reused or record.thinned):
            yet = "" if record.state.is_terminal else " yet"
            print_message(f"trial {found} printed nothing{yet}")
        elif trial is None or not trial.endswith(str(found.number)):
            print_message(f"trial {found}")
        if record.reused:
            print_message(_what_trained(session, record))
        if record.thinned:
            print_message(tagged(f"its log was {WHY_THINNED}", "histories-dropped"))
        more = follow_log(session.reader, found, last) if follow else ()
        _write(chain([data], more))


def _what_trained(session: Session, trial: TrialView) -> str:
    text = f"this trial reuses the result of {clean(trial.reused.removesuffix(OTHER_CODE))}"
    is_there = session.reader.sweeps.exists(trial.trained.sweep)
    return f"{text}; its log:" if is_there else f"{text}, which was deleted with its log"


def _write(pieces: Iterable[bytes]) -> None:
    cleaner = Cleaner()
    for piece in pieces:
        sys.stdout.write(cleaner.take(piece))
        sys.stdout.flush()
    sys.stdout.write(cleaner.take(b"", final=True))
