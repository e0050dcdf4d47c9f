"""`hpq wait`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer import Option

from hpq.access.session import Session, open_session
from hpq.domain.trial import TrialView
from hpq.notice import print_message
from hpq_producer.commands.common_flags import Output
from hpq_views.analysis.output_records import sweep_record
from hpq_views.analysis.winner_evidence import MOST_JUDGED, judge_winner
from hpq_views.follow import SweepAtEnd, wait_until_over
from hpq_views.targets import SweepRef
from hpq_views.text.output import Format, show_data
from hpq_views.watch.event_log import say_verdict
from hpq_views.why.verdict import exit_code, needed_actions, next_commands


def wait(
    sweep: SweepRef = None,
    timeout: Annotated[
        float | None, Option(min=0, help="Give up after this time; exit code 5.")
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Wait until a sweep ends; the exit code is its result.

    0: each trial finished, was pruned, or was cancelled by `hpq cancel SWEEP/7` or `hpq stop`.
    1: a trial failed, also by divergence; the sweep was cancelled; or no trial has the metric and
    meets the constraints.
    5: the sweep is held, or the timeout passed.
    6: no waiting trial fits its budget. `hpq run` exits by the same rule.
    `hpq wait` waits also while no worker runs; --timeout ends that. Data (-o json) also has the
    verdict on the winner, what needs you, and the next commands.

    Examples:
      hpq wait && hpq best --yaml
      hpq wait digits-3f2a1 --timeout 3600
    """
    with open_session() as session:
        sid = session.find(sweep)
        done = wait_until_over(session, sid, timeout)
        best = done.status.best
        if output.is_data:
            best = judged_trials(session, done)
            show_data(end_record(session, done, best), output)
        if done.late is None:
            say_verdict(session.reader, done.status, sys.stderr, done.why)
            objective = best[0].objective if best else None
            raise typer.Exit(exit_code(done.status.sweep, objective))
        if not output.is_data:
            raise done.late
        print_message(f"hpq: {done.late.notice}")
        raise typer.Exit(int(done.late.exit_code))


def judged_trials(session: Session, done: SweepAtEnd) -> tuple[TrialView, ...]:
    """Return the best trials, as many as the verdict on the winner reads."""
    return tuple(session.reader.ranking.best(done.status.sweep, MOST_JUDGED))


def end_record(session: Session, done: SweepAtEnd, best: Sequence[TrialView]) -> dict[str, Any]:
    """Return a sweep as data, with the verdict on the winner, what needs the user, what to do next.

    `best` are the `judged_trials`. If the time was up before the sweep's end, `error` says so.
    """
    sweep = done.status.sweep
    objective = best[0].objective if best else None
    winner = judge_winner(session.reader, sweep, best) if best else None
    return {
        **sweep_record(sweep, objective, done.why),
        "verdict": dict(winner.lines(sweep.id)).get("verdict") if winner else None,
        "needs_you": [one.record() for one in needed_actions(done.status, done.why)],
        "next": next_commands(done.status, done.why),
        **({"error": done.late.record()} if done.late else {}),
    }
