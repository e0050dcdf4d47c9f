"""Export trials as CSV, YAML, command-line options, or the shell command that runs one.

In CSV, text that a spreadsheet would run as a formula gets a leading apostrophe.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TextIO

import hpq
from hpq.code.bundle import unpack
from hpq.code.command import arguments, argv, interpreter
from hpq.domain.sweep import Sweep, Wandb
from hpq.domain.trainer_specs import SHIPPED
from hpq.domain.trial import Params, TrialId, TrialView
from hpq.errors import UserError
from hpq.search.samplers import SEED, replicate_of, seed_of_result
from hpq.store.reader import StoreReader
from hpq_producer.analysis.records import iso
from hpq_producer.analysis.scores import param_value
from hpq_producer.terminal.output import cell, guard_formula
from hpq_producer.terminal.text import shell_line

_COLUMNS = (
    "step",
    "attempt",
    "worker",
    "host",
    "started",
    "ended",
    "duration_s",
    "failure",
    "error",
    "total_s",
    "reused",
)
_REPLICATES = ("replicate", "seed")


def write_csv(
    file: TextIO,
    trials: Iterable[TrialView],
    sweep: Sweep,
    params: Sequence[str],
    metrics: Sequence[str],
) -> None:
    """Write trials of a sweep as CSV (RFC 4180), one row each.

    `params` and `metrics` are the columns of that kind, `metrics` beside the objective. With
    replicates, two columns have the replicate's number and its seed.
    """
    writer = csv.writer(file, lineterminator="\r\n")
    more = _REPLICATES if sweep.replicates > 1 else ()
    writer.writerow([guard_formula(name) for name in _header(params, metrics, more)])
    for trial in trials:
        failure = trial.failure
        row = [
            trial.id.number,
            trial.state.value,
            *(cell(param_value(trial.params, name)) for name in params),
            trial.objective,
            *(trial.metrics.get(name) for name in metrics),
            trial.step,
            trial.attempt,
            guard_formula(trial.worker),
            guard_formula(trial.host),
            iso(trial.claimed_ms),
            iso(trial.ended_ms),
            trial.duration_ms / 1000,
            failure.kind.value if failure else None,
            guard_formula(failure.message) if failure else None,
            trial.total_ms / 1000,
            trial.reused or None,
        ]
        if more:
            row += [replicate_of(sweep, trial.id.number), seed_of_result(sweep, trial)]
        writer.writerow(row)


def _header(params: Sequence[str], metrics: Sequence[str], more: Sequence[str]) -> list[str]:
    taken = {"trial", "state", "objective", *_COLUMNS, *more}
    out = ["trial", "state"]
    out += [f"params.{name}" if name in taken else name for name in params]
    taken.update(params)
    out += ["objective", *(f"metrics.{name}" if name in taken else name for name in metrics)]
    return [*out, *_COLUMNS, *more]


def to_args(params: Params, command: tuple[str, ...] = ()) -> str:
    """Return `--lr=0.1 --opt=adam`, or the form of the sweep's command, quoted for a shell."""
    return shell_line(arguments(command, params))


_WANDB_SHIM = Path(hpq.__file__).parent / "wandb_shim" / "stub"


def trial_command(reader: StoreReader, found: TrialId | str, python: str, gpus: int = 1) -> str:
    """Return the shell command that a worker on this machine starts for a trial.

    `python` is HPQ_PYTHON. A program that reads its parameters from a file gets one under /tmp.

    Raises:
        UserError: `found` is a sweep.
    """
    if isinstance(found, str):
        text = f"{found} is a sweep; name one of its trials, e.g. {found}/1"
        raise UserError(text, code="trial-missing")
    sweep, trial = reader.sweeps.get(found.sweep), reader.trials.get(found)
    params, launch = trial.params, sweep.launch
    file = f"/tmp/hpq-{found.sweep}-{found.number}.json"
    env: list[str] = []
    if launch.program or launch.command:
        words = list(
            argv(
                launch.command,
                launch.program,
                params,
                environ=os.environ,
                params_file=file,
                interpreter=interpreter(os.environ, python),
                gpus=gpus,
            )
        )
        if launch.wandb is Wandb.STAND_IN and _imports_wandb(reader, sweep):
            env = [f"PYTHONPATH={shell_line([str(_WANDB_SHIM)])}:$PYTHONPATH", f"HPQ_PARAMS={file}"]
    else:
        words = _trainer(launch.trainer, params)
    seed = seed_of_result(sweep, trial)
    if launch.trainer in SHIPPED:
        words += ["--set", f"seed={seed}"] if seed and SEED not in params else []
    steps = [f"cd {shell_line([launch.code_dir])}"] if launch.code_dir else []
    if launch.bundled and not launch.code_dir:
        folder = f"/tmp/hpq-{found.sweep}"
        steps = [f"test -d {folder} || hpq show {found.sweep} --code {folder}", f"cd {folder}"]
    if file in words or env:
        steps.append(f"printf %s {shell_line([json.dumps(dict(params))])} > {file}")
    if (seed or sweep.replicates > 1) and launch.trainer not in SHIPPED:
        env.append(f"HPQ_SEED={seed}")
    return " && ".join([*steps, " ".join([*env, shell_line(words)])])


def _trainer(trainer: str, params: Params) -> list[str]:
    sets = [w for n, v in params.items() for w in ("--set", f"{n}={json.dumps(v)}")]
    # -P: a user's file, e.g. queue.py, must not hide a module that hpq imports.
    return [sys.executable, "-P", "-m", "hpq.train", trainer, *sets]


def _imports_wandb(reader: StoreReader, sweep: Sweep) -> bool:
    data = reader.sweeps.bundle(sweep.bundle)
    try:
        files = unpack(data, sweep.launch.code) if data else {}
    except ValueError:
        return False
    return any(b"wandb" in content for name, (content, _) in files.items() if name.endswith(".py"))
