"""Ctrl-C while a command waits: 130, and no traceback."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from hpq.store.control import SweepControl
from tests.conftest import MakeSweep
from tests.support.commands import HPQ
from tests.support.ids import ids
from tests.support.terminal import Pty

SID = "demo-00000"


@pytest.mark.parametrize(
    ("words", "stream", "first"),
    [
        (["wait", SID], "stderr", "no-worker"),
        (["watch", SID], "stdout", SID),
        (["dashboard", "--port", "0", "--no-token"], "stdout", "http://"),
    ],
)
def test_a_command_that_waits_ends_without_a_further_word(
    environ: Mapping[str, str],
    sweep_of: MakeSweep,
    tmp_path: Path,
    words: list[str],
    stream: str,
    first: str,
) -> None:
    sweep_of(1)
    with subprocess.Popen(
        [HPQ, *words], cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        lines = getattr(process, stream)
        while first not in lines.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        said = process.stdout.read() + process.stderr.read()  # type: ignore[union-attr]
        assert process.wait() == 130
        assert not set(ids(said)) - {"no-worker"} and "Traceback" not in said


def test_ctrl_c_at_a_question_is_no_answer(
    environ: Mapping[str, str], sweep_of: MakeSweep, tmp_path: Path
) -> None:
    sweep_of(1)
    asked = Pty(["rm", SID], tmp_path, environ)
    asked.read_question("[y/N]: ")
    asked.type("\x03")
    assert asked.end() == 130
    assert ids(asked.seen.replace("\r", "")) == []


def test_an_interrupt_that_the_caller_ignores_stays_ignored(
    environ: Mapping[str, str], sweep_of: MakeSweep, control: SweepControl, tmp_path: Path
) -> None:
    """As in the background jobs of a shell."""
    sweep_of(1)
    with subprocess.Popen(
        ["sh", "-c", 'trap "" INT; exec "$0" wait', HPQ],
        cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stderr and ids(process.stderr.readline()) == ["no-worker"]
        process.send_signal(signal.SIGINT)
        control.cancel(SID)
        assert process.wait() == 1
