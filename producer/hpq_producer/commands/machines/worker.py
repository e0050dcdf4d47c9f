"""`hpq worker`: become the supervisor, which keeps a private server running."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Annotated, NoReturn

from typer import Option

from hpq.access import connection_record
from hpq.access.connection_record import with_joined
from hpq.access.home_files import remove_unused
from hpq.access.session import open_session, warn_of_unknown_settings
from hpq.domain import durations
from hpq.domain.sweep import SweepState, SweepView
from hpq.errors import HpqError, SettingsError, UserError
from hpq.filestore.stores import location
from hpq.gpus import device_line
from hpq.notice import print_message
from hpq.private_server.attach_or_start import attach
from hpq.redis.credentials import redact
from hpq.settings import Settings, read
from hpq_producer.commands.common_flags import GpusPerTrial, TrialsPerGpu, set_gpus
from hpq_views.text.text import clean, trials_of


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
        Option(metavar="SWEEP", help="Run only this sweep, and exit when it is over."),
    ] = None,
    count: Annotated[
        int | None, Option(min=1, help="Exit after N trials, all workers together.")
    ] = None,
    until_idle: Annotated[
        str | None,
        Option(metavar="DURATION", help="Exit after DURATION without a claim, e.g. 10m."),
    ] = None,
    gpus: GpusPerTrial = None,
    trials_per_gpu: TrialsPerGpu = None,
) -> None:
    """Start workers, which claim trials and train until Ctrl-C.

    Examples:
      hpq worker
      hpq worker --sweep digits-3f2a1 --count 10
    """
    set_gpus(gpus, trials_per_gpu)
    words = []
    if workers is not None:
        words += ["--workers", str(workers)]
    if sweep is not None:
        words += ["--until-over"]
    if count is not None:
        words += ["--count", str(count)]
    if until_idle is not None:
        words += ["--until-idle", str(idle_seconds(until_idle))]
    start(words, queue, sweep)


def idle_seconds(text: str) -> float:
    """Return the seconds of `--until-idle`.

    Raises:
        UserError: the text is no duration, or is 0.
    """
    with suppress(ValueError):
        if found := durations.seconds(text):
            return found
    raise UserError(f"--until-idle {text}: write a duration, such as 90s, 10m or 1h")


def start(
    options: Sequence[str] = (),
    queue: str | None = None,
    sweep: str | None = None,
) -> NoReturn:
    """Become a supervisor, after a line about the server and one for each sweep that waits."""
    env, place = worker_environment(
        {**os.environ, **({"HPQ_QUEUE": queue} if queue else {})}, sweep
    )
    words = [sys.executable, "-P", "-m", "hpq_worker", *options]
    settings = read(env)
    if not settings.in_pod:
        _describe(settings, place)
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


_LISTED = 10


def _describe(settings: Settings, place: str) -> None:
    """Print the server, and the sweeps that wait."""
    only = settings.sweep
    try:
        with open_session(settings) as session:
            reader = session.reader
            ids = [only] if only else reader.sweeps.open_ids(settings.queue)
            found = [s for s in reader.sweeps.get_each(ids) if isinstance(s, SweepView)]
            waiting = [s for s in found if s.state is SweepState.RUNNING and s.counts.waits]
            remove_unused(settings.home, reader)
    except HpqError:
        return  # the worker process reports the error, or waits for Redis
    if settings.log_format == "json":  # all lines of a worker are objects
        return
    count = trials_of(len(waiting), "sweep")
    wait = "waits" if len(waiting) == 1 else "wait"
    print_message(
        f"connected to {place}, prefix {settings.prefix}, queue {settings.queue}: {count} {wait}"
    )
    print_message(device_line(os.environ))
    for one in waiting[:_LISTED]:
        counts, left = one.counts, "trials"
        if not counts.is_open_ended:
            done, of = counts.progress
            left = trials_of(int(of) - done)
        print_message(f"  {one.id}: {left} of {clean(one.owner)}")
    if len(waiting) > _LISTED:
        print_message(f"  and {len(waiting) - _LISTED} more: hpq ls --all")


def _only(ref: str) -> dict[str, str]:
    with open_session() as session:
        found = session.sweep(ref)
        return {"HPQ_SWEEP": found.id, "HPQ_QUEUE": found.queue}


def _refuse_through_a_connection(settings: Settings) -> None:
    """Refuse the password of a producer or a viewer: a worker cannot train with it."""
    found = connection_record.connection_of_url(settings.home, settings.redis_url)
    if found is not None and found.role != "worker":
        raise _are_pods(f"HPQ_REDIS_URL connects to {found.where} as {found.user}", found)


def _refuse_beside_a_cluster(settings: Settings) -> None:
    """Refuse a worker of the private server while all other commands use a cluster."""
    if (found := connection_record.background_connection(settings.home)) is not None:
        raise _are_pods(f"the background connection uses {found.where}", found)


def _are_pods(what: str, found: connection_record.ConnectionRecord) -> UserError:
    scale = connection_record.scale_command(found.kubectl)
    here = "For a worker on this machine, first run `hpq connect --stop`"
    return UserError(f"{what}; its workers are pods: {scale}. {here}", code="workers-are-pods")
