"""A trial as one line of shell, for running it by hand."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import hpq
from hpq import bundle as packing
from hpq.command import argv
from hpq.errors import UserError
from hpq.hyperparams import SHIPPED
from hpq.interpreter import interpreter
from hpq.search.replicates import SEED, seed_of_result
from hpq.sweep import Sweep, Wandb
from hpq.trial import Params, TrialId
from hpq.view import View
from producer.look.export import shell_line

_WANDB_SHIM = Path(hpq.__file__).parent / "wandb_shim" / "stub"


def by_hand(view: View, found: TrialId | str, python: str, gpus: int = 1) -> str:
    """The shell command that a trial's worker starts, with the interpreter of workers here.

    `python` is HPQ_PYTHON.

    What wants its parameters in a file gets one under /tmp, written first.

    Raises:
        UserError: a sweep was named.
    """
    if isinstance(found, str):
        raise UserError(
            f"{found} is a sweep; name one of its trials, {found}/1", code="trial-missing"
        )
    sweep, trial = view.sweep(found.sweep), view.trial(found)
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
        if launch.wandb is Wandb.STAND_IN and _imports_wandb(view, sweep):
            env = [f"PYTHONPATH={shell_line([str(_WANDB_SHIM)])}:$PYTHONPATH", f"HPQ_PARAMS={file}"]
    else:
        words = _trainer(launch.trainer, params)
    seed = seed_of_result(sweep, trial)
    if launch.trainer in SHIPPED:
        words += ["--set", f"seed={seed}"] if seed and SEED not in params else []
    steps = [f"cd {shell_line([launch.code_dir])}"] if launch.code_dir else []
    if launch.bundled:
        folder = f"/tmp/hpq-{found.sweep}"
        steps = [f"test -d {folder} || hpq show {found.sweep} --code {folder}", f"cd {folder}"]
    if file in words or env:
        steps.append(f"printf %s {shell_line([json.dumps(dict(params))])} > {file}")
    if (seed or sweep.replicates > 1) and launch.trainer not in SHIPPED:
        env.append(f"HPQ_SEED={seed}")
    return " && ".join([*steps, " ".join([*env, shell_line(words)])])


def _trainer(trainer: str, params: Params) -> list[str]:
    sets = [w for n, v in params.items() for w in ("--set", f"{n}={json.dumps(v)}")]
    if trainer in SHIPPED:
        return [sys.executable, "-m", SHIPPED[trainer].module, *sets]
    return [sys.executable, "-P", "-m", "worker.by_hand", trainer, *sets]


def _imports_wandb(view: View, sweep: Sweep) -> bool:
    data = view.bundle(sweep.bundle)
    try:
        files = packing.unpack(data, view.manifest(sweep.launch.code)) if data else {}
    except ValueError:
        return False
    return any(b"wandb" in content for name, (content, _) in files.items() if name.endswith(".py"))
