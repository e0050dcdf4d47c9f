"""`hpq show`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hpq.trial import TrialId
from hpq.view import View
from producer.look.by_hand import by_hand
from producer.look.describe import sweep_lines, trial_lines
from producer.look.logs import read_log
from producer.look.out import show_json, show_lines
from producer.look.records import finite, sweep_record, trial_record
from producer.lookup import find
from producer.session import open_session

app = typer.Typer()
_TAIL = 10  # lines of the log


@app.command()
def show(
    what: Annotated[str | None, typer.Argument(help="SWEEP, SWEEP/7, or 7 of my last.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
    as_command: Annotated[
        bool, typer.Option("--command", help="How to run the trial's program by hand.")
    ] = False,
) -> None:
    """A sweep or a trial in full."""
    with open_session() as session:
        found = find(session.view, what, session.settings.user)
        if as_command:
            print(by_hand(session.view, found))
        elif isinstance(found, TrialId):
            _show_trial(session.view, found, as_json)
        else:
            _show_sweep(session.view, found, as_json)


def _show_sweep(view: View, sid: str, as_json: bool) -> None:
    sweep = view.sweep(sid)
    if not as_json:
        return show_lines(sweep_lines(sweep))
    launch = sweep.launch
    more: dict[str, Any] = {
        "launch": {name: getattr(launch, name) for name in launch.__slots__},
        "varying": list(sweep.varying),
        "method": sweep.method,
        "seed": sweep.seed,
        "digest": sweep.digest,
        "spec": dict(sweep.spec),
        "provenance": dict(sweep.provenance),
    }
    show_json(sweep_record(sweep, view.leaders([sweep])[0]) | more)


def _show_trial(view: View, found: TrialId, as_json: bool) -> None:
    trial, sweep = view.trial(found), view.sweep(found.sweep)
    curves = {name: view.history(found, name) for name in trial.metrics}
    ran_on = view.provenance(trial.provenance)
    if not as_json:
        log, _ = read_log(view, found, _TAIL)
        text = log.decode("utf-8", "replace")
        return show_lines(trial_lines(trial, sweep, curves, ran_on, text))
    history = {n: [[p.step, finite(p.value)] for p in points] for n, points in curves.items()}
    show_json(trial_record(trial) | {"history": history, "provenance": dict(ran_on)})
