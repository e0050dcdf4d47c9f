"""Open a cluster and its Redis for one command, through a connection if necessary."""

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
    """A cluster's API and a session on its Redis; `why` explains a missing session."""

    api: KubernetesApi
    session: Session | None
    why: str = ""


def api_of(context: str | None, namespace: str | None, settings: Settings) -> KubernetesApi:
    """Return the named cluster, else that of the connection, else the kubeconfig's current one.

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
    """Open the cluster and a session on its Redis, connecting if no connection exists.

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
    """Return settings whose URL reaches the Redis of this namespace."""
    connection = connection_record.connection_of_url(settings.home, settings.redis_url)
    if connection is not None and (connection.context, connection.namespace) == (
        api.context,
        api.namespace,
    ):
        return settings
    if connection is None and settings.redis_url:
        return settings  # an explicit HPQ_REDIS_URL wins
    started = start_forwarder(
        settings, ForwardRequest(context=api.context, namespace=api.namespace, role=role)
    )
    stack.callback(os.close, started.alive)
    return read({**os.environ, **started.connection.environ()})
