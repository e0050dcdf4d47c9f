"""`wandb: tee`: replace this module by the real wandb, whose runs report to hpq as well."""

from __future__ import annotations

import atexit
import importlib
import os
import sys
from typing import Any

from hpq.wandb_shim.stub.wandb._history import Defined, Rows, drop_others, split
from hpq.wandb_shim.stub.wandb._transport import describe_run, send


def _real() -> Any:
    here = os.path.realpath(os.path.dirname(os.path.dirname(__file__)))
    sys.path[:] = [path for path in sys.path if os.path.realpath(path or ".") != here]
    sys.modules.pop(__name__, None)
    try:
        return importlib.import_module("wandb")
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"{error}: `wandb: tee` in the sweep file needs the real wandb, which this program's"
            " environment lacks; run `pip install wandb`, or remove that line"
        ) from None


def _tee(run_class: Any) -> None:
    rows = Rows(send)
    plain_log, plain_define = run_class.log, run_class.define_metric
    plain_summary = run_class._summary_update_callback
    described: dict[str, Any] = {}

    def describe(run: Any) -> None:
        found = {name: getattr(run, name, None) for name in _ABOUT}
        found |= {"tags": list(found["tags"] or ()), "axes": rows.axes}
        found = {name: value for name, value in found.items() if value}
        if found != described:
            described.clear()
            described.update(found)
            describe_run(found)

    def log(self: Any, data: Any, step: Any = None, commit: Any = None, **more: Any) -> Any:
        answer = plain_log(self, data, step=step, commit=commit, **more)
        numbers, rest = split(data)
        rows.log(numbers, None if step is None else int(step), commit)
        drop_others(rest)
        describe(self)
        return answer

    def define_metric(self: Any, name: str, step_metric: Any = None, **more: Any) -> Any:
        answer = plain_define(self, name, step_metric, **more)
        axis = getattr(step_metric, "name", step_metric)
        rows.define(name, axis, Defined.of(more.get("summary"), more.get("goal")))
        return answer

    def summary(self: Any, record: Any) -> Any:
        rows.set(split({".".join(item.key): item.value for item in record.update})[0])
        return plain_summary(self, record)

    run_class.log, run_class.define_metric = log, define_metric
    run_class._summary_update_callback = summary
    atexit.register(rows.flush)


_ABOUT = ("name", "group", "job_type", "project", "notes", "tags")  # of a run
_wandb = _real()
_tee(_wandb.sdk.wandb_run.Run)
