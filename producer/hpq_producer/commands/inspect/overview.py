"""`hpq` without a command: the unfinished sweeps, the workers and the next commands."""

from __future__ import annotations

from collections import Counter

from hpq_producer.cluster.pods import PodWatcher
from hpq_producer.diagnosis.pods import explain_waiting
from hpq_producer.diagnosis.verdict import needed_actions, note_lines, status_lines
from hpq_producer.embedded_redis.attach import running_socket
from hpq_producer.embedded_redis.state import ServerHome
from hpq_producer.session import Session, load_settings, open_session
from hpq_producer.terminal.console import show_lines, stdout_info
from hpq_producer.terminal.style import Line, Span, Style
from hpq_producer.terminal.text import clean

_NEWEST, _SHOWN = 50, 4  # sweeps


def show_overview() -> None:
    """Print the verdict of each unfinished sweep, the workers, and three commands.

    Starts no private server: no sweep runs while the private server is down.
    """
    settings = load_settings()
    if not settings.redis_url and not running_socket(settings.home):
        if not ServerHome.of(settings.home).data_dir.exists():
            return _show_first()
        print("no sweep is running")
        return _show_commands("hpq ls", "hpq run FILE")
    with open_session(settings) as session:
        _show(session)


def _show(session: Session) -> None:
    reader, columns = session.reader, stdout_info().columns
    sweeps = reader.sweeps.get_many(reader.sweeps.ids(_NEWEST))
    if not sweeps:
        return _show_first()
    moving = [sweep for sweep in sweeps if not sweep.state.is_over]
    for sweep in moving[:_SHOWN] or sweeps[:1]:
        status = reader.status(sweep.id, 64, top=1, recent=3)
        why = explain_waiting(status, pods=PodWatcher(session))
        lines: list[Line] = status_lines(status, columns, why)
        for notice in needed_actions(status, why):
            lines += note_lines(notice.text, columns)
        show_lines([*lines, []])
    if (more := len(moving) - _SHOWN) > 0:
        print(f"and {more} more: hpq watch --all\n")
    states = Counter(clean(worker.state) for worker in reader.workers.live())
    words = ", ".join(f"{n} {state}" for state, n in sorted(states.items()))
    print(f"workers: {words or 'none'}")
    if moving:
        _show_commands(f"hpq watch {moving[0].id}", f"hpq best {moving[0].id}", "hpq ls")
    else:
        _show_commands(f"hpq summary {sweeps[0].id}", f"hpq best {sweeps[0].id}", "hpq run FILE")


def _show_first() -> None:
    print("no sweep yet; write a sweep file for your script, then run it")
    _show_commands("hpq init train.py --out sweep.yaml", "hpq run sweep.yaml")


def _show_commands(*commands: str) -> None:
    show_lines([[Span("next: ", Style.DIM), Span("   ".join(commands))]])
    show_lines([[Span("all commands: hpq --help", Style.DIM)]])
