"""A directory with a script and a sweep file; hpq's commands run in it, in this process."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from typing import Any, NoReturn, TextIO

import pytest

from hpq.sanitize import guard_terminals
from hpq.store.reader import StoreReader
from hpq_producer.cli import app


class Done(subprocess.CompletedProcess[str]):
    """A command at its end; `becomes` has the command line and the environment of its successor.

    That is the program which the command would have replaced itself by, such as a supervisor.
    """

    becomes: tuple[list[str], dict[str, str]] | None = None


class _Execve(BaseException):
    """A command has asked to be replaced; no handler of `Exception` may stop that."""


def _execve(_path: str, words: list[str], env: dict[str, str]) -> NoReturn:
    raise _Execve(words, env)


def run_here(
    words: Sequence[object],
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    *,
    stdin: TextIO | None = None,
    stdout: TextIO | None = None,
    stderr: TextIO | None = None,
    encoding: str = "utf-8",
) -> Done:
    """Run a command to its end in this process, off a terminal unless a stream is one.

    What it prints is decoded as UTF-8; bytes that are no UTF-8 become surrogates (PEP 383).
    """
    becomes = None
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding, write_through=True) for _ in range(2))
    code: Any = 0
    with (
        Path(os.devnull).open() as nothing,
        contextlib.redirect_stdout(stdout or out),
        contextlib.redirect_stderr(stderr or err),
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "stdin", stdin or nothing)
        patch.setattr(os, "execve", _execve)
        patch.chdir(cwd or Path.cwd())
        for name in set(os.environ) - set(os.environ if env is None else env):
            patch.delenv(name)
        for name, value in (env or {}).items():
            patch.setenv(name, value)
        guard_terminals()
        try:
            app(args=[str(word) for word in words], prog_name="hpq")
        except SystemExit as end:
            code = end.code
        except _Execve as asked:
            becomes = asked.args
    said = (file.buffer.getvalue().decode("utf-8", "surrogateescape") for file in (out, err))
    done = Done(words, int(code or 0), *said)
    done.becomes = becomes
    return done


def drawn_here(words: Sequence[object], cwd: Path, env: Mapping[str, str]) -> str:
    """Run a command to its end in this process, on a terminal; return what reached it."""
    master, slave = pty.openpty()
    drawn: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # EIO: the other side is closed
            while part := os.read(master, 65536):
                drawn.append(part)

    reader = Thread(target=read)  # else a terminal that is full would block the command
    reader.start()
    with open(slave, "w", encoding="utf-8") as terminal:
        run_here(words, cwd, {**env, "TERM": "xterm-256color"}, stdout=terminal, stderr=terminal)
    reader.join()
    os.close(master)
    return b"".join(drawn).decode("utf-8", "replace")


class Desk:
    """The working directory of a test's user."""

    def __init__(
        self, folder: Path, redis_url: str, reader: StoreReader, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        self.folder, self.reader = folder, reader
        (folder / "train.py").write_text("print('loss=1')\n")
        monkeypatch.chdir(folder)
        settings = {"URL": redis_url, "HOME": str(folder / "home"), "USER": "me"}
        monkeypatch.setenv("HPQ_REDIS_URL", settings.pop("URL"))
        for name, value in settings.items():
            monkeypatch.setenv(f"HPQ_{name}", value)

    def hpq(self, *words: str) -> Done:
        """Run a command to its end, off a terminal."""
        return run_here(words)

    def put(self, text: str, *words: str) -> Done:
        """Enqueue a sweep file of this text."""
        (self.folder / "sweep.yaml").write_text(text)
        return self.hpq("enqueue", "sweep.yaml", *words)

    def sweep(self, text: str, *words: str) -> str:
        """Enqueue a sweep file of this text; return the sweep's id."""
        done = self.put(text, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def add(self, sid: str, *words: str) -> dict[str, Any]:
        """Add trials to a sweep; return the result of the command."""
        done = self.hpq("add", sid, *words, "-o", "json")
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    def trials(self, sid: str) -> list[tuple[Any, str]]:
        """Return the x and the state of each trial."""
        return [(t.params["x"], t.state.value) for t in self.reader.trials.all(sid)]
