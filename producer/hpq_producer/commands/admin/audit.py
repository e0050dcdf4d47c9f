"""`hpq audit`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from hpq.access.session import open_session
from hpq.error_codes import ExitCode
from hpq.notice import plural
from hpq_ops.audit.replay import Audit
from hpq_ops.audit.sweep_audit import audit_sweep
from hpq_producer.commands.common_flags import Output
from hpq_views.targets import SweepRef
from hpq_views.text.console import show_lines
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Line, Span, Style
from hpq_views.text.text import clean, exact_seconds, trials_of

_SHOWN = 50  # violations; --json lists all


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
        show_lines(_lines(sid, found), whole=True)
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
        "violations": [
            {"trial": v.trial or None, "what": v.what, "events": list(v.events)}
            for v in found.violations
        ],
    }


def _lines(sid: str, found: Audit) -> Iterator[Line]:
    """Yield the verdict, then the evidence, then each violation."""
    if found.violations:
        n = len(found.violations)
        where = f"{trials_of(found.trials)}, {trials_of(found.events, 'event')}"
        line = f"{trials_of(n, 'violation')} in {where}"
        yield [Span(f"{sid}: "), Span(line, Style.RED)]
    else:
        so_far = f"so far ({trials_of(found.open)} still open): " if found.open else ""
        line = f"{so_far}no trial lost; each ended once, by its latest attempt"
        yield [Span(f"{sid}: "), Span(line, Style.GREEN)]
    ends = [f"{n} {state}" for state, n in found.ends.items() if n]
    if found.open:
        ends.append(f"{found.open} open")
    replayed = f"{trials_of(found.events, 'event')} replayed"
    yield [Span(f"{trials_of(found.trials)}: {', '.join(ends)}; {replayed}")]
    if found.reused:
        are = plural(found.reused, "is a reused result", "are reused results")
        yield [Span(f"{found.reused} of them {are} of older sweeps")]
    if found.requeues:
        why = ", ".join(f"{n} {clean(reason)}" for reason, n in found.requeues.items())
        late = f"; {trials_of(found.late, 'late result')} accepted" if found.late else ""
        yield [Span(f"requeued {trials_of(sum(found.requeues.values()), 'time')}: {why}{late}")]
    if found.latencies_ms:
        shares = (("p50", 0.5), ("p99", 0.99), ("max", 1.0))
        text = "  ".join(f"{n} {exact_seconds(found.quantile_ms(q) or 0)}" for n, q in shares)
        yield [Span(f"last heartbeat to requeue: {text}  (n={len(found.latencies_ms)})")]
    for v in found.violations[:_SHOWN]:
        where = f"#{v.trial}" if v.trial else "the sweep"
        events = f"  [{', '.join(map(clean, v.events))}]" if v.events else ""
        yield [Span(f"{where}: {clean(v.what)}", Style.RED), Span(events)]
    if len(found.violations) > _SHOWN:
        yield [Span(f"… and {len(found.violations) - _SHOWN} more; --json lists all")]
