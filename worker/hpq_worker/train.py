"""Run one trial of a trainer from the shell, without Redis: `python -m hpq.train mine:train`.

Reports are printed and artifacts are written to ./out. Checkpoints are removed at the end;
`--checkpoint DIR` keeps them, and resumes from those in DIR. The first Ctrl-C stops the trainer at
its next step, as a worker does; the second stops it at once.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hpq.domain.trainer_specs import BUILT_IN
from hpq.domain.trial import FailureKind, Json
from hpq.errors import ExitCode, HpqError, SettingsError, UserError
from hpq.reporting import set_sink
from hpq.search.samplers import SEED
from hpq.settings import read
from hpq_worker.process.protocol import RunRequest
from hpq_worker.runner.failures import of_exception
from hpq_worker.runner.trial_api import Trial


def main() -> None:
    """Call a built-in trainer, or a function of the working directory, once."""
    parser = argparse.ArgumentParser(
        prog="python -m hpq.train",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_parameters(sys.argv[1:]),
    )
    parser.add_argument(
        "trainer", metavar="TRAINER", help=f"MODULE:FUNCTION, or one of {', '.join(BUILT_IN)}"
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", type=pair, help="a parameter"
    )
    parser.add_argument(
        "--checkpoint", type=Path, metavar="DIR", help="keep checkpoints in DIR; resume from them"
    )
    args = parser.parse_args()
    params, folder, stop = dict(args.set), Path.cwd(), _StopSignal()
    with _one_line(), _checkpoints(args.checkpoint) as checkpoints:
        settings, seed = read(os.environ), _seed(os.environ.get("HPQ_SEED") or "0")
        params = {SEED: seed, **params} if args.trainer in BUILT_IN else params
        run = RunRequest(
            trial="by-hand/1",
            attempt=1,
            params=params,
            seed=seed,
            trainer=args.trainer,
            out=str(folder / "out"),
            checkpoint=str(checkpoints),
            checkpoint_s=settings.checkpoint_s,
            data=str(settings.data.absolute()),
            cache=str(settings.cache),
        )
        trial = Trial(run, print_message, lambda: stop.by is not None)
        set_sink(trial.report)
        sys.path.insert(0, str(folder))
        returned = _function(args.trainer)(params, trial)
        if isinstance(returned, Mapping):
            trial.report(returned)
    if stop.by is not None:
        sys.exit(128 + stop.by)  # as shells have it


def _parameters(words: list[str]) -> str | None:
    """Return the help text for the built-in trainer among the words; None without one."""
    name = next((word for word in words if word in BUILT_IN), None)
    if name is None:
        return None
    lines = [
        f"  {parameter:21} {one.default!s:8} {one.allowed}"
        for parameter, one in BUILT_IN[name].params.items()
    ]
    return "\n".join([f"parameters of {name}, with defaults and allowed values:", *lines])


def pair(text: str) -> tuple[str, Json]:
    """Parse NAME=VALUE; the value as JSON, or as text if it is not JSON.

    Raises:
        argparse.ArgumentTypeError: `=` or the name before it is missing.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value


@contextmanager
def _one_line() -> Iterator[None]:
    """Exit with one line and hpq's exit code on an error of hpq's; other errors keep their stack.

    Out of memory, of a device or of the machine, is also one line.
    """
    try:
        yield
    except HpqError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as error:
        failure = of_exception(error)
        if failure.kind is not FailureKind.OUT_OF_MEMORY:
            raise
        print(f"{failure.message}; a smaller batch_size may help", file=sys.stderr)
        sys.exit(ExitCode.SOME_FAILED)


class _StopSignal:
    """Handles SIGINT and SIGTERM: the first stops the trainer, the second ends this process."""

    def __init__(self) -> None:
        self.by: signal.Signals | None = None
        self._pid = os.getpid()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if os.getpid() != self._pid:  # training code forked it, as a DataLoader does
            if number == signal.SIGTERM:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            return  # Ctrl-C reaches all of a terminal: its parent saves first, and then ends it
        if self.by is not None:
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)  # for a third, should training code catch this
            sys.exit(128 + number)
        self.by = signal.Signals(number)
        line = f"{self.by.name}: the trainer stops at its next step; a second signal ends it now"
        os.write(2, f"{line}\n".encode())  # the signal may have interrupted a print


@contextmanager
def _checkpoints(kept: Path | None) -> Iterator[Path]:
    # A fresh directory: an earlier run with other parameters must not leave its checkpoints here.
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="hpq-by-hand-") as name:
            yield Path(name)
        return
    try:
        kept.mkdir(parents=True, exist_ok=True)
        found = any(kept.iterdir())
    except OSError as error:
        raise UserError(f"--checkpoint {kept}: {error.strerror}", code="file-unwritable") from None
    if found:
        print(f"--checkpoint {kept}: not empty; the trainer may resume from it", file=sys.stderr)
    yield kept.resolve()


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise SettingsError(f"HPQ_SEED: {text!r} is not an integer") from None


def _function(trainer: str) -> Callable[..., object]:
    if trainer in BUILT_IN:
        trainer = f"{BUILT_IN[trainer].module}:train"
    name, _, function = trainer.partition(":")
    if not name or not function:
        raise UserError(
            f"{trainer}: name MODULE:FUNCTION, e.g. train:train, or one of {', '.join(BUILT_IN)}",
            code="trainer-invalid",
        )
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name not in (name, name.partition(".")[0]):
            raise  # a module that the user's code imports: the traceback shows the line
        text = f"{trainer}: no module {name} in {Path.cwd()}; run this in its directory"
        raise UserError(text, code="trainer-not-found") from None
    found = getattr(module, function, None)
    if not callable(found):
        raise UserError(f"{trainer}: {name} has no function {function}", code="trainer-not-found")
    return found  # type: ignore[no-any-return]


def print_message(message: Mapping[str, Any]) -> None:
    """Print a report or a phase of a trainer; nothing for other messages."""
    if "report" in message:
        step = "" if message["step"] is None else f"step {message['step']} "
        print(step + " ".join(f"{n}={v:g}" for n, v in message["report"].items()), flush=True)
    elif "phase" in message:
        print(message["phase"], file=sys.stderr, flush=True)
