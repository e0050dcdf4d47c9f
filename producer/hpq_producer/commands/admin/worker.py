"""`hpq worker`: become the supervisor, which keeps a private server running."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, NoReturn

from typer import Option

from hpq.connection.credentials import redact
from hpq.domain.sweep import SweepState, SweepView
from hpq.domain.trial import TrialId
from hpq.errors import HpqError, SettingsError, UserError
from hpq.filestore.local import location
from hpq.settings import Settings, read
from hpq_producer import connection_record
from hpq_producer.connection_record import with_joined
from hpq_producer.embedded_redis.attach import attach
from hpq_producer.home_files import remove_unused
from hpq_producer.session import open_session, warn_of_unknown_settings
from hpq_producer.targets import parse_targets
from hpq_producer.terminal.console import print_message
from hpq_producer.terminal.text import clean, duration, trials_of


def worker(
    workers: Annotated[
        int | None,
        Option("--workers", help="Number of workers. Default: one per GPU; 1 without a GPU."),
    ] = None,
    queue: Annotated[
        str | None, Option(metavar="NAME", help="Claim trials of this queue. Default: HPQ_QUEUE.")
    ] = None,
    sweep: Annotated[
        str | None,
        Option(metavar="SWEEP", help="Run only this sweep, or SWEEP/7, and exit when it is over."),
    ] = None,
    count: Annotated[
        int | None, Option(min=1, help="Exit after N trials, all workers together.")
    ] = None,
    everything: Annotated[
        bool, Option("--all", help="Also run sweeps without activity for a day.")
    ] = False,
) -> None:
    """Start workers, which claim trials and train until Ctrl-C.

    In a terminal, it lists sweeps without activity for a day and skips them; `hpq resume SWEEP`
    starts one, --all starts all. In scripts, services and pods it runs every sweep.

    Examples:
      hpq worker
      hpq worker --sweep digits-3f2a1 --count 10
    """
    if count is not None and sweep is not None and "/" in sweep:
        raise UserError(f"--count: {sweep} is one trial; remove --count")
    words = []
    if workers is not None:
        words += ["--workers", str(workers)]
    if sweep is not None:
        words += ["--until-over"]
    if count is not None:
        words += ["--count", str(count)]
    start(words, queue, sweep, skips_idle=not everything and sys.stderr.isatty())


def start(
    options: Sequence[str] = (),
    queue: str | None = None,
    sweep: str | None = None,
    *,
    skips_idle: bool,
) -> NoReturn:
    """Become a supervisor, after a line about the server and one for each sweep that waits."""
    env, place = worker_environment(
        {**os.environ, **({"HPQ_QUEUE": queue} if queue else {})}, sweep
    )
    words = [sys.executable, "-P", "-m", "hpq_worker", *options]
    if not read(env).in_pod:
        words += _describe(read(env), place, skips_idle=skips_idle)
    os.execve(sys.executable, words, env)


def worker_environment(env: Mapping[str, str], sweep: str | None) -> tuple[dict[str, str], str]:
    """Return the environment of a worker, and the name of its server without secrets.

    A private server runs as long as this process.

    Raises:
        SettingsError, UserError: the settings do not suit a worker.
        NotFound: the sweep does not exist.
    """
    given, env = read(env), dict(env)
    _refuse_through_a_connection(given)
    if not given.redis_url:
        env |= with_joined(env, given.home)
    if sweep is not None:
        env |= _only(sweep)
    settings = read(env)
    warn_of_unknown_settings()
    if not settings.redis_url and settings.in_pod:
        text = "HPQ_REDIS_URL: required in a pod; set it to the URL of Redis"
        raise SettingsError(text, code="setting-missing")
    if not given.redis_url:
        _refuse_beside_a_cluster(settings)
    if settings.redis_url:
        if not given.redis_url:
            connection_record.register_worker(settings.home)
        return env, redact(env.get("HPQ_REDIS_URL", ""))  # without the path of the password file
    attached = attach(settings.home)
    attached.keep_across_exec()
    # All workers of a private server are on this machine.
    env |= {"HPQ_REDIS_URL": attached.url, "HPQ_STORE": location(settings)}
    return env, f"the private server under {settings.home}"


_IDLE_MS = 86_400_000
_LISTED = 10


def _describe(settings: Settings, place: str, *, skips_idle: bool) -> Iterator[str]:
    """Print the server, and the sweeps that wait; yield options for those to skip."""
    only = settings.sweep.partition("/")[0]
    try:
        with open_session(settings) as session:
            reader = session.reader
            ids = [only] if only else reader.sweeps.open_ids(settings.queue)
            found = [s for s in reader.sweeps.get_each(ids) if isinstance(s, SweepView)]
            waiting = [s for s in found if s.state is SweepState.RUNNING and s.counts.waits]
            last = {one.id: reader.events.last_id(one.id) for one in waiting}
            now_ms = reader.now_ms()
            remove_unused(settings.home, reader)
    except HpqError:
        return  # the worker process reports the error, or waits for Redis
    count = trials_of(len(waiting), "sweep")
    wait = "waits" if len(waiting) == 1 else "wait"
    print_message(
        f"connected to {place}, prefix {settings.prefix}, queue {settings.queue}: {count} {wait}"
    )
    for number, one in enumerate(waiting):
        age_ms = now_ms - int(last[one.id].partition("-")[0])
        is_idle = skips_idle and not only and age_ms > _IDLE_MS
        if number < _LISTED:
            counts = one.counts
            left = "trials"
            if not counts.is_open_ended:
                left = trials_of(int(counts.planned) - counts.ended)
            text = f"  {one.id}: {left} of {clean(one.owner)}"
            why = f", no activity for {duration(age_ms)}: skipped; `hpq resume {one.id}` starts it"
            print_message(text + (why if is_idle else ""))
        if is_idle:
            yield f"--idle={one.id}@{last[one.id]}"
    if len(waiting) > _LISTED:
        print_message(f"  and {len(waiting) - _LISTED} more: hpq ls --all")


def _only(ref: str) -> dict[str, str]:
    with open_session() as session:
        sid, numbers = parse_targets([ref])
        found = session.sweep(sid or "")
        if len(numbers) == 1:
            only = session.reader.trials.get(TrialId(sweep=found.id, number=numbers[0])).id
            return {"HPQ_SWEEP": str(only), "HPQ_QUEUE": found.queue}
        return {"HPQ_SWEEP": found.id, "HPQ_QUEUE": found.queue}


def _refuse_through_a_connection(settings: Settings) -> None:
    """Refuse the password of a producer or a viewer: a worker cannot train with it."""
    found = connection_record.connection_of_url(settings.home, settings.redis_url)
    if found is not None and found.role != "worker":
        raise UserError(
            f"HPQ_REDIS_URL connects to {found.where} as {found.user}; its workers are pods:"
            " `hpq scale N`. For a worker on this machine, first run `hpq connect --stop`",
            code="workers-are-pods",
        )


def _refuse_beside_a_cluster(settings: Settings) -> None:
    """Refuse a worker of the private server while all other commands use a cluster."""
    if (found := connection_record.background_connection(settings.home)) is not None:
        raise UserError(
            f"the background connection uses {found.where}, whose workers are pods: `hpq scale N`."
            " For a worker on this machine, first run `hpq connect --stop`",
            code="workers-are-pods",
        )
