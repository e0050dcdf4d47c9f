"""`hpq audit`."""

from __future__ import annotations

from typing import Any

import typer

from hpq.errors import ExitCode
from hpq_producer.analysis.records import iso
from hpq_producer.audit.replay import Audit
from hpq_producer.audit.report import audit_lines
from hpq_producer.audit.sweep_audit import audit_sweep
from hpq_producer.commands.common_flags import Output
from hpq_producer.session import open_session
from hpq_producer.targets import SweepRef
from hpq_producer.terminal.console import show_lines
from hpq_producer.terminal.output import Format, show_data


def audit(sweep: SweepRef = None, output: Output = Format.TABLE) -> None:
    """Verify from a sweep's events that each trial ended once and that none was lost.

    The exit code is 1 if a trial ended twice, was ended by an outdated attempt, or was lost.

    Example: hpq audit digits-3f2a1 -o json
    """
    with open_session() as session:
        sid = session.find(sweep)
        found = audit_sweep(session.reader, sid)
    if output.is_data:
        show_data(_record(sid, found), output)
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
        "went_back": {
            "from": iso(found.lost[0][0]),
            "to": iso(found.lost[-1][0]),
            "trials": found.lost_trials,
        }
        if found.lost
        else None,
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
