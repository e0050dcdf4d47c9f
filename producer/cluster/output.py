"""What a command in a pod prints, as a file: the exec stream of the API server, byte for byte.

It has three channels: what the command prints, what it says against it, and how it ended. A stream
that does not tell how it ended was cut, and what came of it is not all.
"""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from producer.cluster.api import Api

_SILENT_S = 60.0  # a volume that hangs, or a network that went without a word
_OUT, _AGAINST, _END = 1, 2, 3
_CLOSE = 8  # opcode of the last frame
_MOST_SAID = 2_000


class Output(io.RawIOBase):
    """An open exec stream; its end raises OSError where the command failed or the stream broke."""

    def __init__(self, stream: Any, size: int | None = None) -> None:
        """`stream` is a websocket; with a `size` in bytes, what is not as long is not all."""
        super().__init__()
        stream.settimeout(_SILENT_S)
        self._stream, self._left, self._said = stream, memoryview(b""), b""
        self._size, self._came = size, 0
        self._is_over = False
        self._end: dict[str, Any] | None = None

    def readable(self) -> bool:
        """True."""
        return True

    def readinto(self, into: Any) -> int:
        """As of any raw stream.

        Raises:
            FileNotFoundError: the command names a file that is not there.
            OSError: it failed otherwise, or nobody knows.
        """
        while not self._left and not self._is_over:
            self._receive()
        count = min(len(into), len(self._left))
        into[:count] = self._left[:count]
        self._left = self._left[count:]
        return count

    def close(self) -> None:
        """Let the stream go; the command ends with it."""
        if not self.closed:
            with suppress(Exception):  # whatever the library raises: it is over
                self._stream.shutdown()
        super().close()

    def _receive(self) -> None:
        try:
            opcode, frame = self._stream.recv_data_frame()
        except Exception as error:  # whatever the library raises: it is over
            self._finish(str(error))
            return
        if opcode == _CLOSE:
            self._finish("")
        elif frame.data:  # how it ended may be told before the last that it printed
            channel, data = frame.data[0], memoryview(frame.data)[1:]
            if channel == _OUT:
                self._left, self._came = data, self._came + len(data)
            elif channel == _AGAINST:
                self._said = (self._said + data)[:_MOST_SAID]
            elif channel == _END:
                self._end = json.loads(bytes(data))

    def _finish(self, why: str) -> None:
        self._is_over = True
        if self._end is None:
            raise OSError(f"the stream out of its pod broke{f': {why}' if why else ''}")
        if self._end.get("status") == "Success":
            if self._size not in (None, self._came):
                raise OSError(f"{self._came} bytes came of {self._size}")
            return
        said = self._said.decode("utf-8", "replace").strip()
        said = said or str(self._end.get("message", "the command failed"))
        raise FileNotFoundError(said) if "No such file" in said else OSError(said)


def output(
    api: Api, pod: str, container: str, words: Sequence[str], size: int | None = None
) -> io.BufferedReader:
    """Run a command in a pod; what it prints, `size` bytes where that is known.

    Raises:
        Forbidden: these credentials may not (pods/exec).
        HpqError: as `Api`.
    """
    path = api.of(f"pods/{pod}/exec")
    told = {"container": container, "stdout": "true", "stderr": "true"}
    return io.BufferedReader(Output(api.stream(path, command=words, **told), size), 1 << 20)
