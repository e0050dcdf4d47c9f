"""`hpq worker`: become the supervisor, which keeps a private server running."""

from __future__ import annotations

import os
import sys
from typing import Annotated

from typer import Option

from hpq.domain.trial import TrialId
from hpq.errors import SettingsError, UserError
from hpq.filestore.local import location
from hpq.settings import Settings, read
from hpq_producer import connection_record
from hpq_producer.embedded_redis.attach import attach
from hpq_producer.session import open_session
from hpq_producer.targets import parse_targets


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
) -> None:
    """Start workers, which claim trials and train until Ctrl-C.

    Examples:
      hpq worker
      hpq worker --sweep digits-3f2a1 --count 10
    """
    if count is not None and sweep is not None and "/" in sweep:
        raise UserError(f"--count: {sweep} is one trial; remove --count")
    env = {**os.environ, **({"HPQ_QUEUE": queue} if queue else {})}
    _refuse_through_a_connection(read(env))
    if sweep is not None:
        env |= _only(sweep)
    settings = read(env)
    if not settings.redis_url:
        if settings.in_pod:
            text = "HPQ_REDIS_URL: required in a pod; set it to the URL of Redis"
            raise SettingsError(text, code="setting-missing")
        _refuse_beside_a_cluster(settings)
        attached = attach(settings.home)
        attached.keep_across_exec()
        env["HPQ_REDIS_URL"] = attached.url
        env["HPQ_STORE"] = location(settings)  # all workers of a private server are on this machine
    words = [sys.executable, "-P", "-m", "hpq_worker"]
    if workers is not None:
        words += ["--workers", str(workers)]
    if sweep is not None:
        words += ["--until-over"]
    if count is not None:
        words += ["--count", str(count)]
    os.execve(sys.executable, words, env)


def _only(ref: str) -> dict[str, str]:
    with open_session() as session:
        sid, numbers = parse_targets([ref])
        found = session.sweep(sid or "")
        if len(numbers) == 1:
            only = session.reader.trials.get(TrialId(sweep=found.id, number=numbers[0])).id
            return {"HPQ_SWEEP": str(only), "HPQ_QUEUE": found.worker_class}
        return {"HPQ_SWEEP": found.id, "HPQ_QUEUE": found.worker_class}


def _refuse_through_a_connection(settings: Settings) -> None:
    """Refuse the password of a producer or a viewer: a worker cannot train with it."""
    connection_record.check_shell_connection(os.environ, settings.home, settings.redis_url)
    found = connection_record.connection_of_url(settings.home, settings.redis_url)
    if found is not None and found.role != "worker":
        raise UserError(
            f"HPQ_REDIS_URL connects to {found.where} as {found.user}; its workers are pods:"
            " `hpq scale N`. For a worker on this machine, first exit the shell of `hpq connect`,"
            " or run `hpq connect --stop`",
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
