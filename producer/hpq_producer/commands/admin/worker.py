"""`hpq worker`: become the supervisor; on the private server, hold on to it while it lives."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

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
        int | None, typer.Option("--workers", help="Workers; without: as many as GPUs, or one.")
    ] = None,
    queue: Annotated[str | None, typer.Option(help="The worker class (HPQ_QUEUE).")] = None,
    sweep: Annotated[
        str | None, typer.Option(help="Work on this sweep (or on SWEEP/7) until it is over.")
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="End after so many trials, of all workers together.")
    ] = None,
) -> None:
    """Start workers that pop trials and train, until Ctrl-C."""
    if count is not None and sweep is not None and "/" in sweep:
        raise UserError(f"--count: {sweep} is one trial; leave --count out")
    env = {**os.environ, **({"HPQ_QUEUE": queue} if queue else {})}
    _refuse_through_a_connection(read(env))
    if sweep is not None:
        env |= _only(sweep)
    settings = read(env)
    if not settings.redis_url:
        if settings.in_pod:
            text = "HPQ_REDIS_URL: in a pod it must say which Redis to work for"
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
    """A producer's or a viewer's password is none with which a worker could train."""
    connection_record.check_shell_connection(os.environ, settings.home, settings.redis_url)
    found = connection_record.connection_of_url(settings.home, settings.redis_url)
    if found is not None and found.role != "worker":
        raise UserError(
            f"HPQ_REDIS_URL leads to {found.where}, as {found.user}, whose workers are pods:"
            " `hpq scale N`; for one on this machine alone, leave the shell of `hpq connect`"
            " (or end the connection: `hpq connect --stop`)",
            code="workers-are-pods",
        )


def _refuse_beside_a_cluster(settings: Settings) -> None:
    """One here would serve the private server, where no other command looks meanwhile."""
    if (found := connection_record.background_connection(settings.home)) is not None:
        raise UserError(
            f"the connection in the background leads to {found.where}, whose workers are pods:"
            " `hpq scale N`; or end it first: `hpq connect --stop`",
            code="workers-are-pods",
        )
