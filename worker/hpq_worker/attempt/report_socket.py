"""The socket on which a program reports (HPQ_REPORT): datagrams in order, none lost.

The child processes of a function that an agent calls report on it, too. The worker reads it, not
the runner: the worker must have the reports that a program made before it wrote a checkpoint or
printed a line, however slow the runner is.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping
from typing import Any

from hpq.reporting import bounded, flatten, whole

_LARGEST_BYTES = 262_144  # of one report; 300 names and their values fit many times over
_LONGEST_WHY = 200  # characters of a reason
_MOST = 1_024  # datagrams of one call: more than the kernel queues (net.unix.max_dgram_qlen)
# Any process of the user may send any datagram.
_INVALID = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


class ReportSocket:
    """The reading end of the reports of one attempt.

    Raises, when created: OSError if the path cannot be bound.
    """

    def __init__(self, path: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(path)
        self._socket.setblocking(False)
        self._buffer = bytearray(_LARGEST_BYTES)  # one for all: making it costs more than to read

    def fileno(self) -> int:
        """Return the file descriptor, for a selector."""
        return self._socket.fileno()

    def read(self) -> Iterator[Mapping[str, Any]]:
        """Yield the valid messages that have arrived (`_checked`)."""
        for _ in range(_MOST):
            try:
                size = self._socket.recv_into(self._buffer)
            except BlockingIOError:
                return
            try:
                message = _checked(json.loads(self._buffer[:size].decode()))
            except _INVALID:
                continue
            yield message

    def close(self) -> None:
        """Close it; what is sent later is refused."""
        self._socket.close()


def _checked(message: Mapping[str, Any]) -> Mapping[str, Any]:
    if message.get("may_report") is True:
        return {"may_report": True}
    if message.get("ignore_printed") is True:
        return {"ignore_printed": True}
    if message.get("begin_again") is True:
        return {"begin_again": True}
    if "run_info" in message:
        return {"run_info": bounded(message["run_info"])}
    if "dropped" in message:
        why, of_process = str(message["why"])[:_LONGEST_WHY], message.get("of_process") is True
        return {"dropped": str(message["dropped"]), "why": why, "of_process": of_process}
    if "exit_code" in message:
        return {"exit_code": int(message["exit_code"])}
    at = float(message.get("at", 0.0))
    return {"report": flatten(message["report"]), "step": whole(message["step"]), "at": at}
