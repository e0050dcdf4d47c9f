"""`hpq summary`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hpq.trial import Trial
from producer.out import show_json, show_lines, stdout_look
from producer.ranking import show_ranking
from producer.records import sweep_record, trial_record
from producer.session import open_session
from producer.summary import Tally
from producer.summary_lines import effect_lines, failure_lines, rest_line
from producer.verdict import verdict

app = typer.Typer()


@app.command()
def summary(
    sweep: Annotated[str | None, typer.Argument(help="A sweep's id or its beginning.")] = None,
    n: Annotated[int, typer.Option("-n", min=1, help="How many trials in the ranking.")] = 20,
    as_json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Ranking and bars of a sweep, what the parameters did to it, and what failed."""
    with open_session() as session:
        view = session.view
        shot = view.snapshot(view.resolve(sweep, session.settings.user), 0, top=n, recent=3)
        tally = Tally(shot.sweep).add(view.all_trials(shot.sweep.id))
    if as_json:
        return show_json(_record(tally, shot.best))
    show_lines(verdict(shot, min(stdout_look().columns, 100))[:1])
    if shot.best:
        print()
        show_ranking(shot.sweep, shot.best, bars=True)
        show_lines(rest_line(shot.sweep, tally, len(shot.best)))
    show_lines(effect_lines(tally))
    show_lines(failure_lines(tally))


def _record(tally: Tally, best: tuple[Trial, ...]) -> dict[str, Any]:
    top = best[0].objective if best else None
    return {
        "sweep": sweep_record(tally.sweep, top),
        "ranking": [trial_record(t) for t in best],
        "effects": [
            {
                "param": e.param,
                "levels": [{"value": x.label, "trials": x.count, "mean": x.mean} for x in e.levels],
            }
            for e in tally.effects
        ],
        "failures": [
            {"kind": f.kind, "trials": f.count, "example": f.example, "message": f.message}
            for f in tally.failures
        ],
    }
