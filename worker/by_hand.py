"""A user's trainer run from the shell, without Redis: `python -P -m worker.by_hand mine:train`.

`--set name=value` for each parameter; reports are printed, files lie in the working directory.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hpq.report import set_sink
from hpq.settings import read
from hpq.trial import Json
from worker.context import Trial
from worker.messages import Run


def main() -> None:
    """Import the trainer from the working directory, and call it once."""
    parser = argparse.ArgumentParser(prog="python -P -m worker.by_hand")
    parser.add_argument("trainer", metavar="MODULE:FUNCTION")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    params = dict(_pair(text) for text in given.set)
    module, _, function = given.trainer.partition(":")
    settings, here = read(os.environ), Path.cwd()
    (here / "checkpoint").mkdir(exist_ok=True)
    run = Run(
        trial="by-hand/1",
        attempt=1,
        params=params,
        seed=int(os.environ.get("HPQ_SEED") or 0),
        trainer=given.trainer,
        out=str(here / "out"),
        checkpoint=str(here / "checkpoint"),
        data=str(settings.data or ""),
        cache=str(settings.home / "cache"),
    )
    trial = Trial(run, _say, lambda: False)
    set_sink(trial.report)
    sys.path.insert(0, str(here))
    returned = getattr(importlib.import_module(module), function)(params, trial)
    if isinstance(returned, Mapping):
        trial.report(returned)


def _say(message: Mapping[str, Any]) -> None:
    if "report" in message:
        step = "" if message["step"] is None else f"step {message['step']} "
        print(step + " ".join(f"{n}={v:g}" for n, v in message["report"].items()), flush=True)
    elif "phase" in message:
        print(message["phase"], file=sys.stderr, flush=True)


def _pair(text: str) -> tuple[str, Json]:
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


if __name__ == "__main__":
    main()
