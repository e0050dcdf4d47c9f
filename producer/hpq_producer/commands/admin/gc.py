"""`hpq gc`."""

from __future__ import annotations

from hpq.domain.sweep import Sweep
from hpq_producer.doctor.home import bytes_of, remove, unused
from hpq_producer.session import open_session
from hpq_producer.terminal.text import size


def gc() -> None:
    """Delete code snapshots, logs and caches older than a week; keep those of unfinished sweeps.

    Files that trials wrote, under work/, are kept.

    Example: hpq gc
    """
    with open_session() as session:
        sweeps = session.reader.sweeps
        live = [s for s in sweeps.get_each(sweeps.ids()) if isinstance(s, Sweep)]
        needed = {n for s in live if not s.state.is_over for n in (s.id, s.launch.code)}
        home = session.settings.home
        freed = sum(remove(path) for path in list(unused(home, needed)))
    results = size(bytes_of(home / "work"))
    print(
        f"{home}: {size(freed)} deleted, {size(bytes_of(home))} left, of which {results} in work/"
    )
