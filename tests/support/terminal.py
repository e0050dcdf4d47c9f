"""Run the installed hpq on a terminal of its own."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.support.commands import HPQ
from tests.support.constants import DEADLINE_S


class Pty:
    """A command on a terminal of its own."""

    def __init__(self, words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [HPQ, *words], cwd=cwd, env=env, stdin=slave, stdout=slave, stderr=slave,
            preexec_fn=lambda: os.login_tty(slave),
        )  # fmt: skip
        os.close(slave)
        self.seen = ""

    def type(self, text: str) -> None:
        """Type a text; `\x03` is Ctrl-C."""
        os.write(self._master, text.encode())

    def read_until(self, text: str) -> None:
        """Wait until the command has printed a text."""
        while text not in self.seen:
            assert select.select([self._master], [], [], DEADLINE_S)[0], self.seen
            self.seen += os.read(self._master, 4096).decode("utf-8", "replace")

    def read_question(self, text: str) -> None:
        """Wait until the command has asked a question and sleeps until a key.

        CPython notices a Ctrl-C between the prompt and its select() at the next key only.
        """
        self.read_until(text)
        stat = Path(f"/proc/{self.process.pid}/stat")
        end_s = time.monotonic() + DEADLINE_S
        while stat.read_text("utf-8").rpartition(")")[2].split()[0] != "S":
            assert time.monotonic() < end_s, self.seen
            time.sleep(0.005)

    def end(self) -> int:
        """Read to the end; return the exit code."""
        try:
            while select.select([self._master], [], [], DEADLINE_S)[0]:
                data = os.read(self._master, 4096)
                if not data:
                    break
                self.seen += data.decode("utf-8", "replace")
        except OSError:  # Linux: the last process has closed the terminal
            pass
        return self.process.wait(DEADLINE_S)
