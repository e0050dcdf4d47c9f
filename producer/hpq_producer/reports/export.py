"""Format a trial as command-line options, or as the shell command that runs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import hpq
from hpq.code.bundle import unpack
from hpq.code.command import arguments, argv, interpreter
from hpq.domain.sweep import Sweep, Wandb
from hpq.domain.trainer_specs import SHIPPED
from hpq.domain.trial import Params, TrialId
from hpq.errors import UserError
from hpq.sanitize import shell_line
from hpq.search.samplers import SEED, seed_of_result
from hpq.store.reader import StoreReader
from hpq_producer.query.selection import refuse_altered


def to_args(params: Params, command: tuple[str, ...] = (), of: TrialId | str = "") -> str:
    """Return `--lr=0.1 --opt=adam`, or the form of the sweep's command, quoted for a shell.

    Raises:
        UserError: a value has control characters; the message names the JSON of the trial `of`.
    """
    return shell_line(arguments(command, params), f"hpq show {of} -o json")


_WANDB_SHIM = Path(hpq.__file__).parent / "wandb_shim" / "stub"


def trial_command(reader: StoreReader, found: TrialId | str, python: str, gpus: int = 1) -> str:
    """Return the shell command that a worker on this machine starts for a trial.

    `python` is HPQ_PYTHON. A program that reads its parameters from a file gets one under /tmp.

    Raises:
        UserError: `found` is a sweep, or its parameters are not those that were signed.
    """
    if isinstance(found, str):
        text = f"{found} is a sweep; name one of its trials, e.g. {found}/1"
        raise UserError(text, code="trial-missing")
    sweep, trial = reader.sweeps.get(found.sweep), reader.trials.get(found)
    refuse_altered([trial])
    params, launch = trial.params, sweep.launch
    if launch.is_function:
        text = f"{found} calls a function of a script; `hpq show {found}` prints its parameters"
        raise UserError(text, code="wrong-place")
    file = f"/tmp/hpq-{found.sweep}-{found.number}.json"
    env: list[str] = []
    if launch.program or launch.command:
        words = list(
            argv(launch.command, launch.program, params, environ=os.environ, params_file=file,
                 interpreter=interpreter(os.environ, python), gpus=gpus)
        )  # fmt: skip
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
