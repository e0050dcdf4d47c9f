"""`hpq wait`."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from typer import Option

from hpq.code.sealing import seal
from hpq.code.signing import RowSigner, key_of
from hpq.errors import UserError
from hpq_producer.analysis.records import sweep_record
from hpq_producer.commands.common_flags import Output
from hpq_producer.diagnosis.settle import settle
from hpq_producer.diagnosis.verdict import exit_code
from hpq_producer.session import Session, open_session
from hpq_producer.sweepfile import schema
from hpq_producer.targets import SweepRef
from hpq_producer.terminal.console import print_message
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
            metavar="URL", help="Webhook (Slack's format): workers also post the outcome to it."
        ),
    ] = None,
    output: Output = Format.TABLE,
) -> None:
    """Wait until a sweep ends; the exit code is its result.

    0: each trial finished, was pruned, or was cancelled by `hpq cancel SWEEP/7` or `hpq stop`.
    1: a trial failed, also by divergence; the sweep was cancelled; or no trial has the metric.
    5: the sweep is held, or the timeout passed. `hpq run` exits by the same rule.

    Examples:
      hpq wait && hpq best --yaml
      hpq wait digits-3f2a1 --timeout 3600
      hpq wait --notify https://hooks.slack.com/services/T0/B0/XYZ
    """
    with open_session() as session:
        sid = session.find(sweep)
        if notify is not None:
            _notify(session, sid, notify)
        done = settle(session, sid, timeout)
        found, best = done.status.sweep, done.status.best
        objective = best[0].objective if best else None
        record = sweep_record(found, objective)
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


def _notify(session: Session, sid: str, url: str) -> None:
    """Let the workers post to this webhook; it is encrypted in Redis.

    Raises:
        UserError: the URL is none, or this machine's key did not sign the sweep.
    """
    if problem := schema.TOP["notify"](url):
        raise UserError(f"--notify: {problem}", code="setting-invalid")
    RowSigner.required(session.settings, session.reader.sweeps.get(sid))
    key = key_of(session.settings, make=False) or b""
    session.control().set(sid, {"notify": seal(key, sid, url)})
