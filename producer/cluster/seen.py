"""The pods behind a Redis, looked at beside whatever draws: a dead API server never slows a frame.

Only where they are this Redis's: it is reached by `hpq connect`, or a live worker says that its pod
is one of them. Without a kubeconfig, or with a local server, nothing is asked.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from hpq.errors import HpqError
from hpq.snapshot import Worker
from producer.cluster.api import Api, has_kubeconfig
from producer.cluster.pods import Crew, look
from producer.cluster.tunnel import NAMESPACE
from producer.session import Session

EVERY_S = 3.0
STALE_S = 30.0  # what was seen so long ago is not shown any more
_FIRST_S = 4.0  # how long a command that prints once waits


class Pods:
    """What was seen last, and why nothing is seen now."""

    def __init__(self, session: Session) -> None:
        self._tunnel, self._stop = session.tunnel, threading.Event()
        self._is_private = session.is_private
        self._can = session.tunnel is not None or (
            not session.is_private and has_kubeconfig(os.environ)
        )
        self._crew: Crew | None = None
        self._thread: threading.Thread | None = None
        self._looked, self._has_waited, self._asked_at = threading.Event(), False, 0.0
        self.why = ""

    @property
    def in_cluster(self) -> bool:
        """True where Redis is reached by `hpq connect`: its workers are pods, seen or not."""
        return self._tunnel is not None

    @property
    def is_perhaps_elsewhere(self) -> bool:
        """True on the private server where a kubeconfig is: a cluster's may have been meant."""
        return self._is_private and has_kubeconfig(os.environ)

    def crew(self, workers: Sequence[Worker], *, wait: bool = False) -> Crew | None:
        """The newest look, if it is at this Redis's pods; the first call begins to look.

        With `wait` it waits a little for the first look, once.
        """
        if not self._can or not (self._tunnel or any(w.pod for w in workers)):
            return None
        self._begin()
        if wait and not self._has_waited:
            self._has_waited = True
            self._looked.wait(_FIRST_S)
        crew = self._crew
        if crew is None or time.monotonic() - crew.at > STALE_S:
            return None
        names = {pod.name for pod in crew.pods}
        return crew if self._tunnel or any(w.pod in names for w in workers) else None

    def crew_now(self, workers: Sequence[Worker]) -> Crew | None:
        """As `crew`, after waiting a little for the first look."""
        crew = self.crew(workers, wait=True)
        self.close()
        return crew

    def close(self) -> None:
        """Look no more."""
        self._stop.set()

    def _begin(self) -> None:
        self._asked_at = time.monotonic()
        if (self._thread is None or not self._thread.is_alive()) and not self._stop.is_set():
            self._has_waited = False
            self._looked.clear()
            self._thread = threading.Thread(target=self._loop, name="pods", daemon=True)
            self._thread.start()

    def _loop(self) -> None:
        api: Api | None = None
        while not self._stop.is_set() and time.monotonic() - self._asked_at < STALE_S:
            try:
                api = api or self._open()
                self._crew, self.why = look(api), ""
            except HpqError as error:
                self.why = str(error)
            except Exception as error:  # what shows trials goes on without pods
                self.why = f"{type(error).__name__}: {error}"
            self._looked.set()
            self._stop.wait(EVERY_S)

    def _open(self) -> Api:
        if self._tunnel is not None:
            return Api(self._tunnel.context, self._tunnel.namespace)
        return Api(None, NAMESPACE)
