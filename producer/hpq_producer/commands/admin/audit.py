"""`hpq audit`."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hpq.errors import ExitCode
from hpq_producer.audit.replay import Audit
from hpq_producer.audit.report import audit_lines
from hpq_producer.audit.sweep_audit import audit_sweep
from hpq_producer.session import open_session
from hpq_producer.targets import SweepRef
from hpq_producer.terminal.console import show_json, show_lines


def audit(
    sweep: SweepRef = None,
    as_json: Annotated[bool, typer.Option("--json", help="As data.")] = False,
) -> None:
    """Replay a sweep's events: was each trial ended once, by its latest attempt, and none lost?

    Exit code 1 where one was not.
    """
    with open_session() as session:
        sid = session.find(sweep)
        found = audit_sweep(session.reader, sid)
    if as_json:
        show_json(_record(sid, found))
    else:
        show_lines(audit_lines(sid, found), whole=True)
    raise typer.Exit(int(ExitCode.SOME_FAILED if found.violations else ExitCode.DONE))


def _record(sid: str, found: Audit) -> dict[str, Any]:
    return {
        "sweep": sid,
        "holds": not found.violations,
        "trials": found.trials,
        "open": found.open,
        **found.ends,
        "events": found.events,
        "requeues": dict(found.requeues),
        "reused": found.reused,
        "late": found.late,
        "requeue_ms": {
            "n": len(found.latencies_ms),
            "p50": found.quantile_ms(0.5),
            "p99": found.quantile_ms(0.99),
            "max": found.quantile_ms(1.0),
        },
        "unknown_events": dict(found.unknown),
        "violations": [
            {"trial": v.trial or None, "what": v.what, "events": list(v.events)}
            for v in found.violations
        ],
    }
