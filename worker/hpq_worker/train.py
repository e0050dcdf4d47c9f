"""A user's trainer run from the shell, without Redis: `python -P -m hpq_worker.train mine:train`.

`--set name=value` for each parameter; reports are printed, artifacts lie in ./out. Checkpoints go
with the run; `--checkpoint DIR` keeps them, and goes on from those that lie there. Ctrl-C stops the
trainer at its next step, as a worker would; once more, at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from hpq.errors import UserError
from hpq.report import set_sink
from hpq.settings import read
from hpq_worker.process.protocol import Run
from hpq_worker.runner.trial_api import Trial
from hpq_worker.trainers.manual import one_line, pair


def main() -> None:
    """Import the trainer from the working directory, and call it once."""
    parser = argparse.ArgumentParser(prog="python -P -m hpq_worker.train")
    parser.add_argument("trainer", metavar="MODULE:FUNCTION")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", type=pair)
    parser.add_argument("--checkpoint", type=Path, metavar="DIR", help="kept, and gone on from")
    args = parser.parse_args()
    params, cwd, stop = dict(args.set), Path.cwd(), _StopSignal()
    with one_line(), _checkpoints(args.checkpoint) as checkpoints:
        settings = read(os.environ)
        run = Run(
            trial="by-hand/1",
            attempt=1,
            params=params,
            seed=_seed(os.environ.get("HPQ_SEED") or "0"),
            trainer=args.trainer,
            out=str(cwd / "out"),
            checkpoint=str(checkpoints),
            checkpoint_s=settings.checkpoint_s,
            data=str(settings.data or ""),
            cache=str(settings.cache),
        )
        trial = Trial(run, _print, lambda: stop.by is not None)
        set_sink(trial.report)
        sys.path.insert(0, str(cwd))
        returned = _function(args.trainer)(params, trial)
        if isinstance(returned, Mapping):
            trial.report(returned)
    if stop.by is not None:
        sys.exit(128 + stop.by)  # as shells have it


class _StopSignal:
    """What this process was told: by a first SIGINT or SIGTERM to stop, by a second to end."""

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
        line = f"{self.by.name}: the trainer ends at its next step; a second signal ends it at once"
        os.write(2, f"{line}\n".encode())  # a print may be what was interrupted


@contextmanager
def _checkpoints(folder: Path | None) -> Iterator[Path]:
    # A fresh one: an earlier run, which had other parameters, left its own in the same place.
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="hpq-by-hand-") as name:
            yield Path(name)
        return
    try:
        folder.mkdir(parents=True, exist_ok=True)
        found = any(folder.iterdir())
    except OSError as error:
        raise UserError(
            f"--checkpoint {folder}: {error.strerror}", code="file-unwritable"
        ) from None
    if found:
        print(f"--checkpoint {folder}: not empty, the trainer may go on from it", file=sys.stderr)
    yield folder.resolve()


def _seed(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise UserError(f"HPQ_SEED: {text!r} is no whole number") from None


def _function(trainer: str) -> Callable[..., object]:
    name, _, function = trainer.partition(":")
    if not name or not function:
        raise UserError(f"{trainer}: give MODULE:FUNCTION, as train:train", code="trainer-invalid")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name not in (name, name.partition(".")[0]):
            raise  # one that the user's code imports: its line is worth seeing
        raise UserError(
            f"{trainer}: there is no module {name} in {Path.cwd()}", code="trainer-not-found"
        ) from None
    found = getattr(module, function, None)
    if not callable(found):
        raise UserError(f"{trainer}: {name} has no function {function}", code="trainer-not-found")
    return found  # type: ignore[no-any-return]


def _print(message: Mapping[str, Any]) -> None:
    if "report" in message:
        step = "" if message["step"] is None else f"step {message['step']} "
        print(step + " ".join(f"{n}={v:g}" for n, v in message["report"].items()), flush=True)
    elif "phase" in message:
        print(message["phase"], file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
