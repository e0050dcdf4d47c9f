"""A cluster and its Redis for the length of a command, however the user reaches them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from hpq.errors import HpqError
from hpq.settings import Settings, read
from hpq_producer import connection_record
from hpq_producer.cluster.api import Api
from hpq_producer.cluster.connect.start import Wanted, start
from hpq_producer.connection_record import NAMESPACE
from hpq_producer.session import Session, open_session, settings_here


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """The API server, and the Redis behind it; `why` says why there is no session."""

    api: Api
    session: Session | None
    why: str = ""


def api_of(context: str | None, namespace: str | None, settings: Settings) -> Api:
    """The cluster that is meant: as asked, else the one that Redis is reached in, else the current.

    Raises:
        HpqError: as `Api`.
    """
    through = connection_record.of_url(settings.home, settings.redis_url)
    if context is None and through is not None:
        context, namespace = through.context, namespace or through.namespace
    return Api(context, namespace or NAMESPACE, beside_connection=through is not None)


@contextmanager
def open_cluster(
    context: str | None, namespace: str | None, *, needs_redis: bool = True
) -> Iterator[Opened]:
    """The cluster and a session on its Redis, by a tunnel of its own where there is none.

    Raises:
        HpqError: the cluster cannot be reached; and, unless `needs_redis` is false, its Redis.
    """
    settings = settings_here()
    api = api_of(context, namespace, settings)
    with ExitStack() as stack:
        try:
            session = stack.enter_context(open_session(leading_to(api, settings, stack)))
        except HpqError as error:
            if needs_redis:
                raise
            yield Opened(api=api, session=None, why=str(error))
        else:
            yield Opened(api=api, session=session)


def leading_to(api: Api, settings: Settings, stack: ExitStack, role: str = "producer") -> Settings:
    """Settings with which a session is on the Redis of this namespace."""
    through = connection_record.of_url(settings.home, settings.redis_url)
    if through is not None and (through.context, through.namespace) == (api.context, api.namespace):
        return settings
    if through is None and settings.redis_url:
        return settings  # the user's own way there
    started = start(settings, Wanted(context=api.context, namespace=api.namespace, role=role))
    stack.callback(os.close, started.alive)
    return read({**os.environ, **started.tunnel.environ()})
