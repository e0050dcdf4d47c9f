"""`sync_tensorboard=True`: what is written for TensorBoard is reported as well."""

from __future__ import annotations

import importlib
import sys
from typing import Any

from ._say import say

_WRITERS = {"torch": "torch.utils.tensorboard.writer", "tensorboardX": "tensorboardX.writer"}


def follow(run: Any) -> None:
    """Let `add_scalar` of the writers that are there report, too."""
    found = False
    for library, name in _WRITERS.items():
        if library not in sys.modules:
            continue
        try:
            writer = importlib.import_module(name).SummaryWriter
        except Exception:  # torch without tensorboard
            continue
        found = True
        _wrap(writer, run)
    if not found:
        say("sync_tensorboard: no SummaryWriter of torch or tensorboardX is here to listen to")


def _wrap(writer: Any, run: Any) -> None:
    if hasattr(writer, "_hpq_run"):
        writer._hpq_run = run
        return
    writer._hpq_run = run
    plain = writer.add_scalar

    def add_scalar(
        self: Any, tag: str, scalar_value: Any, global_step: Any = None, *args: Any, **kwargs: Any
    ) -> Any:
        run = type(self)._hpq_run
        if not run._is_over:
            run.log_at(tag, scalar_value, global_step)
        return plain(self, tag, scalar_value, global_step, *args, **kwargs)

    writer.add_scalar = add_scalar
