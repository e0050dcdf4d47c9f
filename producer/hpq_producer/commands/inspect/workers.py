"""`hpq workers`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from hpq.access.session import Session, open_session
from hpq.domain.status import Worker
from hpq.domain.sweep import SweepView
from hpq.notice import Notice, print_message
from hpq_producer.commands.common_flags import Output
from hpq_views.analysis.output_records import worker_record
from hpq_views.text.console import show_table
from hpq_views.text.output import Format, show_data
from hpq_views.text.style import Span, Style
from hpq_views.text.tables import Column
from hpq_views.text.text import clean, duration
from hpq_views.why.able_workers import cluster_hint, how_to_start
from hpq_views.why.pods import why_fewer_pods_run, why_no_pod_runs
from hpq_views.why.waiting import explain_full_server


def workers(output: Output = Format.TABLE) -> None:
    """List live workers, their trials, and the unfinished sweeps that they cannot run.

    Example: hpq workers -o yaml
    """
    with open_session() as session:
        found = session.reader.workers.live()
        if output.is_data:
            return show_data([_record(w) for w in found], output)
        if found:
            show_table(_COLUMNS, _rows(found, session.reader.now_ms()))
            for line in _refused(session, found):
                print_message(line)
            for reason in why_fewer_pods_run(session, found):
                print_message(reason)
            if full := explain_full_server(session.reader.server_memory()):
                print_message(full)
            for worker in found:
                if worker.unreadable:
                    print_message(f"! {clean(worker.name)}: {clean(str(worker.notice))}")
        elif reasons := why_no_pod_runs(session, found):
            for reason in reasons:
                print_message(reason)
        else:
            start = how_to_start(session.server, kubectl=session.kubectl)
            print_message(f"no worker is running; {start}{cluster_hint(session)}")


def _record(worker: Worker) -> dict[str, Any]:
    """Return a worker's record with the name of its pod."""
    return {**worker_record(worker), "pod": {"name": worker.pod} if worker.pod else None}


def _refused(session: Session, found: Sequence[Worker]) -> Iterator[str]:
    """Yield a line for each unfinished sweep that some workers cannot run, and the reason."""
    who: dict[tuple[str, Notice], list[str]] = {}
    for w in found:
        for sweep, reason in w.refuses.items():
            who.setdefault((sweep, reason), []).append(w.name)
    wanted = session.reader.sweeps.get_each(sorted({sweep for sweep, _ in who}))
    waiting = {s.id for s in wanted if isinstance(s, SweepView) and not s.state.is_over}
    for (sweep, reason), names in who.items():
        if sweep in waiting:
            them = clean(names[0]) if len(names) == 1 else f"{len(names)} workers"
            yield f"{them} cannot run {clean(sweep)}: {clean(str(reason))}"


_COLUMNS = (
    Column(title="worker", keep=100, least=8),
    Column(title="queue", keep=60),
    Column(title="state", keep=90),
    Column(title="trial", keep=80, least=10),
    Column(title="seen", keep=70, right=True),
    Column(title="device", keep=50, least=8),
    Column(title="host", keep=40, least=6),
    Column(title="version", keep=30),
)


def _rows(found: Sequence[Worker], now_ms: int) -> list[list[Span]]:
    return [
        [
            Span(clean(w.name)),
            Span(clean(w.queue)),
            Span(clean(w.state), Style.RED if w.state in ("faulty", "unreadable") else Style.PLAIN),
            Span(clean(w.trial)),
            Span(f"{duration(now_ms - w.seen_ms)} ago"),
            Span(clean(w.device)),
            Span(clean(w.host)),
            Span(clean(w.version)),
        ]
        for w in found
    ]
