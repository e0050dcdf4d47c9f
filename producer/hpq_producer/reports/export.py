"""Format a trial as command-line options, or as the shell command that runs it."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import hpq
from hpq.code.command import arguments, argv, interpreter
from hpq.domain.sweep import Launch, Wandb
from hpq.domain.trial import Params, TrialId
from hpq.errors import UserError
from hpq.search.samplers import seed_of_result
from hpq.settings import Settings
from hpq.shell import shell_line
from hpq.store.reader import StoreReader
from hpq_producer.query.selection import refuse_altered, refuse_unsigned


def to_args(params: Params, command: tuple[str, ...] = (), of: TrialId | str = "") -> str:
    """Return `--lr=0.1 --opt=adam`, or the form of the sweep's command, quoted for a shell.

    Raises:
        UserError: a value has control characters; the message names the JSON of the trial `of`.
    """
    return shell_line(arguments(command, params), f"hpq show {of} -o json")


_WANDB_SHIM = Path(hpq.__file__).parent / "wandb_shim" / "stub"


def trial_command(
    reader: StoreReader, found: TrialId | str, settings: Settings, *, unsigned: bool = False
) -> str:
    """Return the shell line that runs a trial by hand, with the code and seed as enqueued.

    Of code that this machine's key signed, `hpq try` runs the stored copy. The line for other code,
    for installed code and for --live has the command that a worker on this machine starts. A
    program that reads its parameters from a file gets one under /tmp.

    Raises:
        UserError: `found` is a sweep, its parameters are not those that were signed, or no key of
            this machine signed them and `unsigned` is not set.
    """
    if isinstance(found, str):
        text = f"{found} is a sweep; name one of its trials, e.g. {found}/1"
        raise UserError(text, code="trial-missing")
    sweep, trial = reader.sweeps.get(found.sweep), reader.trials.get(found)
    refuse_altered([trial])
    launch, seed = sweep.launch, f"HPQ_SEED={seed_of_result(sweep, trial)}"
    if launch.is_function:
        text = f"{found} calls a function of a script; `hpq show {found}` prints its parameters"
        raise UserError(text, code="wrong-place")
    if not unsigned:
        refuse_unsigned(settings, sweep, "prints its command")
    if launch.bundled and not unsigned:
        return f"{seed} {shell_line(['hpq', 'try', str(found), '--as-enqueued'])}"
    return _by_hand(found, launch, trial.params, seed, settings)


def _by_hand(found: TrialId, launch: Launch, params: Params, seed: str, settings: Settings) -> str:
    file, remedy = f"/tmp/hpq-{found.sweep}-{found.number}.json", f"hpq show {found} -o json"
    env = [seed]
    if launch.program or launch.command:
        words = list(
            argv(launch.command, launch.program, params, environ=os.environ, params_file=file,
                 interpreter=interpreter(os.environ, settings.python), gpus=settings.gpus_per_trial)
        )  # fmt: skip
        if launch.wandb is Wandb.STAND_IN:
            shim = f"PYTHONPATH={shell_line([str(_WANDB_SHIM)])}:$PYTHONPATH"
            env = [shim, f"HPQ_PARAMS={file}", seed]
    else:
        words = _trainer(launch.trainer, params)
    steps = [f"cd {shell_line([launch.code_dir])}"] if launch.code_dir else []
    if launch.bundled:
        code = shell_line(["hpq", "show", found.sweep, "--code", ".", "--unsigned"])
        steps = ['cd "$(mktemp -d)"', code]
        steps += [f"cd {shell_line([launch.below])}"] if launch.below else []
    if file in words or env[1:]:
        steps.append(f"printf %s {shell_line([json.dumps(dict(params))], remedy)} > {file}")
    return " && ".join([*steps, " ".join([*env, shell_line(words, remedy)])])


def _trainer(trainer: str, params: Params) -> list[str]:
    sets = [w for n, v in params.items() for w in ("--set", f"{n}={json.dumps(v)}")]
    # -P: a user's file, e.g. queue.py, must not hide a module that hpq imports.
    return [sys.executable, "-P", "-m", "hpq.train", trainer, *sets]
