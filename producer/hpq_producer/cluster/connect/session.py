"""A cluster and its Redis for the length of a command, however the user reaches them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from hpq.errors import HpqError
from hpq.settings import Settings, read
from hpq_producer import connection_record
from hpq_producer.cluster.api import KubernetesApi
from hpq_producer.cluster.connect.start import ForwardRequest, start_forwarder
from hpq_producer.connection_record import NAMESPACE
from hpq_producer.session import Session, load_settings, open_session


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCluster:
    """The API server, and the Redis behind it; `why` says why there is no session."""

    api: KubernetesApi
    session: Session | None
    why: str = ""


def api_of(context: str | None, namespace: str | None, settings: Settings) -> KubernetesApi:
    """The cluster that is meant: as asked, else the one that Redis is reached in, else the current.

    Raises:
        HpqError: as `KubernetesApi`.
    """
    connection = connection_record.connection_of_url(settings.home, settings.redis_url)
    if context is None and connection is not None:
        context, namespace = connection.context, namespace or connection.namespace
    return KubernetesApi(context, namespace or NAMESPACE, beside_connection=connection is not None)


@contextmanager
def open_cluster(
    context: str | None, namespace: str | None, *, needs_redis: bool = True
) -> Iterator[OpenCluster]:
    """The cluster and a session on its Redis, by a connection of its own if there is none.

    Raises:
        HpqError: the cluster cannot be reached; and, unless `needs_redis` is false, its Redis.
    """
    settings = load_settings()
    api = api_of(context, namespace, settings)
    with ExitStack() as stack:
        try:
            session = stack.enter_context(open_session(settings_for(api, settings, stack)))
        except HpqError as error:
            if needs_redis:
                raise
            yield OpenCluster(api=api, session=None, why=str(error))
        else:
            yield OpenCluster(api=api, session=session)


def settings_for(
    api: KubernetesApi, settings: Settings, stack: ExitStack, role: str = "producer"
) -> Settings:
    """Settings with which a session is on the Redis of this namespace."""
    connection = connection_record.connection_of_url(settings.home, settings.redis_url)
    if connection is not None and (connection.context, connection.namespace) == (
        api.context,
        api.namespace,
    ):
        return settings
    if connection is None and settings.redis_url:
        return settings  # the user's own way there
    started = start_forwarder(
        settings, ForwardRequest(context=api.context, namespace=api.namespace, role=role)
    )
    stack.callback(os.close, started.alive)
    return read({**os.environ, **started.connection.environ()})
