"""`hpq wait`."""

from __future__ import annotations

import sys
import time
from typing import Annotated

import typer
from typer import Option

from hpq.domain.sweep import SweepView
from hpq.errors import UserError
from hpq.notice import Notice
from hpq.settings import parse_webhook
from hpq.webhook import notice, post
from hpq_producer.analysis.records import sweep_record
from hpq_producer.commands.common_flags import Output
from hpq_producer.diagnosis.settle import settle
from hpq_producer.diagnosis.verdict import exit_code
from hpq_producer.session import open_session
from hpq_producer.targets import SweepRef
from hpq_producer.terminal.console import print_message, warn
from hpq_producer.terminal.output import Format, show_data
from hpq_producer.watch.event_log import say_verdict


def wait(
    sweep: SweepRef = None,
    timeout: Annotated[
        float | None, Option(min=0, help="Give up after this time; exit code 5.")
    ] = None,
    notify: Annotated[
        str | None,
        Option(
            metavar="URL", help="Webhook (Slack's format) to which this command posts the outcome."
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Wait until a sweep ends; the exit code is its result.

    0: each trial finished, was pruned, or was cancelled by `hpq cancel SWEEP/7` or `hpq stop`.
    1: a trial failed, also by divergence; the sweep was cancelled; or no trial has the metric.
    5: the sweep is held, or the timeout passed. `hpq run` exits by the same rule. It waits also
    while no worker runs; --timeout ends that.

    Examples:
      hpq wait && hpq best --yaml
      hpq wait digits-3f2a1 --timeout 3600
      hpq wait --notify https://hooks.slack.com/services/T0/B0/XYZ
    """
    with open_session() as session:
        sid = session.find(sweep)
        url = _webhook(notify)
        done = settle(session, sid, timeout)
        found, best = done.status.sweep, done.status.best
        objective = best[0].objective if best else None
        record = sweep_record(found, objective, done.why)
        if url:
            why = str(done.late or found.held)
            _post(url, found, "not over" if done.late else found.state, objective, why)
        if done.late is None:
            if output.is_data:
                show_data(record, output)
            say_verdict(done.status, sys.stderr, done.why)
            raise typer.Exit(exit_code(found, objective))
        if not output.is_data:
            raise done.late
        show_data(record | {"error": done.late.record()}, output)
        print_message(f"hpq: {done.late.notice}")
        raise typer.Exit(int(done.late.exit_code))


def _webhook(url: str | None) -> str:
    """Return the URL of a webhook; "" for None.

    Raises:
        UserError: the URL is none of a webhook.
    """
    try:
        return parse_webhook(url) if url is not None else ""
    except ValueError as error:
        raise UserError(f"--notify: {error}", code="setting-invalid") from None


def _post(url: str, sweep: SweepView, event: str, best: float | None, why: str) -> None:
    if not post(url, notice(sweep, event, best, why), time.sleep):
        warn(Notice("notice-lost", "the webhook did not accept the outcome; check --notify"))
