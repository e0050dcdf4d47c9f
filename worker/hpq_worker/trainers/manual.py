"""A shipped trainer run from the shell, without Redis: `--set name=value`, one line an epoch.

Only the trainers' own `__main__` and `worker.by_hand` import this.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hpq.domain.trainer_specs import SHIPPED
from hpq.domain.trial import FailureKind, Json
from hpq.errors import ExitCode, HpqError
from hpq.settings import read
from hpq_worker.runner.failures import of_exception
from hpq_worker.trainers.training.trial_context import Trainer


@dataclass(frozen=True, slots=True, kw_only=True)
class ByHand:
    """A `TrialContext` that prints: reports to stdout, phases to stderr."""

    data: Path | None
    cache: Path
    checkpoint_dir: Path | None = None
    checkpoint_s: float = 60.0
    should_stop: bool = False

    def report(self, metrics: Mapping[str, float], step: int) -> None:
        """One line for the step."""
        print(f"epoch {step}", *(f"{k}={v:.4f}" for k, v in metrics.items()), flush=True)

    def phase(self, text: str) -> None:
        """One line of talk."""
        print(text, file=sys.stderr, flush=True)


def main(name: str, train: Trainer) -> None:
    """Run one trial from the arguments and the environment; exits with hpq's code on an error."""
    parser = argparse.ArgumentParser(
        prog=f"python -m hpq_worker.trainers.{name}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_parameters(name.replace("_", "-")),
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", type=pair)
    params = dict(parser.parse_args().set)
    with one_line():
        settings = read(os.environ)
        train(params, ByHand(data=settings.data, cache=settings.cache))


def _parameters(trainer: str) -> str | None:
    if trainer not in SHIPPED:
        return None
    lines = [
        f"  {name:21} {one.default!s:8} {one.allowed}"
        for name, one in SHIPPED[trainer].params.items()
    ]
    return "\n".join(["parameters, their defaults and what is allowed:", *lines])


@contextmanager
def one_line() -> Iterator[None]:
    """Exit with one line and hpq's code where a trial ends as hpq knows it; the rest goes on up.

    What hpq knows are its own errors, Ctrl-C (no line), and a device or a machine without memory
    for the trial.
    """
    try:
        yield
    except HpqError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(ExitCode.INTERRUPTED)
    except Exception as error:
        failure = of_exception(error)
        if failure.kind is not FailureKind.OUT_OF_MEMORY:
            raise
        print(f"{failure.message}; a smaller batch_size may help", file=sys.stderr)
        sys.exit(ExitCode.SOME_FAILED)


def pair(text: str) -> tuple[str, Json]:
    """NAME=VALUE; the value as JSON, else as it stands.

    Raises:
        argparse.ArgumentTypeError: there is no `=`, or no name before it.
    """
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    try:
        return name, json.loads(value)
    except json.JSONDecodeError:
        return name, value
